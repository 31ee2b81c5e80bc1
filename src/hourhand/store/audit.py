"""The audit: who has done what. Only ever added to."""

from collections.abc import Mapping, Sequence
from typing import Any

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.ports.secret_stores import AuditEntry
from hourhand.store.jsons import from_json, to_json

_FILTERS = ("subject", "action", "actor", "run_id", "since")


class Audit:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "audit.sql", database.schema)

    async def list_audit(
        self, namespace_id: int, before: int | None, limit: int, filters: Mapping[str, Any]
    ) -> Sequence[AuditEntry]:
        rows = await self._database.fetch(
            self._queries["list_audit"],
            namespace_id=namespace_id,
            before=before,
            limit=limit,
            **{name: filters.get(name) for name in _FILTERS},
        )
        return [
            AuditEntry(
                row["audit_id"], row["at"], row["actor"], row["action"], row["subject"], from_json(row["details"])
            )
            for row in rows
        ]

    async def append_audit(
        self, namespace_id: int | None, actor: str, action: str, subject: str, details: Mapping[str, Any]
    ) -> None:
        await self._database.fetch(
            self._queries["append_audit"],
            namespace_id=namespace_id,
            actor=actor,
            action=action,
            subject=subject,
            details=to_json(details),
        )
