"""A job's definition and its row, each from the other."""

from typing import Any

from hourhand.database.connections import Record
from hourhand.model.demands import need_of
from hourhand.model.job import JobDefinition
from hourhand.model.policy import policy_from_json, policy_to_json
from hourhand.model.retry import retry_from_json, retry_to_json
from hourhand.model.schedule import At, Now, Timing, timing_from_json
from hourhand.store.job_rows import catchup_from_json, catchup_to_json, timing_column
from hourhand.store.jsons import from_json, to_json, to_json_or_null


def version_of(row: Record) -> dict[str, Any]:
    """A job's row as an entry of its history."""
    kept = {key: row[key] for key in ("name", "kind", "queue", "priority", "max_retries", "timeout_seconds", "owner")}
    kept |= {key: from_json(row[key]) for key in ("payload", "timing", "retry", "catchup", "policy", "labels")}
    kept |= {"description": row["description"], "due_at": row["due_at"] and row["due_at"].isoformat()}
    author = row["updated_by"] or row["created_by"]
    return {"version": row["version"], "definition": kept, "changed_at": row["updated_at"], "changed_by": author}


def definition_of(row: Record) -> JobDefinition:
    if row["timing"] is not None:
        timing = timing_from_json(from_json(row["timing"]))
    else:
        schedule = Now(row["due_at"]) if row["due_at"] == row["created_at"] else At(row["due_at"])
        timing = Timing((schedule,))
    return JobDefinition(
        name=row["name"],
        kind=row["kind"],
        payload=from_json(row["payload"]),
        timing=timing,
        needs=need_of(row["needs"]),
        queue=row["queue"],
        priority=row["priority"],
        retry=retry_from_json(row["max_retries"], from_json(row["retry"])),
        catchup=catchup_from_json(row["catchup"]),
        timeout_seconds=row["timeout_seconds"],
        policy=policy_from_json(row["policy"]),
        labels=from_json(row["labels"]) or {},
        description=row["description"] or "",
        owner=row["owner"],
    )


def definition_columns(definition: JobDefinition, lane_id: int) -> dict[str, Any]:
    due_at = definition.timing.only_instant
    return {
        "lane_id": lane_id,
        "name": definition.name,
        "kind": definition.kind,
        "payload": to_json(definition.payload),
        "due_at": due_at,
        "timing": timing_column(definition.timing),
        "priority": definition.priority,
        "max_retries": definition.retry.max_retries,
        "retry": to_json_or_null(retry_to_json(definition.retry)),
        "catchup": catchup_to_json(definition.catchup),
        "timeout_seconds": definition.timeout_seconds,
        "policy": policy_to_json(definition.policy),
        "secrets": definition.policy.secrets,
        "labels": to_json_or_null(definition.labels),
        "description": definition.description or None,
        "owner": definition.owner,
    }
