"""Proxies of HTTP jobs: they carry calls, and open no way around the checks."""

import base64

import pytest
from aiohttp.resolver import ThreadedResolver
from http_servers import Authority, Proxy, Site, fine

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.outcome import Succeeded
from hourhand.model.states import Reason


@pytest.fixture
async def open_kind():
    kinds = []

    async def open_with(**settings):
        kind = HttpKind(HttpSettings(**settings))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


@pytest.fixture
def names(monkeypatch):
    """What our own resolver says: name → address."""
    known = {}

    async def resolve(self, host, port=0, family=0):
        if host not in known:
            raise OSError(f"{host} is not known")
        return [{"hostname": host, "host": known[host], "port": port, "family": 2, "proto": 0, "flags": 0}]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)
    return known


async def test_all_calls_go_through_the_operators_proxy(open_kind, make_task):
    async with Site(fine) as site, Proxy() as proxy:
        kind = await open_kind(allow_private=True, proxy=proxy.url.replace("http://", "http://me:secret@"))
        assert isinstance(await kind.run(make_task({"url": f"{site.url}/a"}).task), Succeeded)
    assert proxy.asked == [("GET", f"{site.url}/a")]
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:secret').decode()}" in proxy.heads[0]


async def test_a_proxy_is_given_the_address_that_was_judged_and_not_the_name(open_kind, make_task, names):
    names["site.example"] = "127.0.0.1"
    async with Site(fine) as site, Proxy({"site.example": "192.0.2.1"}) as proxy:
        kind = await open_kind(allow_private=True, proxy=proxy.url)
        assert isinstance(await kind.run(make_task({"url": f"http://site.example:{site.port}/a"}).task), Succeeded)
    assert proxy.asked == [("GET", f"http://127.0.0.1:{site.port}/a")]
    assert site.requests[0].headers["Host"] == f"site.example:{site.port}"


async def test_tls_through_a_proxy_is_checked_by_the_name(open_kind, make_task, names, tmp_path):
    ours = Authority(tmp_path / "ca", "ours")
    names["site.example"] = names["other.example"] = "127.0.0.1"
    async with Site(fine, ours.server_side("DNS:site.example")) as site, Proxy() as proxy:
        kind = await open_kind(allow_private=True, proxy=proxy.url)
        tls = {"ca": ours.pem}
        good = await kind.run(make_task({"url": f"https://site.example:{site.port}/a", "tls": tls}).task)
        assert isinstance(good, Succeeded)
        # The same address by another name: the open connection must not be used for it.
        bad = await kind.run(make_task({"url": f"https://other.example:{site.port}/a", "tls": tls}).task)
        assert bad.reason is Reason.CONNECTION
    assert set(proxy.asked) == {("CONNECT", f"127.0.0.1:{site.port}")}
    assert len(site.requests) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "2852039166", "inside.example"])
async def test_a_proxy_is_no_way_around_the_checks(open_kind, make_task, names, host):
    names["inside.example"] = "10.0.0.1"
    async with Site(fine) as site, Proxy({"inside.example": "127.0.0.1"}) as proxy:
        kind = await open_kind(proxy=proxy.url)
        outcome = await kind.run(make_task({"url": f"http://{host}:{site.port}/"}).task)
        assert outcome.reason is Reason.TARGET_BLOCKED
    assert proxy.asked == []
    assert site.requests == []


async def test_a_proxy_that_resolves_names_is_given_names_but_no_blocked_addresses(open_kind, make_task, names):
    async with Site(fine) as site, Proxy({"inside.example": "127.0.0.1"}) as proxy:
        kind = await open_kind(proxy=proxy.url, proxy_resolves_names=True)
        assert isinstance(await kind.run(make_task({"url": f"http://inside.example:{site.port}/"}).task), Succeeded)
        for host in ("127.0.0.1", "localhost", "169.254.169.254"):
            outcome = await kind.run(make_task({"url": f"http://{host}:{site.port}/"}).task)
            assert outcome.reason is Reason.TARGET_BLOCKED
    assert proxy.asked == [("GET", f"http://inside.example:{site.port}/")]


async def test_a_job_may_name_a_proxy_only_where_that_is_granted(open_kind, make_task):
    async with Site(fine) as site, Proxy() as proxy:
        chosen = {"url": proxy.url, "username": "me", "password": {"secret": "p"}}
        task = make_task({"url": f"{site.url}/a", "proxy": chosen}).task
        task.secrets = {"p": "hush"}
        refused = await (await open_kind(allow_private=True)).run(task)
        assert (refused.reason, refused.retryable) == (Reason.BAD_ARGUMENTS, False)
        assert proxy.asked == []
        kind = await open_kind(allow_private=True, allow_job_proxies=True)
        assert isinstance(await kind.run(task), Succeeded)
    assert proxy.asked == [("GET", f"{site.url}/a")]
    assert f"Basic {base64.b64encode(b'me:hush').decode()}" in proxy.heads[0]


async def test_a_proxy_of_a_job_is_judged_like_a_target(open_kind, make_task, names):
    names["proxy.example"] = "127.0.0.1"
    async with Proxy() as proxy:
        kind = await open_kind(allow_job_proxies=True)
        names["site.example"] = "192.0.2.1"
        for url in (proxy.url, f"http://proxy.example:{proxy.port}"):
            outcome = await kind.run(make_task({"url": "http://8.8.8.8/", "proxy": url}).task)
            assert outcome.reason is Reason.TARGET_BLOCKED
    assert proxy.asked == []
