"""Writes the database log of a run: triggers added to the migrated schema, and at the end everything as lines of D.

No constraint and no index of the product is touched. Events and final tables are read in one snapshot, so that they fit
together. `chaos.events` has a row per changed row; here they become transitions, a finish being one.
"""

import itertools
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from tests.chaos.history import (
    WITHDRAWN,
    AttemptRow,
    GateEvent,
    JobEvent,
    JobRow,
    LeaseEvent,
    LedgerRow,
    Line,
    Node,
    NodeEvent,
    RunEvent,
    RunRow,
    ShardEvent,
)
from tests.chaos.truth import LogFile

from hourhand.model.states import Cause, RunState

HERE = Path(__file__).parent
LOGGED: Final = ("live_runs", "runs", "shards", "leases", "gates", "gate_slots", "nodes", "jobs", "ledger_ranges")
"""Tables whose every change is kept; those that do not exist yet are left out."""
BATCH = 5000
JOB_STATUS: Final = ("active", "paused", "cancelled")
KEY_LABEL: Final = "key"
"""The label in which the workload repeats the Idempotency-Key of a job."""


async def install(db: Any) -> None:
    async with db.transaction():
        await db.execute((HERE / "database_recording.sql").read_text())
        for table in await _existing(db, LOGGED):
            await db.execute(
                f"CREATE TRIGGER chaos_note AFTER INSERT OR UPDATE OR DELETE ON hourhand.{table}"
                f" FOR EACH ROW EXECUTE FUNCTION chaos.note('{table}')"
            )


_LAST_COMMIT: Final = """
SELECT extract(epoch FROM coalesce(max(pg_xact_commit_timestamp(e.xmin)), clock_timestamp()))::float8
  FROM (SELECT xmin FROM chaos.events ORDER BY seq DESC LIMIT 1000) AS e
"""


async def dump(db: Any, folder: Path) -> float:
    """Writes every log of D to the folder; says until when they tell everything, by the database's clock."""
    async with db.transaction(isolation="repeatable_read", readonly=True):
        # Not the clock: on a busy machine it is asked some tenths of a second after the snapshot was taken, and what
        # witnesses saw in between would be what nobody has claimed.
        read_at = float(await db.fetchval(_LAST_COMMIT))
        await _dump_events(db, folder)
        for name, lines in (await _final_lines(db)).items():
            with LogFile(folder / name) as log:
                for line in lines:
                    log.write(line)
    return read_at


async def _existing(db: Any, tables: tuple[str, ...]) -> list[str]:
    rows = await db.fetch(
        "SELECT t FROM unnest($1::text[]) AS t WHERE to_regclass('hourhand.' || t) IS NOT NULL", tables
    )
    return [row["t"] for row in rows]


# --- events -----------------------------------------------------------------------------------------------


class Change(msgspec.Struct):
    """A row of `chaos.events`."""

    order: int
    at: float
    committed_at: float | None
    xid: int
    actor: str | None
    table: str
    op: str
    old: dict[str, Any]
    new: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        return self.new or self.old


async def _changes(db: Any, where: str = "true") -> AsyncIterator[Change]:
    statement = (
        "SELECT seq, extract(epoch FROM at)::float8 AS at,"
        " extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 AS committed_at, xmin::text::bigint AS xid,"
        f" node, table_name, op, old, new FROM chaos.events WHERE {where} ORDER BY seq"
    )
    async for row in db.cursor(statement, prefetch=BATCH):
        yield Change(
            row["seq"],
            row["at"],
            row["committed_at"],
            row["xid"],
            node_name(row["node"]) if row["node"] else None,
            row["table_name"],
            row["op"],
            msgspec.json.decode(row["old"] or "{}"),
            msgspec.json.decode(row["new"] or "{}"),
        )


async def _dump_events(db: Any, folder: Path) -> None:
    by_name = {name: LogFile(folder / f"{name}_events.jsonl") for name in sorted(set(_EVENT_FILES.values()))}
    logs = {table: by_name[name] for table, name in _EVENT_FILES.items()}
    runs, gates = RunHistory(), GateHistory()
    async for change in _changes(db, "(table_name, op) IN (('runs', 'insert'), ('live_runs', 'delete'))"):
        runs.look_ahead(change)
    async for change in _changes(db):
        line: Line | None = None
        match change.table:
            case "live_runs" | "runs":
                for step in runs.steps(change):
                    logs[change.table].write(step)
            case "gates" | "gate_slots":
                line = gates.event(change)
            case "jobs":
                line = _job_event(change)
            case "nodes":
                line = _node_event(change)
            case "shards":
                line = _shard_event(change)
            case "leases":
                line = _lease_event(change)
        if line is not None:
            logs[change.table].write(line)
    for log in by_name.values():
        log.close()


