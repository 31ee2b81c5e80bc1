"""Who asks: a bearer token, or the browser's session cookie with proof that our own page sent it.

A token's meaning is remembered for a few seconds under its digest, so that a busy caller costs no query per request
and a revoked token is dead soon. Tokens themselves are kept nowhere.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from hourhand.api.refusals import BadRequest, CsrfFailed, TooManyTries
from hourhand.api.settings import TOKEN_CACHE_SECONDS_MAX, ApiSettings
from hourhand.model.errors import Unauthenticated
from hourhand.operations.access import TOKEN_PREFIX, Access
from hourhand.operations.requests import Caller

SESSION_COOKIE: Final = "hourhand_session"
_TOKEN_CHARS_MAX: Final = 512
_TOKEN_PARAMETERS: Final = frozenset({"token", "access_token", "api_key", "apikey", "auth", "authorization", "bearer"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


# A struct, because one is made per request: see JobDefinition.
class Credentials(msgspec.Struct, frozen=True):
    token: str
    from_cookie: bool


def read_credentials(headers: Mapping[bytes, bytes], method: str, public_url: str | None) -> Credentials:
    """What the request brings to prove itself. Raises `Unauthenticated` or `CsrfFailed`."""
    authorization = headers.get(b"authorization")
    if authorization is not None:
        return Credentials(_bearer(authorization), from_cookie=False)
    token = _cookie(headers.get(b"cookie", b""))
    if token is None:
        raise Unauthenticated
    if method not in _SAFE_METHODS and not _from_own_page(headers, public_url):
        raise CsrfFailed
    return Credentials(token, from_cookie=True)


def refuse_token_in_url(query: bytes, path: str) -> None:
    """Addresses end up in logs and histories, so a token in one is refused even if it is right."""
    if not query:
        return
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in _TOKEN_PARAMETERS or (value.startswith(TOKEN_PREFIX) and path != "/login"):
            raise BadRequest(
                "token-in-url", "a token must not stand in the address; send it as 'Authorization: Bearer'"
            )


def _bearer(authorization: bytes) -> str:
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token or len(token) > _TOKEN_CHARS_MAX or not token.isascii():
        raise Unauthenticated
    return token


def _cookie(raw: bytes) -> str | None:
    for part in raw.decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == SESSION_COOKIE and value and len(value) <= _TOKEN_CHARS_MAX and value.isascii():
            return value
    return None


def _from_own_page(headers: Mapping[bytes, bytes], public_url: str | None) -> bool:
    """Browsers say where a request comes from and pages cannot forge it; a request that does not say is refused."""
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site")
    if site is not None and site != b"same-origin":
        return False
    if origin is None:
        return site is not None
    # Only host and port are compared: behind a proxy the scheme that we see is not the browser's.
    own = {headers.get(b"host", b"").decode("latin-1").lower()}
    if public_url is not None:
        own.add(urlsplit(public_url).netloc.lower())
    return urlsplit(origin.decode("latin-1").lower()).netloc in own


class Authenticator:
    """Turns credentials into callers, with a short memory."""

    def __init__(self, access: Access, settings: ApiSettings, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._seconds = min(settings.token_cache_seconds, TOKEN_CACHE_SECONDS_MAX)
        self._entries_max = settings.token_cache_max
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[bytes, str | None, bool], tuple[float, Caller]] = OrderedDict()

    def remembered(self, credentials: Credentials) -> tuple[float, Caller] | None:
        """The caller in its own namespace, and until when that may be relied upon; None where it has to be asked."""
        known = self._known.get(_key(credentials, None))
        return known if known is not None and known[0] > self._monotonic() else None

    async def authenticate(self, credentials: Credentials, namespace: str | None) -> Caller:
        key = _key(credentials, namespace)
        now = self._monotonic()
        known = self._known.get(key)
        if known is not None and known[0] > now:
            self._known.move_to_end(key)
            return known[1]
        self._known.pop(key, None)  # before the question: a refused token must not stay
        try:
            caller = await self._access.authenticate(credentials.token, namespace)
        except Unauthenticated:
            raise Unauthenticated from None  # unknown, expired and revoked look alike from outside
        if caller.session != credentials.from_cookie:
            caller = msgspec.structs.replace(caller, session=credentials.from_cookie)
        # Counted from before the question: the answer was already ageing while it travelled.
        self._known[key] = (now + self._seconds, caller)
        while len(self._known) > self._entries_max:
            self._known.popitem(last=False)
        return caller


def _key(credentials: Credentials, namespace: str | None) -> tuple[bytes, str | None, bool]:
    return hashlib.sha256(credentials.token.encode()).digest(), namespace, credentials.from_cookie


class LoginThrottle:
    """Counts wrong login codes per address; after too many in a minute the next tries wait."""

    _WINDOW_SECONDS: Final = 60.0
    _ADDRESSES_MAX: Final = 10_000

    def __init__(self, failures_max: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._failures_max = failures_max
        self._monotonic = monotonic
        self._failures: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raises `TooManyTries`."""
        recent = self._recent(address)
        if len(recent) >= self._failures_max:
            raise TooManyTries(max(1, round(recent[0] + self._WINDOW_SECONDS - self._monotonic())))

    def count_failure(self, address: str) -> None:
        self._failures[address] = [*self._recent(address), self._monotonic()]
        self._failures.move_to_end(address)
        while len(self._failures) > self._ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = self._monotonic() - self._WINDOW_SECONDS
        return [at for at in self._failures.get(address, ()) if at > since]
