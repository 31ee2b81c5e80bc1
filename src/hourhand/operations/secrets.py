"""What a caller may ask of secrets: write, see what is known of them, grant, delete. Never the value."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from hourhand.model.errors import Conflict, Fault, InvalidFields, InvalidParameter, NotFound
from hourhand.model.secret_forms import VALUE_CHARS_MIN
from hourhand.model.secret_refs import SECRET_NAME, SECRET_NAME_RULE
from hourhand.model.secrets import EVERY_JOB, VALUE_BYTES_MAX, Grant, Sealed, SecretPlace
from hourhand.operations.requests import Caller
from hourhand.ports.secret_stores import AuditEntry, AuditStore, SecretRow, SecretStore

_TRIES_MAX: Final = 20
_DESCRIPTION_CHARS_MAX: Final = 1000
_GRANT_ENTRIES_MAX: Final = 100
_GRANT_CHARS_MAX: Final = 256


class GrantRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which jobs may use a secret: those that fit all that is given. Nothing given, or null: every job."""

    jobs: list[str] | None = None
    """Names or ids of jobs."""
    labels: dict[str, str] | None = None
    """A job needs all of them."""
    kinds: list[str] | None = None


class SecretRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A value, as text or as bytes, and what is to be known of it. What is left out stays as it is."""

    value: str | None = None
    value_base64: str | None = None
    description: str | None = None
    grant: GrantRequest | UnsetType | None = UNSET

    def __repr__(self) -> str:  # the value must not get into a message by way of its request
        return "SecretRequest(…)"


class SecretPatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All but the value."""

    description: str | None = None
    grant: GrantRequest | UnsetType | None = UNSET


class GrantView(msgspec.Struct, kw_only=True, omit_defaults=True):
    jobs: list[str] | None = None
    labels: dict[str, str] | None = None
    kinds: list[str] | None = None


class SecretView(msgspec.Struct, kw_only=True):
    """All that anybody is told of a secret."""

    name: str
    description: str
    version: int
    grant: GrantView | None
    """None: every job of the namespace may use it."""
    jobs: int
    """How many jobs refer to it."""
    created_at: datetime
    updated_at: datetime
    """When the value was written."""
    updated_by: str
    last_used_at: datetime | None
    last_used_run: UUID | None
    warnings: "list[str]" = []


class AuditView(msgspec.Struct, kw_only=True):
    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


class Seals(Protocol):
    """Whoever holds the key."""

    def seal(self, value: bytes, place: SecretPlace) -> Sealed:
        """Raises SecretsUnavailable where there is no key."""


Views = list[SecretView]  # inside a class with a method `list`, that word is the method
Faults = list[Fault]


class SecretOperations:
    def __init__(self, store: SecretStore, seals: Seals, audit: AuditStore) -> None:
        self._store = store
        self._seals = seals
        self._audit = audit

    async def list(self, caller: Caller, after: str | None, limit: int) -> Views:
        return [_view(row) for row in await self._store.list(caller.namespace_id, after, limit)]

    async def get(self, caller: Caller, name: str) -> SecretView:
        row = await self._store.get(caller.namespace_id, _checked(name))
        if row is None:
            raise NotFound("secret", name)
        return _view(row)

    async def put(self, caller: Caller, name: str, request: SecretRequest) -> SecretView:
        """Writes a value: attempts that start from now on get it. The one before is gone."""
        _checked(name)
        value, faults = _read_value(request)
        grant = _read_grant(request.grant, faults)
        _check_description(request.description, faults)
        if faults:
            raise InvalidFields(faults)
        for _ in range(_TRIES_MAX):
            version = await self._store.version(caller.namespace_id, name) + 1
            place = SecretPlace(caller.namespace_id, name, version)
            sealed = self._seals.seal(value, place)
            if await self._store.put(place, sealed, request.description, grant, caller.name):
                return msgspec.structs.replace(await self.get(caller, name), warnings=_warnings(value))
        raise Conflict("busy", "the secret is being written by others again and again; try once more")

    def faults_of_put(self, request: SecretRequest) -> Faults:
        """What `put` would refuse; nothing is stored. For requests with faults elsewhere, to tell all at once."""
        _, faults = _read_value(request)
        _read_grant(request.grant, faults)
        _check_description(request.description, faults)
        return faults

    async def change(self, caller: Caller, name: str, patch: SecretPatch) -> SecretView:
        """Changes all but the value. A grant counts from the next attempt on."""
        faults = self.faults_of_change(patch)
        if faults:
            raise InvalidFields(faults)
        grant = _read_grant(patch.grant, faults)
        if not await self._store.change(caller.namespace_id, _checked(name), patch.description, grant, caller.name):
            raise NotFound("secret", name)
        return await self.get(caller, name)

    def faults_of_change(self, patch: SecretPatch) -> Faults:
        faults: Faults = []
        _read_grant(patch.grant, faults)
        _check_description(patch.description, faults)
        return faults

    async def delete(self, caller: Caller, name: str, force: bool) -> None:
        """Refused while jobs that may still run refer to it, unless forced: their runs fail then."""
        using = await self._store.delete(caller.namespace_id, _checked(name), force, caller.name)
        if using is None:
            raise NotFound("secret", name)
        if using:
            message = f"jobs refer to the secret {name}: {', '.join(using)}; take it from them first, or force it"
            raise Conflict("secret-in-use", message)

    async def audit(
        self, caller: Caller, before: int | None, limit: int, filters: Mapping[str, Any]
    ) -> Sequence[AuditView]:
        entries = await self._audit.list_audit(caller.namespace_id, before, limit, filters)
        return [_audit_view(entry) for entry in entries]