_EVENT_FILES: Final = {
    "live_runs": "run", "runs": "run", "gates": "gate", "gate_slots": "gate", "jobs": "job", "nodes": "node",
    "shards": "shard", "leases": "lease",
}  # fmt: skip


class RunHistory:
    """Turns changed rows into transitions."""

    def __init__(self) -> None:
        self._finished: dict[tuple[int, str], dict[str, Any]] = {}
        self._left: set[tuple[int, str]] = set()
        self._made: dict[str, dict[str, Any]] = {}

    def look_ahead(self, change: Change) -> None:
        """Both halves of each finish are known before either is told: which of them was noted first is chance."""
        key = (change.xid, change.row["run_id"])
        if change.table == "runs":
            self._finished[key] = change.new
        else:
            self._left.add(key)

    def steps(self, change: Change) -> list[RunEvent]:
        """What the change did to its run: nothing, one step, or two that were written at once."""
        if change.table == "runs":
            return self._history_alone(change)
        run_id = change.row["run_id"]
        if change.op == "insert":
            self._made[run_id] = change.new
            return [self._line(change, change.new, None, _word(change.new["state"]), change.new.get("executor_id"))]
        if change.op == "delete":
            final = self._finished.get((change.xid, run_id))
            new = WITHDRAWN if final is None else _word(final["state"])
            facts = {**self._made.pop(run_id, {}), **change.old, **(final or {}), "fence": change.old.get("fence")}
            return [self._line(change, facts, _word(change.old["state"]), new, change.old.get("executor_id"))]
        facts = {**self._made.get(run_id, {}), **change.new}
        if "version" in change.new:
            self._made.setdefault(run_id, {})["version"] = change.new["version"]
        old, new = RunState(change.old["state"]), RunState(change.new["state"])
        words = [old, new]
        if old is new:
            return []
        if (old, new) == (RunState.QUEUED, RunState.RUNNING):  # the start of an `at_most_once` goes with its claim
            words = [old, RunState.CLAIMED, new]
        holder = change.new.get("executor_id", change.old.get("executor_id"))
        return [self._line(change, facts, before.word, after.word, holder) for before, after in pairwise(words)]

    def _history_alone(self, change: Change) -> list[RunEvent]:
        """A final row that no live one went before, in this transaction at least."""
        if change.op != "insert" or (change.xid, change.row["run_id"]) in self._left:
            return []
        return [self._line(change, change.new, None, _word(change.new["state"]), change.new.get("executor_id"))]

    def _line(
        self, change: Change, facts: dict[str, Any], old: str | None, new: str, executor_id: int | None
    ) -> RunEvent:
        created = change.op == "insert" and change.table == "live_runs"
        return RunEvent(
            order=change.order,
            at=change.at,
            committed_at=change.committed_at,
            run_id=facts["run_id"],
            job_id=facts["job_id"],
            scheduled_for=_seconds(facts["scheduled_for"]),
            new=new,
            old=old,
            ready_at=_seconds_or_none(change.new.get("ready_at")),
            fence=facts.get("fence"),
            attempt=facts.get("attempt", 0),
            executor_id=executor_id,
            version=facts.get("version"),
            cause=Cause(facts["cause"]).word if "cause" in facts else None,
            reason=facts.get("reason"),
            shard=facts.get("shard") if created else None,
            actor=change.actor,
            shard_owner_id=facts.get("shard_owner") if created else None,
        )


class GateHistory:
    """Knows the gates by number."""

    def __init__(self) -> None:
        self._gates: dict[int, tuple[str, int | None]] = {}

    def event(self, change: Change) -> GateEvent | None:
        row = change.row
        if change.table == "gates":
            self._gates[row["gate_id"]] = (f"{row['kind']}:{row['name']}", row.get("capacity"))
            return None
        gate, capacity = self._gates.get(row["gate_id"], (str(row["gate_id"]), None))
        return GateEvent(
            order=change.order,
            at=change.at,
            gate=gate,
            run_id=row["run_id"],
            taken=change.op == "insert",
            capacity=capacity,
        )


def _job_event(change: Change) -> JobEvent | None:
    if change.op == "delete":
        return None
    row = change.new
    return JobEvent(
        order=change.order,
        at=change.at,
        committed_at=change.committed_at,
        job_id=row["job_id"],
        version=row["version"],
        status=JOB_STATUS[row["status"]],
        created=change.op == "insert",
        actor=change.actor,
    )


