"""As many callers may be connected as the machine allows files to be open."""

import resource

import pytest

from hourhand.runtime.sockets import FILES_SPARE, allow_connections

NO_LIMIT = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("limits", "wanted", "allowed", "raised"),
    [
        ((1024, 20_000), 4096, 4096, (4096 + FILES_SPARE, 20_000)),
        ((1024, 2000), 4096, 2000 - FILES_SPARE, (2000, 2000)),
        ((1024, NO_LIMIT), 4096, 4096, (4096 + FILES_SPARE, NO_LIMIT)),
        ((20_000, 20_000), 4096, 4096, None),
        ((NO_LIMIT, NO_LIMIT), 4096, 4096, None),
        ((100, 100), 4096, 1, (100, 100)),
    ],
)
def test_the_limit_of_open_files_is_raised_for_connections_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    wanted: int,
    allowed: int,
    raised: tuple[int, int] | None,
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: found.append(pair))
    assert allow_connections(wanted) == allowed
    assert found == ([raised] if raised else [])
