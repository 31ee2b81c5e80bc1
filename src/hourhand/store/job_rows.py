"""New jobs as the rows they become, in every table that has a part of them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.ids import scheduled_run_id, shard_of
from hourhand.model.job import CATCHUP_DEFAULT, JobDefinition
from hourhand.model.policy import ORDINARY, Overlap, policy_to_json
from hourhand.model.retry import DEFAULT_RETRY, retry_to_json
from hourhand.model.schedule import Timing, timing_to_json
from hourhand.model.states import Cause
from hourhand.ports.stores import NewJob
from hourhand.store.jsons import from_json, to_json, to_json_bytes, to_json_or_null
from hourhand.store.names import LaneKey, lane_key
from hourhand.store.packed_rows import (
    CURSOR_COLUMNS,
    JOB_COLUMNS,
    RUN_COLUMNS,
    Packed,
    frame_of,
    pack_cursor,
    pack_job,
    pack_run,
)
from hourhand.store.timing_facts import FACT_COLUMNS, fact_rows, marked

_JOB_COLUMNS: Final = [
    "job_id", "namespace_id", "lane_id", "name", "kind", "payload", "due_at", "timing", "priority", "max_retries",
    "retry", "catchup", "timeout_seconds", "labels", "description", "owner", "status", "version", "created_at",
    "created_by", "updated_at", "policy", "unique_key",
]  # fmt: skip
_RUN_COLUMNS: Final = [
    "run_id", "job_id", "scheduled_for", "ready_at", "namespace_id", "lane_id", "version", "state", "priority", "cause",
    "gate_ids", "expires_at",
]  # fmt: skip
_CURSOR_COLUMNS: Final = [
    "job_id", "next_fire", "namespace_id", "lane_id", "version", "shard", "priority", "recurring", "gate_ids",
    "expires_after", "exclusive",
]  # fmt: skip

_FACT_COLUMNS: Final = {**FACT_COLUMNS, "secret_jobs": ["namespace_id", "secret", "job_id"]}
FEW_MAX: Final = 24
"""Jobs up to which one statement is quicker than three copies."""

Numbers = tuple[Mapping[LaneKey, int], Mapping[UUID, list[int] | None]]
"""Those of lanes, and of the gates of jobs that have any."""
Tables = Sequence[tuple[str, Packed | tuple[Sequence[str], Sequence[tuple[Any, ...]]]]]
"""Rows to copy: into which table, which columns of it, and their values."""


def rows_of(jobs: Sequence[NewJob], numbers: Numbers) -> Tables:
    """The rows of new jobs, by table and columns."""
    lanes, gates = numbers
    plain_jobs, plain_runs, plain_cursors = Packed(JOB_COLUMNS, []), Packed(RUN_COLUMNS, []), Packed(CURSOR_COLUMNS, [])
    job_rows, run_rows, cursor_rows = [], [], []
    facts: dict[str, list[tuple[Any, ...]]] = {}
    timing, due_at, says_more = None, None, True
    like: tuple[Any, ...] = ()
    for new in jobs:
        definition = new.definition
        if definition.timing is not timing:  # which the jobs of a batch often share
            timing = definition.timing
            due_at, says_more = timing.only_instant, timing.says_more
        if due_at is not None and not says_more and _says_little(new):
            before, like = like, _like(new, due_at)
            if before != like:
                frame = frame_of(new, lanes[lane_key(new.namespace_id, definition)], due_at)
            job_id = new.job_id.bytes
            plain_jobs.rows.append(pack_job(frame, job_id, new.plain_payload or to_json_bytes(definition.payload)))
            if new.fires:
                plain_runs.rows.append(pack_run(frame, job_id))
            if new.next_due is not None:
                plain_cursors.rows.append(pack_cursor(frame, job_id, shard_of(new.job_id)))
            continue
        lane_id, policy = lanes[lane_key(new.namespace_id, definition)], definition.policy
        job_rows.append(_job_row(new, lane_id, due_at))
        # A run that must not overlap with others of its job is to be found by its job.
        exclusive = due_at is None or (policy is not ORDINARY and _is_exclusive(new.definition))
        cause = int(Cause.SCHEDULE if exclusive else Cause.ONCE)
        runs = [_run_row(new, lane_id, due, cause) for due in new.fires]
        run_rows += [(*run, gates.get(new.job_id), policy.expires_at(run[2], run[3])) for run in runs]
        if new.next_due is not None:
            cursor = _cursor_row(new, lane_id, due_at is None)
            of_runs = marked(gates.get(new.job_id), new.definition.timing)
            cursor_rows.append((*cursor, of_runs, *cursor_promises(new.definition)))
        if policy.secrets:
            links = [(new.namespace_id, name, new.job_id) for name in policy.secrets]
            facts.setdefault("secret_jobs", []).extend(links)
        if new.definition.timing.is_apart:
            for table, rows in _facts_of(new, lane_id, gates.get(new.job_id)).items():
                facts.setdefault(table, []).extend(rows)
    return [
        ("jobs", plain_jobs),
        ("jobs", (_JOB_COLUMNS, job_rows)),
        ("live_runs", plain_runs),
        ("live_runs", (_RUN_COLUMNS, run_rows)),
        ("timetable", plain_cursors),
        ("timetable", (_CURSOR_COLUMNS, cursor_rows)),
        *((table, (_FACT_COLUMNS[table], rows)) for table, rows in facts.items()),
    ]


def _like(new: NewJob, due_at: datetime) -> tuple[Any, ...]:
    """All that the rows of a plain job tell of it, but its id and payload."""
    definition = new.definition
    return (
        definition.name, definition.needs, definition.kind, definition.queue, definition.priority, definition.owner,
        definition.retry, due_at, new.namespace_id, new.created_at, new.created_by,
    )  # fmt: skip


def values_of_few(jobs: Sequence[NewJob], lanes: Mapping[LaneKey, int]) -> dict[str, list[Any]] | None:
    """The same for a single statement; None unless they are few, and plain jobs that run once."""
    if len(jobs) > FEW_MAX or not all(_runs_once(new) and _says_little(new) for new in jobs):
        return None
    definitions = [new.definition for new in jobs]
    return {
        "job_ids": [new.job_id for new in jobs],
        "namespace_ids": [new.namespace_id for new in jobs],
        "lane_ids": [lanes[lane_key(new.namespace_id, new.definition)] for new in jobs],
        "names": [definition.name for definition in definitions],
        "kinds": [definition.kind for definition in definitions],
        "payloads": [
            new.plain_payload.decode() if new.plain_payload else to_json(new.definition.payload) for new in jobs
        ],
        "due": [definition.timing.only_instant for definition in definitions],
        "priorities": [definition.priority for definition in definitions],
        "max_retries": [definition.retry.max_retries for definition in definitions],
        "owners": [definition.owner for definition in definitions],
        "created": [new.created_at for new in jobs],
        "created_by": [new.created_by for new in jobs],
        "run_ids": [scheduled_run_id(new.fires[0], new.job_id) if new.fires else None for new in jobs],
        "next_fires": [new.next_due for new in jobs],
        "shards": [shard_of(new.job_id) for new in jobs],
    }


def _payload(new: NewJob) -> str:
    return to_json(new.definition.payload) if new.plain_payload is None else new.plain_payload.decode()


def _facts_of(new: NewJob, lane_id: int, gates: list[int] | None) -> Mapping[str, list[tuple[Any, ...]]]:
    return fact_rows(new.job_id, new.namespace_id, lane_id, new.definition, cursor_promises(new.definition), gates)


def _job_row(new: NewJob, lane_id: int, due_at: datetime | None) -> tuple[Any, ...]:
    definition = new.definition
    return (
        new.job_id,
        new.namespace_id,
        lane_id,
        definition.name,
        definition.kind,
        to_json(definition.payload),
        due_at,
        timing_column(definition.timing),
        definition.priority,
        definition.retry.max_retries,
        to_json_or_null(retry_to_json(definition.retry)),
        catchup_to_json(definition.catchup),
        definition.timeout_seconds,
        to_json_or_null(definition.labels),
        definition.description or None,
        definition.owner,
        0,
        1,
        new.created_at,
        new.created_by,
        new.created_at,
        policy_to_json(definition.policy),
        None if new.unique is None else new.unique.key,
    )


def _runs_once(new: NewJob) -> bool:
    return new.definition.timing.only_instant is not None and not new.definition.timing.says_more


def _says_little(new: NewJob) -> bool:
    """Whether the columns that every job has say all there is to say of one that runs once, but for its time."""
    definition = new.definition
    return new.plain_payload is not None or (
        definition.retry is DEFAULT_RETRY
        and definition.catchup is CATCHUP_DEFAULT
        and definition.timeout_seconds is None
        and not definition.labels
        and not definition.description
        and definition.policy is ORDINARY
        and new.unique is None
    )


def _run_row(new: NewJob, lane_id: int, due: datetime, cause: int) -> tuple[Any, ...]:
    run_id = scheduled_run_id(due, new.job_id)
    return (run_id, new.job_id, due, due, new.namespace_id, lane_id, 1, 0, new.definition.priority, cause)


def cursor_promises(definition: JobDefinition) -> tuple[timedelta | None, bool]:
    """How long a run of it may wait, counted from its due time, and whether it waits behind earlier ones."""
    policy = definition.policy
    waits = [seconds for seconds in (policy.queue_timeout_seconds, policy.deadline_seconds) if seconds is not None]
    return (timedelta(seconds=min(waits)) if waits else None), _is_exclusive(definition)


def _is_exclusive(definition: JobDefinition) -> bool:
    return definition.policy.overlap_of(definition.timing.only_instant is None) is not Overlap.ALLOW


def _cursor_row(new: NewJob, lane_id: int, recurring: bool) -> tuple[Any, ...]:
    shard = shard_of(new.job_id)
    return (new.job_id, new.next_due, new.namespace_id, lane_id, 1, shard, new.definition.priority, recurring)


def timing_column(timing: Timing) -> str | None:
    if timing.only_instant is not None and not timing.says_more:
        return None
    return to_json(timing_to_json(timing))


def catchup_to_json(policy: CatchUpPolicy) -> str | None:
    if policy is CATCHUP_DEFAULT or policy == CATCHUP_DEFAULT:
        return None
    return to_json({"mode": policy.mode.value, "window": policy.window.total_seconds(), "runs_max": policy.runs_max})


def catchup_from_json(stored: str | None) -> CatchUpPolicy:
    if stored is None:
        return CATCHUP_DEFAULT
    value = from_json(stored)
    return CatchUpPolicy(CatchUp(value["mode"]), timedelta(seconds=value["window"]), value["runs_max"])