def _read_value(request: SecretRequest) -> tuple[bytes, Faults]:
    """The value as bytes, and what is wrong with it. No message repeats any of it."""
    if (request.value is None) == (request.value_base64 is None):
        return b"", [Fault("/value", "required", "a secret has either value, a text, or value_base64, bytes")]
    if request.value is not None:
        pointer, value = "/value", request.value.encode("utf-8", "surrogatepass")
    else:
        pointer = "/value_base64"
        try:
            value = base64.b64decode(request.value_base64 or "", validate=True)
        except (binascii.Error, ValueError):
            return b"", [Fault(pointer, "invalid-value", "is no base64")]
    if not value:
        return b"", [Fault(pointer, "invalid-value", "is empty: a secret has at least one byte")]
    if len(value) > VALUE_BYTES_MAX:
        return b"", [Fault(pointer, "secret-too-large", f"has more than {VALUE_BYTES_MAX} bytes")]
    return value, []


def _read_grant(given: GrantRequest | UnsetType | None, faults: Faults) -> Grant | UnsetType:
    if isinstance(given, UnsetType):
        return UNSET
    if given is None:
        return EVERY_JOB
    for field in ("jobs", "kinds"):
        _check_entries(f"/grant/{field}", getattr(given, field), faults)
    _check_entries("/grant/labels", [*(given.labels or {}), *(given.labels or {}).values()], faults)
    return Grant(
        tuple(given.jobs) if given.jobs is not None else None,
        given.labels or None,
        tuple(given.kinds) if given.kinds is not None else None,
    )


def _check_entries(pointer: str, entries: Sequence[str] | None, faults: Faults) -> None:
    if entries is None:
        return
    if len(entries) > _GRANT_ENTRIES_MAX:
        faults.append(Fault(pointer, "too-many-entries", f"at most {_GRANT_ENTRIES_MAX} entries"))
    elif any(len(entry) > _GRANT_CHARS_MAX or "\0" in entry for entry in entries):
        faults.append(Fault(pointer, "invalid-text", f"an entry has at most {_GRANT_CHARS_MAX} characters, and no NUL"))


def _check_description(text: str | None, faults: Faults) -> None:
    if text is not None and (len(text) > _DESCRIPTION_CHARS_MAX or "\0" in text):
        message = f"a description has at most {_DESCRIPTION_CHARS_MAX} characters, and no NUL"
        faults.append(Fault("/description", "invalid-text", message))


def _warnings(value: bytes) -> "list[str]":
    if len(value.decode("utf-8", "replace").strip()) < VALUE_CHARS_MIN:
        return [f"a value of fewer than {VALUE_CHARS_MIN} characters is not masked in logs, results and errors"]
    return []


def _view(row: SecretRow) -> SecretView:
    grant = None if row.grant == EVERY_JOB else GrantView(**msgspec.to_builtins(row.grant))
    return SecretView(
        name=row.name,
        description=row.description,
        version=row.version,
        grant=grant,
        jobs=row.jobs,
        created_at=row.created_at,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        last_used_at=row.last_used_at,
        last_used_run=row.last_used_run,
    )


def _audit_view(entry: AuditEntry) -> AuditView:
    return AuditView(
        id=entry.audit_id,
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        subject=entry.subject,
        details=dict(entry.details),
    )


def _checked(name: str) -> str:
    if not SECRET_NAME.fullmatch(name):
        raise InvalidParameter("name", f"{name[:70]!r} is no name: {SECRET_NAME_RULE}", "invalid-id")
    return name
