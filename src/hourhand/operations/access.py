"""Who may ask: tokens, sessions, login links. Only digests are stored; a token is shown once."""

import hashlib
import secrets
from typing import Final
from uuid import UUID, uuid4

from hourhand.model.errors import Forbidden, NotFound, Unauthenticated
from hourhand.operations.requests import Caller
from hourhand.ports.stores import NameStore, TokenStore

TOKEN_PREFIX: Final = "hh_"  # noqa: S105 - lets scanners recognise a token, and is none
SESSION_SECONDS: Final = 12 * 3600
LOGIN_LINK_SECONDS: Final = 3600
NAMESPACE_DEFAULT: Final = "default"


class Access:
    def __init__(self, tokens: TokenStore, names: NameStore) -> None:
        self._tokens = tokens
        self._names = names

    async def authenticate(self, token: str, namespace: str | None) -> Caller:
        """The caller behind a token, in the namespace asked for."""
        row = await self._tokens.find_token(_digest(token)) if token.startswith(TOKEN_PREFIX) else None
        if row is None or row.purpose == "login":
            raise Unauthenticated
        wanted = namespace or row.namespace or NAMESPACE_DEFAULT
        if row.namespace is not None and wanted != row.namespace:
            raise Forbidden(f"this token is for namespace {row.namespace!r} only")
        namespace_id = await self._names.find_namespace(wanted)
        if namespace_id is None:
            raise NotFound("namespace", wanted)
        cluster_wide = row.namespace is None
        return Caller(row.name, namespace_id, wanted, row.token_id, row.purpose == "session", cluster_wide)

    async def login(self, code: str) -> tuple[str, int]:
        """Turns a one-time code into a session token and its lifetime in seconds."""
        if not await self._tokens.use_login_code(_digest(code)):
            raise Unauthenticated("this login link was used already, or is too old")
        return await self._new("admin", "session", SESSION_SECONDS), SESSION_SECONDS

    async def create_token(self, name: str, lifetime_seconds: float | None = None, namespace: str | None = None) -> str:
        """A new token, for one namespace or all of them. It cannot be shown again."""
        namespace_id = None
        if namespace is not None:
            namespace_id = await self._names.find_namespace(namespace)
            if namespace_id is None:
                raise NotFound("namespace", namespace)
        return await self._new(name, "api", lifetime_seconds, namespace_id)

    async def create_login_code(self) -> str:
        return await self._new("login link", "login", LOGIN_LINK_SECONDS)

    async def revoke(self, token_id: UUID) -> bool:
        return await self._tokens.revoke_token(token_id)

    async def _new(
        self, name: str, purpose: str, lifetime_seconds: float | None, namespace_id: int | None = None
    ) -> str:
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        await self._tokens.insert_token(uuid4(), name, _digest(token), purpose, lifetime_seconds, namespace_id)
        return token


def _digest(token: str) -> bytes:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(token.encode()).digest()