def _node_event(change: Change) -> NodeEvent | None:
    if change.op == "delete":
        return None
    row = change.new
    return NodeEvent(
        order=change.order,
        at=change.at,
        node_id=row["node_id"],
        role=row["role"],
        name=node_name(row["name"]),
        lease_until=_seconds(row["lease_until"]),
        ended="ended_at" in row,
    )


def _shard_event(change: Change) -> ShardEvent:
    row = change.new
    return ShardEvent(
        order=change.order, at=change.at, shard=row["shard"], owner_id=row.get("owner_id"), epoch=row["epoch"]
    )


def _lease_event(change: Change) -> LeaseEvent | None:
    if change.op == "delete":
        return None
    row = change.new
    return LeaseEvent(
        order=change.order,
        at=change.at,
        name=row["name"],
        node_id=row["node_id"],
        epoch=row["epoch"],
        lease_until=_seconds(row["lease_until"]),
    )


# --- final tables -----------------------------------------------------------------------------------------


async def _final_lines(db: Any) -> dict[str, Iterator[Line]]:
    async def rows(statement: str) -> list[dict[str, Any]]:
        return [
            msgspec.json.decode(row["row"]) for row in await db.fetch(f"SELECT to_jsonb(t) AS row FROM {statement} t")
        ]

    planned = {
        (change.new["job_id"], change.new["first_due"]): change.at
        async for change in _changes(db, "table_name = 'ledger_ranges' AND op <> 'delete'")
    }
    run = "run_id, job_id, scheduled_for, state, cause, version, attempt, executor_id, started_at"
    return {
        "jobs.jsonl": map(_job_row, await rows("(SELECT job_id, status, version, name, labels FROM hourhand.jobs)")),
        "runs.jsonl": itertools.chain(
            (
                _run_row(row, live=True)
                for row in await rows(f"(SELECT {run}, ready_at, fence FROM hourhand.live_runs)")
            ),
            (_run_row(row, live=False) for row in await rows(f"(SELECT {run}, reason, ended_at FROM hourhand.runs)")),
        ),
        "attempts.jsonl": map(_attempt_row, await rows("hourhand.attempts")),
        "ledger.jsonl": (_ledger_row(row, planned) for row in await rows("hourhand.ledger_ranges")),
        "nodes.jsonl": map(_node_row, await rows("hourhand.nodes")),
    }


def _job_row(row: dict[str, Any]) -> JobRow:
    return JobRow(
        job_id=row["job_id"],
        status=JOB_STATUS[row["status"]],
        version=row["version"],
        name=row["name"],
        key=(row["labels"] or {}).get(KEY_LABEL),
    )


def _run_row(row: dict[str, Any], *, live: bool) -> RunRow:
    return RunRow(
        run_id=row["run_id"],
        job_id=row["job_id"],
        scheduled_for=_seconds(row["scheduled_for"]),
        state=_word(row["state"]),
        cause=Cause(row["cause"]).word,
        version=row["version"],
        attempt=row["attempt"],
        live=live,
        reason=row.get("reason"),
        ready_at=_seconds_or_none(row.get("ready_at")),
        fence=row.get("fence"),
        executor_id=row["executor_id"],
        started_at=_seconds_or_none(row["started_at"]),
        ended_at=_seconds_or_none(row.get("ended_at")),
    )


def _attempt_row(row: dict[str, Any]) -> AttemptRow:
    late = row.get("late_state")
    return AttemptRow(
        run_id=row["run_id"],
        attempt=row["attempt"],
        state=_word(row["state"]),
        fence=row["fence"],
        executor_id=row["executor_id"],
        reason=row["reason"],
        started_at=_seconds_or_none(row["started_at"]),
        ended_at=_seconds_or_none(row["ended_at"]),
        late_state=None if late is None else _word(late),
        late_at=_seconds_or_none(row.get("late_at")),
    )


def _ledger_row(row: dict[str, Any], planned: dict[tuple[str, str], float]) -> LedgerRow:
    return LedgerRow(
        job_id=row["job_id"],
        first_due=_seconds(row["first_due"]),
        last_due=_seconds(row["last_due"]),
        count=row["count"],
        state=_word(row["state"]),
        reason=row["reason"],
        version=row["version"],
        at=planned.get((row["job_id"], row["first_due"])),
    )


def _node_row(row: dict[str, Any]) -> Node:
    return Node(node_id=row["node_id"], name=node_name(row["name"]), role=row["role"])


def node_name(registered: str) -> str:
    """`scheduler-1` of `scheduler-1-scheduler-4711` (a row of nodes) and of `scheduler-1.3` (a session's mark)."""
    return "-".join(registered.partition(".")[0].split("-")[:2])


def _word(state: int) -> str:
    return RunState(state).word


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _seconds_or_none(text: str | None) -> float | None:
    return None if text is None else _seconds(text)
