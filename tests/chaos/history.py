"""The recorded history of a chaos run: what was asked, what was seen to happen, what was stored, what was broken.

Four logs that know nothing of each other, joined by run id: client (C), witness (W), database (D), nemesis (N); beside
them probes of processes and the specifications of the workload. `read_history(folder)` and `write_history` keep them as
one file of JSON lines per log, so that a run can be judged again later.

All times are seconds since 1970 as floats. C, W, N and probes are on one true clock that no fault touches; D carries
the database's own `clock_timestamp()`, which is the same clock unless `Settings.database_clock_true` is false. Ids of
jobs and runs are UUIDs in their usual text form, states are the words of the API (`queued`, `timed_out`). None means
"not known" or "not applicable"; a field that is not known is never held against anybody.

All names are imported from here (`from tests.chaos.history import RunEvent`); the lines of D live in `database_log.py`,
what the workload asked in `asked.py`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
from tests.chaos.asked import JobSpec, RetrySpec, ScheduleKind, Settings
from tests.chaos.database_log import (
    WITHDRAWN,
    AttemptRow,
    GateEvent,
    JobEvent,
    JobRow,
    LeaseEvent,
    LedgerRow,
    NodeEvent,
    RunEvent,
    RunRow,
    ShardEvent,
)
from tests.chaos.line import Line

__all__ = [
    "LOG_FILES",
    "SETTINGS_FILE",
    "WITHDRAWN",
    "Answer",
    "AttemptRow",
    "ClientCall",
    "Fault",
    "GateEvent",
    "History",
    "JobEvent",
    "JobRow",
    "JobSpec",
    "LeaseEvent",
    "LedgerRow",
    "Line",
    "Node",
    "NodeEvent",
    "Op",
    "Phase",
    "Probe",
    "RetrySpec",
    "RunEvent",
    "RunRow",
    "ScheduleKind",
    "Settings",
    "ShardEvent",
    "WitnessLine",
    "read_history",
    "read_lines",
    "write_history",
    "write_lines",
]


# --- C: what clients asked and were told -------------------------------------------------------------------

Op = Literal[
    "submit", "get_job", "get_run", "list", "cancel", "pause", "resume", "update", "delete", "run_now", "retry", "other"
]
Answer = Literal["ok", "fail", "info"]


class ClientCall(Line, frozen=True, kw_only=True):
    """One API call. A batch is one call per job in it, with the same times."""

    op: Op
    """`cancel` is of a run; `delete` is of a job and cancels its runs too; `retry` makes a new run."""
    outcome: Answer
    """`ok`: 2xx was received. `fail`: certainly not applied (4xx). `info`: nobody knows (time-out, reset, 5xx)."""
    invoked_at: float
    """Just before the request was sent."""
    ended_at: float | None = None
    """Just after the answer was complete; None when there was none."""
    call_id: int = 0
    node: str = ""
    """The API node asked (`Node.name`)."""
    status: int | None = None
    job_id: str | None = None
    """The job asked about, or the one named in the answer to a submission."""
    run_id: str | None = None
    """The run asked about, or the one named in the answer to `run_now` and `retry`."""
    idempotency_key: str | None = None
    """The key sent with a submission."""
    body_digest: str | None = None
    """Any digest of the request's body; equal bodies have equal digests."""
    version: int | None = None
    """The job's version according to an ok answer."""
    state: str | None = None
    """The job's or the run's `status` according to an ok answer."""
    too_late: tuple[str, ...] = ()
    """Runs which the answer to a change names as already claimed."""
    content_type: str | None = None
    """Of a non-2xx answer."""
    problem_type: str | None = None
    """`type` of the problem document in a non-2xx answer; None when the body is none."""
    body_excerpt: str = ""
    """The first 2000 characters of a non-2xx body."""
    note: str = ""
    """Why it is info: the error's name and words."""


# --- W: what effects said of themselves ----------------------------------------------------------------------

Phase = Literal["start", "beat", "term", "end"]


class WitnessLine(Line, frozen=True, kw_only=True):
    """One datagram of an effect; `at` is the collector's."""

    at: float
    run_id: str
    attempt: int
    fence: int
    phase: Phase
    """`term`: it was asked to stop (SIGTERM, cancelled). `end`: it came to its own end, by success or failure."""
    pid: int = 0
    seq: int = 0
    """Counts from 0 per process."""
    who: str = "leader"
    """`leader`, or the name of a further process of the tree: `child`, `grandchild`."""
    failed: bool = False
    """With `end`: the attempt is about to fail as its job wanted."""
    kind: str = ""
    effect_key: str = ""
    """What the effect would deduplicate by, if it did."""


# --- N: what was broken -------------------------------------------------------------------------------------


