"""Questions about secrets and the audit. Values are sent, never asked for."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.client.calls import BASE, Call, params, reader, segment, sending

# --- views ------------------------------------------------------------------------------------------------


class GrantView(msgspec.Struct, kw_only=True):
    jobs: list[str] | None = None
    labels: dict[str, str] | None = None
    kinds: list[str] | None = None


class SecretView(msgspec.Struct, kw_only=True):
    """All that is told of a secret; not its value."""

    name: str
    description: str = ""
    version: int = 1
    grant: GrantView | None = None
    jobs: int = 0
    created_at: datetime | None = None
    updated_at: datetime | None = None
    updated_by: str = ""
    last_used_at: datetime | None = None
    last_used_run: UUID | None = None
    warnings: list[str] = []


class AuditView(msgspec.Struct, kw_only=True):
    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any] = {}


class _Secrets(msgspec.Struct):
    secrets: list[SecretView]


class _Audit(msgspec.Struct):
    entries: list[AuditView]


# --- calls ------------------------------------------------------------------------------------------------

Grant = Mapping[str, Any] | UnsetType | None
"""`jobs`, `labels`, `kinds`; None for every job; UNSET leaves it as it is."""

_secrets: Final = reader(_Secrets)
_secret: Final = reader(SecretView)
_audit: Final = reader(_Audit)


def secrets(after: str | None, limit: int) -> Call[list[SecretView]]:
    return Call("GET", f"{BASE}/secrets", lambda body: _secrets(body).secrets, params({"after": after, "limit": limit}))


def get_secret(name: str) -> Call[SecretView]:
    return Call("GET", _path(name), _secret)


def put_secret(name: str, value: str | bytes, description: str | None, grant: Grant) -> Call[SecretView]:
    given: dict[str, Any] = (
        {"value": value} if isinstance(value, str) else {"value_base64": base64.b64encode(value).decode()}
    )
    return sending("PUT", _path(name), _secret, given | _facts(description, grant))


def change_secret(name: str, description: str | None, grant: Grant) -> Call[SecretView]:
    return sending("PATCH", _path(name), _secret, _facts(description, grant))


def delete_secret(name: str, force: bool) -> Call[None]:
    return Call("DELETE", _path(name), lambda body: None, params({"force": True} if force else {}))


def audit(filters: Mapping[str, Any]) -> Call[list[AuditView]]:
    return Call("GET", f"{BASE}/audit", lambda body: _audit(body).entries, params(filters))


def _facts(description: str | None, grant: Grant) -> dict[str, Any]:
    facts: dict[str, Any] = {} if description is None else {"description": description}
    return facts if grant is UNSET else {**facts, "grant": grant}


def _path(name: str) -> str:
    return f"{BASE}/secrets/{segment(name)}"


# --- methods of the clients -------------------------------------------------------------------------------

T = TypeVar("T")


class SecretMethods:
    """What `Client` can ask of secrets and the audit."""

    def send(self, call: Call[T]) -> T:
        raise NotImplementedError

    def secrets(self, after: str | None = None, limit: int = 500) -> list[SecretView]:
        """Those of the namespace, by name, behind `after`. Nobody is told their values."""
        return self.send(secrets(after, limit))

    def get_secret(self, name: str) -> SecretView:
        return self.send(get_secret(name))

    def put_secret(
        self, name: str, value: str | bytes, *, description: str | None = None, grant: Grant = UNSET
    ) -> SecretView:
        """Writes a value; attempts that start from now on get it."""
        return self.send(put_secret(name, value, description, grant))

    def change_secret(self, name: str, *, description: str | None = None, grant: Grant = UNSET) -> SecretView:
        """All but the value. A grant of None lets every job of the namespace use it."""
        return self.send(change_secret(name, description, grant))

    def delete_secret(self, name: str, *, force: bool = False) -> None:
        """Refused while jobs refer to it, unless forced."""
        self.send(delete_secret(name, force))

    def audit(self, **filters: Any) -> list[AuditView]:
        """Who has done what, the newest first: `subject`, `action`, `actor`, `run_id`, `since`, `before`, `limit`."""
        return self.send(audit(filters))


class AsyncSecretMethods:
    """The same for `AsyncClient`."""

    async def send(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def secrets(self, after: str | None = None, limit: int = 500) -> list[SecretView]:
        """Those of the namespace, by name, behind `after`. Nobody is told their values."""
        return await self.send(secrets(after, limit))

    async def get_secret(self, name: str) -> SecretView:
        return await self.send(get_secret(name))

    async def put_secret(
        self, name: str, value: str | bytes, *, description: str | None = None, grant: Grant = UNSET
    ) -> SecretView:
        """Writes a value; attempts that start from now on get it."""
        return await self.send(put_secret(name, value, description, grant))

    async def change_secret(self, name: str, *, description: str | None = None, grant: Grant = UNSET) -> SecretView:
        """All but the value. A grant of None lets every job of the namespace use it."""
        return await self.send(change_secret(name, description, grant))

    async def delete_secret(self, name: str, *, force: bool = False) -> None:
        """Refused while jobs refer to it, unless forced."""
        await self.send(delete_secret(name, force))

    async def audit(self, **filters: Any) -> list[AuditView]:
        """Who has done what, the newest first: `subject`, `action`, `actor`, `run_id`, `since`, `before`, `limit`."""
        return await self.send(audit(filters))
