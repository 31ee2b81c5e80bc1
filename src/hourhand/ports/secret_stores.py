"""Secrets and the audit, as operations and executors need them kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from msgspec import UnsetType

from hourhand.model.secrets import Grant, Sealed, SecretPlace


@dataclass(frozen=True, slots=True)
class SecretRow:
    """All but the value."""

    name: str
    version: int
    description: str
    grant: Grant
    created_at: datetime
    updated_at: datetime
    updated_by: str
    jobs: int
    """How many jobs refer to it."""
    last_used_at: datetime | None
    last_used_run: UUID | None


@dataclass(frozen=True, slots=True)
class WantedSecret:
    run_id: UUID
    fence: int
    name: str


@dataclass(frozen=True, slots=True)
class UsedSecret:
    """What an executor gets for an attempt in its hands."""

    run_id: UUID
    fence: int
    place: SecretPlace
    value: Sealed | None
    """None: there is no such secret, or the job may not use it."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    audit_id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: Mapping[str, Any]


class SecretGrants(Protocol):
    async def find_grants(self, namespace_id: int, names: Sequence[str]) -> dict[str, Grant]:
        """Of those of the secrets that exist."""


class SecretStore(SecretGrants, Protocol):
    async def list(self, namespace_id: int, after: str | None, limit: int) -> Sequence[SecretRow]:
        """By name, those behind `after`."""

    async def get(self, namespace_id: int, name: str) -> SecretRow | None: ...

    async def version(self, namespace_id: int, name: str) -> int:
        """0 where there is none."""

    async def put(
        self, place: SecretPlace, sealed: Sealed, description: str | None, grant: Grant | UnsetType, changed_by: str
    ) -> bool:
        """Stores a value as the version after the current one, and that somebody did. False, and nothing is changed,
        when somebody else was quicker. None or UNSET leave what is there."""

    async def change(
        self, namespace_id: int, name: str, description: str | None, grant: Grant | UnsetType, changed_by: str
    ) -> bool:
        """All but the value. False where there is no such secret."""

    async def delete(self, namespace_id: int, name: str, force: bool, changed_by: str) -> Sequence[str] | None:
        """Empty when it is gone; else some of the jobs that refer to it and may still run. None: there is none."""

    async def key_ids(self) -> set[str]:
        """The master keys that values are sealed by."""

    async def wrapped_by_others(self, key_id: str, limit: int) -> Sequence[tuple[SecretPlace, Sealed]]:
        """Values whose keys are sealed by another master key than this. Without the values themselves."""

    async def put_wrapped(self, rewrapped: Sequence[tuple[SecretPlace, Sealed]]) -> int:
        """The same keys under another master key, each if its value is still the same; how many."""


class SecretUses(Protocol):
    async def use_secrets(self, executor_id: int, wanted: Sequence[WantedSecret]) -> Sequence[UsedSecret]:
        """Values for attempts that this executor holds now, by its lease and their fences; each one is put into the
        audit. What it does not hold is not in the answer."""


class AuditStore(Protocol):
    async def list_audit(
        self, namespace_id: int, before: int | None, limit: int, filters: Mapping[str, Any]
    ) -> Sequence[AuditEntry]:
        """The newest first, those before `before`."""

    async def append_audit(
        self, namespace_id: int | None, actor: str, action: str, subject: str, details: Mapping[str, Any]
    ) -> None: ...
