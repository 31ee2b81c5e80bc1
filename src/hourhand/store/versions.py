"""The versions of jobs, read: the current one from the job itself, the others as they were kept."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.job import JobDefinition
from hourhand.model.policy import policy_from_json
from hourhand.model.retry import retry_from_json
from hourhand.model.schedule import At, Now, Timing, timing_from_json
from hourhand.model.versions import Version
from hourhand.store.job_definitions import version_of
from hourhand.store.job_rows import catchup_from_json
from hourhand.store.jsons import from_json, to_json


class Versions:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "versions.sql", database.schema)

    async def list_versions(self, namespace_id: int, job_id: UUID, before: int | None, limit: int) -> list[Version]:
        # The current one first: should it be replaced between the two looks, it is not missing in both.
        current = await self._database.fetch_one(
            self._queries["current_version"], namespace_id=namespace_id, job_id=job_id
        )
        if current is None:
            return []
        newest = current["version"]
        rows = await self._database.fetch(
            self._queries["list_versions"], job_id=job_id, before=min(before or newest, newest), limit=limit
        )
        entries = [{**dict(row), "definition": from_json(row["definition"])} for row in rows]
        if before is None or newest < before:
            entries.insert(0, version_of(current))
        return [_version(entry, current["created_at"]) for entry in entries[:limit]]

    async def get_version(self, namespace_id: int, job_id: UUID, version: int) -> Version | None:
        found = await self.list_versions(namespace_id, job_id, version + 1, 1)
        return found[0] if found and found[0].version == version else None


def _version(entry: Mapping[str, Any], created_at: datetime) -> Version:
    definition = _definition(entry["definition"], created_at)
    return Version(entry["version"], definition, entry["changed_at"], entry["changed_by"])


def _definition(kept: Mapping[str, Any], created_at: datetime) -> JobDefinition:
    if kept["timing"] is not None:
        timing = timing_from_json(kept["timing"])
    else:
        due_at = datetime.fromisoformat(kept["due_at"])
        timing = Timing((Now(due_at) if due_at == created_at else At(due_at),))
    return JobDefinition(
        name=kept["name"],
        kind=kept["kind"],
        payload=kept["payload"],
        timing=timing,
        needs="",
        queue=kept["queue"],
        priority=kept["priority"],
        retry=retry_from_json(kept["max_retries"], kept["retry"]),
        catchup=catchup_from_json(_text(kept["catchup"])),
        timeout_seconds=kept["timeout_seconds"],
        policy=policy_from_json(_text(kept.get("policy"))),
        labels=kept["labels"] or {},
        description=kept["description"] or "",
        owner=kept["owner"],
    )


def _text(value: Any) -> str | None:
    return None if value is None else to_json(value)
