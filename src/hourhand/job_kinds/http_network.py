"""The way to the network for HTTP jobs: every address is checked before it is connected to.

Names are resolved by our own resolver, all their addresses are judged, and the connection goes to one of exactly
these. Each socket is judged once more by the address it is about to connect to, which covers addresses spelled out in
a URL and any way around the resolver. Behind a proxy the same is done with the target: the proxy is given the address
that was judged, and not a name that it might read otherwise.
"""

import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from hourhand.job_kinds.addresses import TargetBlocked, blocked_because, host_blocked_because, literal_address
from hourhand.job_kinds.http import HttpSettings

Tls = SSLContext | bool
"""A context, or True for what everybody trusts, or False where nothing is checked."""


@dataclass(frozen=True, slots=True)
class Road:
    """How the servers of a call are reached."""

    session: aiohttp.ClientSession
    proxy: URL | None = None
    proxy_headers: Mapping[str, str] = field(default_factory=dict)
    names_by_proxy: bool = False
    """The proxy resolves names, and nobody here can say to what."""


class Network:
    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._resolver = _CheckedResolver(settings.allow_private)
        self._timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=settings.connect_seconds_max, sock_read=settings.idle_seconds_max
        )
        self._checked = self._session(
            aiohttp.TCPConnector(
                resolver=self._resolver,
                socket_factory=self._checked_socket,
                use_dns_cache=False,
                limit=0,  # the executor's slots are the limit
            )
        )
        self._direct = Road(self._checked)
        self._by_operator = self._operators_road(settings)

    async def close(self) -> None:
        for road in (self._direct, self._by_operator):
            if road is not None:
                await road.session.close()

    def road(self, payload: Mapping[str, Any]) -> Road:
        """The proxy that a job names comes first, and is judged like any target; then the operator's, which is not."""
        proxy = payload.get("proxy")
        if proxy is None:
            return self._by_operator or self._direct
        if isinstance(proxy, str):
            proxy = {"url": proxy}
        url = URL(proxy["url"])
        headers = _headers_in(url)
        if "username" in proxy:
            headers = {"Proxy-Authorization": basic_auth(proxy["username"], proxy.get("password", ""))}
        return Road(self._checked, url.with_user(None), headers)

    def judge(self, url: URL) -> None:
        """Refuses what its own text shows to be no target. Names are judged when they are resolved."""
        if url.scheme not in ("http", "https"):
            raise TargetBlocked(str(url.scheme) + ":", "not a scheme that jobs may use")
        host = url.raw_host or ""
        why = host_blocked_because(host, self._settings.allow_private)
        if why is not None:
            raise TargetBlocked(host, why)

    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], data: bytes | None, road: Road, tls: Tls, idle: float
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """One request and no more: redirects are the caller's to judge and to follow."""
        if road.proxy is None:
            return self.direct_request(method, url, headers, data, road, tls, idle)
        self.judge(url)
        more: dict[str, Any] = {"proxy": road.proxy}
        if url.scheme == "https":  # the proxy sees what opens the tunnel, and no more
            more["proxy_headers"] = road.proxy_headers
        else:
            headers = {**headers, **road.proxy_headers}
        if not road.names_by_proxy and literal_address(url.raw_host or "") is None:
            headers = {**headers, "Host": url.host_port_subcomponent or ""}
            more["server_hostname"] = url.raw_host
            url = await self._pinned(url)
        return self._sent(method, url, headers, data, road, tls, idle, more)

    def direct_request(
        self, method: str, url: URL, headers: Mapping[str, str], data: bytes | None, road: Road, tls: Tls, idle: float
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The same for a road without a proxy, on which there is nothing to wait for first."""
        assert road.proxy is None
        self.judge(url)
        return self._sent(method, url, headers, data, road, tls, idle, {})

    def _sent(
        self, method: str, url: URL, headers: Mapping[str, str], data: bytes | None, road: Road, tls: Tls, idle: float,
        more: dict[str, Any],
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:  # fmt: skip
        if idle != self._settings.idle_seconds_max:
            more["timeout"] = aiohttp.ClientTimeout(
                total=None, sock_connect=self._settings.connect_seconds_max, sock_read=idle
            )
        return road.session.request(method, url, headers=headers, data=data, ssl=tls, allow_redirects=False, **more)

    async def _pinned(self, url: URL) -> URL:
        """The same with an address that was judged in the place of its name."""
        found = await self._resolver.resolve(url.raw_host or "", url.port or 0)
        return url.with_host(found[0]["host"])

    def _operators_road(self, settings: HttpSettings) -> Road | None:
        """Its session connects to the proxy only, wherever that is: whoever configures it may have it anywhere."""
        if settings.proxy is None:
            return None
        url = URL(settings.proxy)
        session = self._session(aiohttp.TCPConnector(limit=0))
        return Road(session, url.with_user(None), _headers_in(url), settings.proxy_resolves_names)

    def _session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),  # runs must not see each other's cookies
            auto_decompress=False,  # a small answer could become a huge one
            trust_env=False,
        )

    def _checked_socket(self, info: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, target = info
        _judge(str(target[0]), str(target[0]), self._settings.allow_private)
        return socket.socket(family, kind, protocol)


class _CheckedResolver(AbstractResolver):
    def __init__(self, allow_private: bool) -> None:
        self._resolver = ThreadedResolver()
        self._allow_private = allow_private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """All addresses of a name. One that is blocked blocks the name: nobody has honest use for a mixture."""
        found = await self._resolver.resolve(host, port, family)
        for result in found:
            _judge(host, result["host"], self._allow_private)
        return found

    async def close(self) -> None:
        await self._resolver.close()


def _judge(host: str, address: str, allow_private: bool) -> None:
    why = blocked_because(ip_address(address), allow_private)
    if why is not None:
        raise TargetBlocked(host, why)


def basic_auth(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _headers_in(url: URL) -> Mapping[str, str]:
    """What a proxy's address says about who we are."""
    return {} if url.user is None else {"Proxy-Authorization": basic_auth(url.user, url.password or "")}
