"""The stub's part about backfills, the forecast and versions."""

from typing import Any
from uuid import uuid4

STEP = 4
"""Runs that a backfill is further on with each look at it."""


FORECAST: dict[str, Any] = {
    "from": "2030-01-07T12:00:00Z", "to": "2030-01-08T12:00:00Z", "executors": 1,
    "slots": {"process": 10, "inline": 1000}, "due": 444.0, "jobs": 421, "looked_at": 421, "exact": True,
    "words": "all 421 jobs, every due time", "run_seconds": 8.0, "notes": ["read this too"],
    "minutes": [
        {"at": "2030-01-07T12:17:00Z", "due": 1, "load": 0.01, "wait_seconds": 0},
        {"at": "2030-01-08T00:00:00Z", "due": 420, "load": 5.6, "wait_seconds": 276},
    ],
    "crowds": [
        {
            "at": "2030-01-08T00:00:00Z", "due": 420, "load": 5.6, "clear_seconds": 336,
            "words": "420 jobs at 00:00 UTC need 5.6 times what the slots can do in that minute",
            "schedules": [
                {"cron": "0 0 * * *", "zone": "UTC", "jobs": 420, "spread": "H 0 * * *", "examples": ["a", "b", "c"]}
            ],
        }
    ],
}  # fmt: skip


def answer_planning(stub: Any, seen: Any, parts: list[str]) -> tuple[int, Any] | None:
    """None for what is not of this part."""
    match seen.method, parts:
        case "POST", ["jobs", identity, "backfill"]:
            return _start(stub, stub.jobs[identity], seen.json)
        case "GET", ["backfills"]:
            return 200, {"backfills": list(stub.backfills.values()), "next_cursor": None}
        case "GET", ["backfills", identity]:
            return 200, _look(stub.backfills[identity])
        case "POST", ["backfills", identity, verb]:
            status = {"pause": "paused", "resume": "running", "cancel": "cancelled"}[verb]
            stub.backfills[identity]["status"] = status
            return 200, stub.backfills[identity]
        case "GET", ["forecast"]:
            return 200, FORECAST
        case "GET", ["jobs", identity, "diff"]:
            changes = [
                {"field": "/payload/argv", "before": ["a"], "after": ["b", "c"]},
                {"field": "/queue", "after": "q"},
            ]
            end = int(seen.params.get("to", ["2"])[0])
            start = int(seen.params.get("from", [str(end - 1)])[0])
            return 200, {"job_id": identity, "from": start, "to": end, "changes": changes if start != end else []}
        case "POST", ["jobs", identity, "rollback"]:
            job = stub.jobs[identity]
            job["version"] += 1
            return 200, {"job": job, "too_late": []}
    return None


def _start(stub: Any, job: dict[str, Any], sent: dict[str, Any]) -> tuple[int, Any]:
    made = {
        "backfill_id": str(uuid4()), "job_id": job["job_id"], "job_name": job["name"], "status": "running",
        "total": 10, "remaining": 10, "live": 0, "succeeded": 0, "failed": 0, "percent": 0.0, "from": sent["from"],
        "to": sent["to"], "first_due": "2026-10-01T12:00:00Z", "last_due": "2026-10-10T12:00:00Z",
        "estimate_seconds": 125.0, "notes": ["read this before"],
    }  # fmt: skip
    if sent.get("dry_run"):
        return 200, {**made, "backfill_id": None, "status": "planned"}
    stub.backfills[made["backfill_id"]] = made
    return 202, made


def _look(backfill: dict[str, Any]) -> dict[str, Any]:
    moved = min(STEP, backfill["remaining"])
    backfill["remaining"] -= moved
    backfill["succeeded"] += moved
    if not backfill["remaining"]:
        backfill.update(status="completed", ended_at="2030-01-31T09:00:00Z", percent=100.0)
    return backfill
