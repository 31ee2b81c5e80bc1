from pathlib import Path

import pytest
import s3_server


@pytest.mark.parametrize(("ci", "expected"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_server_that_cannot_be_built_is_passed_over_only_where_somebody_looks(
    ci: str, expected: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(s3_server, "_CACHE", tmp_path)
    with pytest.raises(expected, match="Go is not here"):
        s3_server.built()
