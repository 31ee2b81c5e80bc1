"""Access tokens by OAuth 2 client credentials (RFC 6749, section 4.4), kept until they end.

All runs with the same credentials share one token, and ask for it once. The token's server passes the same checks as
any target.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import aiohttp
import msgspec
from yarl import URL

from hourhand.job_kinds.http_network import Network, Road, Tls, basic_auth
from hourhand.job_kinds.http_payload import header_value_is_bad

TOKENS_MAX: Final = 1000
"""Tokens kept at once; those used least recently go first."""
_ANSWER_BYTES_MAX: Final = 64 * 1024
_LIFE_SECONDS_DEFAULT: Final = 300.0
_REFUSED_SECONDS: Final = 1.0
_EARLY_SECONDS: Final = 30.0
"""So long before its end a token is not used any more: the call takes time too."""


class TokenRefused(Exception):
    """The token's server gave none. The message names neither secret nor token."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """Without a status its server could not be reached."""
        super().__init__(f"no access token: {message}")
        self.message = message
        self.status = status
        self.retryable = status is None or status >= 500 or status in (408, 425, 429)


@dataclass(slots=True)
class _Kept:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    token: str | None = None
    good_until: float = 0.0
    refused: TokenRefused | None = None
    refused_until: float = 0.0


class Tokens:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    async def token(
        self, namespace: str, oauth: Mapping[str, Any], road: Road, tls: Tls, idle: float, spent: str | None = None
    ) -> str:
        """A token that is good now; not `spent`, which was refused. Raises TokenRefused."""
        kept = self._entry(namespace, oauth)
        async with kept.lock:  # one asks, the others wait for what it is given
            now = asyncio.get_running_loop().time()
            if kept.token is None or kept.token == spent or now >= kept.good_until:
                if kept.refused is not None and now < kept.refused_until:
                    raise TokenRefused(kept.refused.message, kept.refused.status)
                kept.token = None
                kept.token, life = await self._try(kept, oauth, road, tls, idle)
                kept.good_until = now + max(life - _EARLY_SECONDS, life / 2)
            return kept.token

    async def _try(self, kept: _Kept, oauth: Mapping[str, Any], road: Road, tls: Tls, idle: float) -> tuple[str, float]:
        """A refusal is good for a moment, for all who wait: a server that is down is not asked once for each."""
        try:
            return await self._ask(oauth, road, tls, idle)
        except TokenRefused as refused:
            kept.refused = refused
            raise
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            kept.refused = TokenRefused(f"its server cannot be reached ({type(error).__name__}: {error})")
            raise kept.refused from None
        finally:
            kept.refused_until = asyncio.get_running_loop().time() + _REFUSED_SECONDS

    def _entry(self, namespace: str, oauth: Mapping[str, Any]) -> _Kept:
        said = (namespace, *(oauth.get(field) for field in ("token_url", "client_id", "client_secret", "scope")))
        mark = hashlib.sha256(repr(said).encode("utf-8", "replace")).digest()
        kept = self._kept.setdefault(mark, _Kept())
        self._kept.move_to_end(mark)
        while len(self._kept) > TOKENS_MAX:
            self._kept.popitem(last=False)
        return kept

    async def _ask(self, oauth: Mapping[str, Any], road: Road, tls: Tls, idle: float) -> tuple[str, float]:
        secret = oauth["client_secret"]
        form = {"grant_type": "client_credentials"}
        if "scope" in oauth:
            form["scope"] = oauth["scope"]
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if oauth.get("client_auth", "basic") == "basic":
            # Both are encoded as in a form before they are joined: section 2.3.1.
            headers["Authorization"] = basic_auth(quote_plus(oauth["client_id"]), quote_plus(secret))
        else:
            form |= {"client_id": oauth["client_id"], "client_secret": secret}
        data = urlencode(form).encode()
        request = await self._network.request("POST", URL(oauth["token_url"]), headers, data, road, tls, idle)
        async with request as response:
            body = await response.content.read(_ANSWER_BYTES_MAX)
            while not response.content.at_eof() and len(body) < _ANSWER_BYTES_MAX:
                body += await response.content.read(_ANSWER_BYTES_MAX - len(body))
            return _read(response.status, body)


def _read(status: int, body: bytes) -> tuple[str, float]:
    try:
        answer = msgspec.json.decode(body)
    except ValueError:
        answer = None
    if not isinstance(answer, Mapping):
        answer = {}
    if status != 200:
        error = answer.get("error")
        said = f" ({error[:100]})" if isinstance(error, str) and error.isprintable() else ""
        raise TokenRefused(f"its server answered {status}{said}", status)
    token = answer.get("access_token")
    if not isinstance(token, str) or not token or header_value_is_bad(token):
        raise TokenRefused("the answer of its server has none", status)
    if str(answer.get("token_type", "bearer")).lower() != "bearer":
        raise TokenRefused("its server gives another sort than bearer", status)
    life = answer.get("expires_in")
    if isinstance(life, bool) or not isinstance(life, int | float) or not life > 0:
        life = _LIFE_SECONDS_DEFAULT
    return token, float(min(life, 86_400))
