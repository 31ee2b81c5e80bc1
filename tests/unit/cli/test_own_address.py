"""Commands find the Hourhand of their home, on whatever port it listens."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from stub_api import Stub

from hourhand.cli.own_address import address_of, forget_address, keep_address

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("127.0.0.1", "http://127.0.0.1:8426"),
        ("127.0.0.2", "http://127.0.0.2:8426"),
        ("localhost", "http://127.0.0.1:8426"),
        ("0.0.0.0", "http://127.0.0.1:8426"),
        ("::1", "http://[::1]:8426"),
        ("::", "http://[::1]:8426"),
        ("10.0.0.7", None),
        ("jobs.example.com", None),
    ],
)
def test_an_address_is_told_as_this_machine_reaches_it(tmp_path: Path, host: str, reached: str | None) -> None:
    keep_address(tmp_path, "127.0.0.1", 1)
    keep_address(tmp_path, host, 8426)
    assert address_of(tmp_path) == reached
    forget_address(tmp_path)
    assert list(tmp_path.iterdir()) == []
    forget_address(tmp_path)


@pytest.mark.parametrize(
    "said", ["http://evil.example:80", "http://127.0.0.1@evil.example:80", "http://127.0.0.1:0", "", "127.0.0.1:8426"]
)
def test_a_home_cannot_lead_tokens_to_another_machine(tmp_path: Path, said: str) -> None:
    (tmp_path / "address").write_text(said)
    assert address_of(tmp_path) is None


@pytest.mark.parametrize("port", [None, "0"])
def test_commands_go_where_the_hourhand_of_their_home_listens(
    hourhand: Run, stub: Stub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, port: str | None
) -> None:
    monkeypatch.delenv("HOURHAND_SERVER")
    monkeypatch.setenv("HOURHAND_HOME", str(tmp_path))
    monkeypatch.delenv("HOURHAND_PORT", raising=False)
    if port is not None:
        monkeypatch.setenv("HOURHAND_PORT", port)
    keep_address(tmp_path, "127.0.0.1", int(stub.url.rpartition(":")[2]))
    assert hourhand("status").exit_code == 0
    forget_address(tmp_path)
    monkeypatch.setenv("HOURHAND_PORT", "1")
    assert hourhand("status").exit_code == 69