class Fault(Line, frozen=True, kw_only=True):
    """One injection. `kind` is what the report counts."""

    action: str
    """`kill` (-9), `stop` (SIGSTOP), `backend_kill`, `postgres_restart`, `postgres_kill`, `drop_notify`, `partition`,
    `drain` (SIGTERM), `mark_lost`, `clock`, …"""
    started: float
    ended: float
    """When it was healed: the process is started again and ready, SIGCONT was sent, PostgreSQL accepts again."""
    role: str = ""
    """With a process: `scheduler`, `leader`, `executor`, `api`."""
    target: str = ""
    """`Node.name`; empty for the database or all nodes. A restarted process keeps its name."""
    seed: int = 0
    detail: str = ""

    @property
    def kind(self) -> str:
        return f"{self.action}_{self.role}" if self.role else self.action


# --- probes, nodes, the workload's own knowledge --------------------------------------------------------------


class Probe(Line, frozen=True, kw_only=True):
    """One look at one node's process, each 10 s or so, and once at the final read."""

    at: float
    node: str
    """`Node.name`; empty for the look at the whole machine that fills `run_ids`."""
    rss_bytes: int | None = None
    fds: int | None = None
    connections: int | None = None
    """Sessions of the node at the database."""
    connections_max: int | None = None
    """What its pools (and listeners) allow together."""
    run_ids: tuple[str, ...] = ()
    """Runs that any process carries (`HOURHAND_RUN_ID` in its environment), zombies left out."""
    final: bool = False
    """Taken at the final read."""


class Node(Line, frozen=True, kw_only=True):
    """A registration of a node (`nodes` row). A restarted process has several with one name."""

    node_id: int
    name: str
    role: str


class History(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All logs of one run. Nothing is sorted or joined; `tests.chaos.joined` does that."""

    settings: Settings
    calls: Sequence[ClientCall] = ()
    witness: Sequence[WitnessLine] = ()
    run_events: Sequence[RunEvent] = ()
    job_events: Sequence[JobEvent] = ()
    node_events: Sequence[NodeEvent] = ()
    shard_events: Sequence[ShardEvent] = ()
    lease_events: Sequence[LeaseEvent] = ()
    gate_events: Sequence[GateEvent] = ()
    jobs: Sequence[JobRow] = ()
    runs: Sequence[RunRow] = ()
    attempts: Sequence[AttemptRow] = ()
    ledger: Sequence[LedgerRow] = ()
    faults: Sequence[Fault] = ()
    probes: Sequence[Probe] = ()
    nodes: Sequence[Node] = ()
    specs: Sequence[JobSpec] = ()


# --- files ----------------------------------------------------------------------------------------------------

SETTINGS_FILE: Final = "settings.json"
LOG_FILES: Final[dict[str, tuple[str, type[Line]]]] = {
    "calls": ("client.jsonl", ClientCall),
    "witness": ("witness.jsonl", WitnessLine),
    "run_events": ("run_events.jsonl", RunEvent),
    "job_events": ("job_events.jsonl", JobEvent),
    "node_events": ("node_events.jsonl", NodeEvent),
    "shard_events": ("shard_events.jsonl", ShardEvent),
    "lease_events": ("lease_events.jsonl", LeaseEvent),
    "gate_events": ("gate_events.jsonl", GateEvent),
    "jobs": ("jobs.jsonl", JobRow),
    "runs": ("runs.jsonl", RunRow),
    "attempts": ("attempts.jsonl", AttemptRow),
    "ledger": ("ledger.jsonl", LedgerRow),
    "faults": ("faults.jsonl", Fault),
    "probes": ("probes.jsonl", Probe),
    "nodes": ("nodes.jsonl", Node),
    "specs": ("specs.jsonl", JobSpec),
}
"""Field of `History` -> name of its file and what a line of it is. A missing file is an empty log."""

_Line = TypeVar("_Line", bound=Line)
_encoder: Final = msgspec.json.Encoder()


def read_history(folder: Path) -> History:
    settings = msgspec.json.decode((folder / SETTINGS_FILE).read_bytes(), type=Settings)
    logs: dict[str, Any] = {field: read_lines(folder / name, line) for field, (name, line) in LOG_FILES.items()}
    return History(settings=settings, **logs)


def read_lines(path: Path, line: type[_Line]) -> list[_Line]:
    """The lines of one log; a last line that was cut short by a crash is left out."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    return msgspec.json.Decoder(line).decode_lines(whole)


def write_history(history: History, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SETTINGS_FILE).write_bytes(_encoder.encode(history.settings))
    for field, (name, _line) in LOG_FILES.items():
        write_lines(folder / name, getattr(history, field))


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    """Replaces the log. `omit_defaults` keeps lines short: half a million of them are kept."""
    path.write_bytes(_encoder.encode_lines(lines))
