from collections.abc import Iterator

import pytest
from stub_api import TOKEN, Stub, serving

from hourhand.client import Client
from hourhand.client.scripts import Wait


@pytest.fixture
def nobody_sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits of the scripts are noted and not slept."""
    waits: list[float] = []

    def pause(rhythm: object) -> Wait:
        waits.append(rhythm.seconds)  # type: ignore[attr-defined]
        rhythm.seconds = min(rhythm.seconds * 1.5, 1.0)  # type: ignore[attr-defined]
        return Wait(0)

    monkeypatch.setattr("hourhand.client.scripts._Rhythm.pause", pause)
    return waits


@pytest.fixture
def stub(nobody_sleeps: list[float]) -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.fixture
def client(stub: Stub) -> Iterator[Client]:
    with Client(stub.url, TOKEN) as client:
        yield client
