"""The servers that a URL names, and which of them is asked first.

A URL may name several (`postgresql://a:5432,b:5432/x`), of which one takes writes. Each is tried within its own share
of the time, because one that has died without a word would otherwise use up the time of all; and one that did not
answer is tried last the next time, so that only the first connection after a fail-over has to wait.
"""

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

CONNECTION_FAULTS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InternalClientError,
)
"""What a caller meets while the database is away, is replaced, or has just come back. All mean: try again later."""


# By hand, because Python's own reader refuses a bracketed address among several hosts, in some versions.
_IN_FRONT: Final = re.compile(r"([a-z]+://(?:[^/?#]*@)?)(?P<hosts>[^/?#@]*)(.*)", re.DOTALL)


class Servers:
    def __init__(self, url: str, *, seconds_max: float, writable: bool) -> None:
        """`writable`: only a server that takes writes will do, unless the URL itself asks for another sort."""
        self._urls = servers_of(url)
        self._share_seconds = seconds_max / len(self._urls)
        self._wanted = {"target_session_attrs": "read-write"} if writable and "target_session_attrs" not in url else {}

    async def connect(self, *_: Any, **how: Any) -> Connection:
        """A new connection to the first server that will do. Raises what the last one said if there is none."""
        said: BaseException | None = None
        for url in list(self._urls):
            try:
                return await asyncpg.connect(url, **{**how, **self._wanted, "timeout": self._share_seconds})
            except CONNECTION_FAULTS as fault:
                if isinstance(fault, ValueError):  # a URL that cannot be read will not become readable
                    raise
                said = fault
                self._put_last(url)
            except BaseException:  # given up in the middle, perhaps because this server does not answer
                self._put_last(url)
                raise
        assert said is not None
        if isinstance(said, asyncpg.TargetServerAttributeNotMatched):
            raise asyncpg.InterfaceError("no server that the URL names takes writes") from said
        raise said

    def _put_last(self, url: str) -> None:
        if url == self._urls[0]:
            self._urls.append(self._urls.pop(0))


def servers_of(url: str) -> list[str]:
    """One URL for each server that the given one names."""
    named_in_front = _IN_FRONT.fullmatch(url)
    if named_in_front is not None and "," in named_in_front["hosts"]:
        before, hosts, after = named_in_front.groups()
        return [f"{before}{host}{after}" for host in hosts.split(",")]
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:  # the driver says better what is wrong with it
        return [url]
    named = dict(query)
    named_hosts, ports = named.get("host", "").split(","), named.get("port", "").split(",")
    if len(named_hosts) == 1:
        return [url]
    return [
        urlunsplit(parts._replace(query=_with(query, host, ports[place] if place < len(ports) else ports[-1])))
        for place, host in enumerate(named_hosts)
    ]


def _with(query: list[tuple[str, str]], host: str, port: str) -> str:
    chosen = [(name, {"host": host, "port": port}.get(name, value)) for name, value in query]
    return urlencode(chosen, quote_via=quote, safe="/")
