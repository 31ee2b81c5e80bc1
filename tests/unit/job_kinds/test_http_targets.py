"""Names that lead where jobs may not go are told when a job is created, if that can be told then."""

import socket
import threading

import pytest

from hourhand.job_kinds import http_targets
from hourhand.job_kinds.http_targets import TargetNames

ADDRESSES = {"public.example": ["93.184.216.34"], "private.example": ["93.184.216.34", "10.0.0.1"],
             "meta.example": ["169.254.169.254"], "scoped.example": ["fe80::1%1"]}  # fmt: skip


@pytest.fixture
def asked():
    return []


@pytest.fixture
def names_with(asked):
    def resolve(name, *_, **__):
        asked.append(name)
        if name not in ADDRESSES:
            raise socket.gaierror
        return [(2, 1, 6, "", (address, 0)) for address in ADDRESSES[name]]

    return lambda allow_private=False: TargetNames(allow_private, resolve)


async def found(names, **payload):
    return [(fault.pointer, fault.code) for fault in await names.faults(payload)]


async def test_every_address_of_a_name_is_judged(names_with):
    names = names_with()
    assert await found(names, url="https://public.example/x") == []
    for name in ("private.example", "meta.example", "scoped.example", "PRIVATE.example"):
        assert await found(names, url=f"http://{name}:8080/") == [("/url", "target-blocked")]
    oauth = {"token_url": "https://meta.example/token"}
    assert await found(names, url="https://public.example/", oauth=oauth) == [("/oauth/token_url", "target-blocked")]


async def test_where_private_targets_are_allowed_metadata_services_are_not(names_with):
    names = names_with(allow_private=True)
    assert await found(names, url="http://private.example/") == []
    assert await found(names, url="http://meta.example/") == [("/url", "target-blocked")]


async def test_a_name_is_looked_up_once_a_minute_and_addresses_never(names_with, asked):
    names = names_with()
    for _ in range(5):
        await found(names, url="http://public.example/")
        await found(names, url="http://10.0.0.1/")
    assert asked == ["public.example"]


async def test_a_name_that_cannot_be_resolved_is_no_fault(names_with):
    assert await found(names_with(), url="http://nowhere.example/") == []


async def test_nobody_waits_long_for_a_name(monkeypatch):
    over = threading.Event()
    monkeypatch.setattr(http_targets, "LOOK_SECONDS_MAX", 0.01)
    names = TargetNames(allow_private=False, resolve=lambda *_, **__: over.wait(30) and [])
    assert await found(names, url="http://slow.example/") == []
    over.set()
