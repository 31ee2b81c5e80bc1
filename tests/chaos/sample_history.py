"""Tells small histories: a cluster that behaves, and whatever a test makes it do wrong.

All times are seconds after the beginning of the story. Each verb writes the lines that the real recorder would write,
so that a story told with verbs alone is a correct one; tests then leave something out or add what must not be.
"""

from dataclasses import dataclass
from itertools import count
from typing import Any

import msgspec
from tests.chaos.history import (
    AttemptRow,
    ClientCall,
    Fault,
    GateEvent,
    History,
    JobEvent,
    JobRow,
    JobSpec,
    LeaseEvent,
    LedgerRow,
    Node,
    NodeEvent,
    Probe,
    RunEvent,
    RunRow,
    Settings,
    ShardEvent,
    WitnessLine,
)

BEGINNING = 1_800_000_000.0
NODES = {"scheduler-1": 1, "scheduler-2": 2, "executor-1": 11, "executor-2": 12, "api-1": 21}
FINAL = {"succeeded", "failed", "timed_out", "lost", "cancelled", "skipped", "missed"}


@dataclass(slots=True)
class Telling:
    """The row of a run as the story has it now."""

    run_id: str
    job_id: str
    due: float
    cause: str
    version: int
    state: str = ""
    attempt: int = 0
    fence: int | None = None
    executor: str | None = None
    reason: str | None = None
    ready: float = 0.0


class Story:
    def __init__(self, lasts: float = 300.0, **settings: Any) -> None:
        self.settings = Settings(started_at=BEGINNING, read_at=BEGINNING + lasts, **settings)
        self.calls: list[ClientCall] = []
        self.witness: list[WitnessLine] = []
        self.run_events: list[RunEvent] = []
        self.job_events: list[JobEvent] = []
        self.node_events: list[NodeEvent] = []
        self.shard_events: list[ShardEvent] = []
        self.lease_events: list[LeaseEvent] = []
        self.gate_events: list[GateEvent] = []
        self.jobs: dict[str, JobRow] = {}
        self.runs: dict[str, Telling] = {}
        self.more_runs: list[RunRow] = []
        self.attempts: list[AttemptRow] = []
        self.ledger: list[LedgerRow] = []
        self.faults: list[Fault] = []
        self.probes: list[Probe] = []
        self.specs: list[JobSpec] = []
        self._orders = count(1)
        self._fences = count(100)
        self._ids = count(1)

    def __repr__(self) -> str:
        """What a failing property shows: the story in the order of its events."""
        return "\n".join(f"{event.at - BEGINNING:.3f} {event.run_id} {event.new}" for event in self.run_events)

    # --- clients ---

    def call(self, op: Any, at: float, outcome: Any = "ok", took: float = 0.02, **more: Any) -> ClientCall:
        ended = BEGINNING + at + took if outcome != "info" else None
        status = {"ok": 200, "fail": 409, "info": None}[outcome]
        call = ClientCall(
            op=op,
            outcome=outcome,
            invoked_at=BEGINNING + at,
            ended_at=ended,
            node="api-1",
            **{"status": status, **more},
        )
        self.calls.append(call)
        return call

    def job(self, submitted: float = 0.0, key: str | None = None, **asked: Any) -> str:
        """Submits a job; `asked` are fields of its specification, times in it counted from the beginning."""
        job_id = f"job-{next(self._ids)}"
        self._specify(job_id, 1, asked)
        self.call("submit", submitted, job_id=job_id, version=1, idempotency_key=key, body_digest="a", status=202)
        at = BEGINNING + submitted + 0.01
        self.job_events.append(
            JobEvent(order=next(self._orders), at=at, job_id=job_id, version=1, status="active", created=True)
        )
        self.jobs[job_id] = JobRow(job_id=job_id, status="active", version=1, key=key)
        return job_id

    def update(self, job_id: str, at: float, version: int, **asked: Any) -> None:
        self._specify(job_id, version, asked)
        self.call("update", at, job_id=job_id, version=version)
        self.job_changed(job_id, at + 0.01, version=version)

    def job_changed(self, job_id: str, at: float, **fields: Any) -> None:
        """The row of the job, as somebody's call changed it."""
        row = self.jobs[job_id] = msgspec.structs.replace(self.jobs[job_id], **fields)
        order, at = next(self._orders), BEGINNING + at
        self.job_events.append(JobEvent(order=order, at=at, job_id=job_id, version=row.version, status=row.status))

    def _specify(self, job_id: str, version: int, asked: dict[str, Any]) -> None:
        times: dict[str, Any] = {name: BEGINNING + asked[name] for name in ("at", "anchor", "end_at") if name in asked}
        self.specs.append(JobSpec(job_id=job_id, version=version, **(asked | times)))

    # --- runs ---

    def born(self, job_id: str, due: float, at: float | None = None, state: str = "queued", **more: Any) -> str:
        """A run is made, by default one second ahead of its due time, or at once if it is due at once."""
        spec = next(spec for spec in reversed(self.specs) if spec.job_id == job_id)
        ahead = 0.0 if spec.schedule == "now" else 1.0
        cause = more.pop("cause", "schedule" if spec.recurring else "once")
        run_id = f"run-{next(self._ids)}"
        self.runs[run_id] = Telling(run_id, job_id, due, cause, more.pop("version", spec.version), ready=due)
        self.step(run_id, state, due - ahead if at is None else at, **more)
        return run_id

    def step(self, run_id: str, state: str, at: float, **more: Any) -> None:
        """Any event of a run, also an illegal one."""
        run = self.runs[run_id]
        holder = run.executor
        event: dict[str, Any] = {
            "order": next(self._orders),
            "at": BEGINNING + at,
            "run_id": run_id,
            "job_id": run.job_id,
            "scheduled_for": BEGINNING + run.due,
            "old": run.state or None,
            "new": state,
            "ready_at": BEGINNING + run.ready,
            "fence": run.fence,
            "attempt": run.attempt,
            "executor_id": NODES[holder] if holder else None,
            "version": run.version,
            "cause": run.cause,
        }
        run.state = state
        self.run_events.append(RunEvent(**{**event, **more}))

    def claim(self, run_id: str, at: float, executor: str = "executor-1") -> int:
        run = self.runs[run_id]
        run.attempt, run.fence, run.executor = run.attempt + 1, next(self._fences), executor
        self.step(run_id, "claimed", at)
        return run.fence

    def say(self, run_id: str, phase: Any, at: float, **more: Any) -> None:
        run = self.runs[run_id]
        facts: dict[str, Any] = {"attempt": run.attempt, "fence": run.fence or 0, "phase": phase}
        self.witness.append(WitnessLine(at=BEGINNING + at, run_id=run_id, **{**facts, **more}))

    def begin(self, run_id: str, at: float, executor: str = "executor-1") -> int:
        """Claims it and has its effect start at `at`."""
        fence = self.claim(run_id, at - 0.01, executor)
        self.say(run_id, "start", at)
        self.step(run_id, "running", at + 0.1)
        return fence

    def beat(self, run_id: str, start: float, end: float, every: float = 1.0, **more: Any) -> None:
        at = start
        while at <= end:
            self.say(run_id, "beat", at, **more)
            at += every

    def finish(self, run_id: str, state: str, at: float, reason: str | None = None, **more: Any) -> None:
        self.runs[run_id].reason = reason
        self.step(run_id, state, at, reason=reason, **more)

    def end(self, run_id: str, at: float, state: str = "succeeded", reason: str | None = None) -> None:
        """Its effect ends by itself, and that is recorded."""
        self.say(run_id, "end", at, failed=state == "failed")
        self.finish(run_id, state, at + 0.05, reason)

    def requeue(self, run_id: str, at: float, ready: float, state: str = "failed", reason: str = "exception") -> None:
        """The attempt is over and the run waits for the next."""
        run = self.runs[run_id]
        executor_id = NODES[run.executor or "executor-1"]
        self.attempts.append(
            AttemptRow(
                run_id=run_id,
                attempt=run.attempt,
                state=state,
                fence=run.fence,
                executor_id=executor_id,
                reason=reason,
                ended_at=BEGINNING + at,
            )
        )
        run.ready = ready
        self.step(run_id, "queued", at, executor_id=executor_id)
        run.executor = None

    def life(self, job_id: str, due: float, seconds: float = 0.5, start: float | None = None, **more: Any) -> str:
        """A run that succeeds."""
        run_id = self.born(job_id, due, **more)
        start = due + 0.02 if start is None else start
        self.begin(run_id, start)
        self.end(run_id, start + seconds)
        return run_id

    # --- nodes, shards, gates, faults ---

    def lease(self, node: str, at: float, until: float, ended: bool = False) -> None:
        self.node_events.append(
            NodeEvent(
                order=next(self._orders),
                at=BEGINNING + at,
                node_id=NODES[node],
                role=node.partition("-")[0],
                name=node,
                lease_until=BEGINNING + until,
                ended=ended,
            )
        )

    def lead(self, node: str, at: float, until: float, epoch: int) -> None:
        self.lease_events.append(
            LeaseEvent(
                order=next(self._orders),
                at=BEGINNING + at,
                name="leader",
                node_id=NODES[node],
                epoch=epoch,
                lease_until=BEGINNING + until,
            )
        )

    def shard(self, shard: int, node: str | None, at: float, epoch: int) -> None:
        owner = NODES[node] if node else None
        order = next(self._orders)
        self.shard_events.append(ShardEvent(order=order, at=BEGINNING + at, shard=shard, owner_id=owner, epoch=epoch))

    def slot(self, gate: str, run_id: str, at: float, taken: bool, capacity: int | None = None) -> None:
        order = next(self._orders)
        self.gate_events.append(
            GateEvent(order=order, at=BEGINNING + at, gate=gate, run_id=run_id, taken=taken, capacity=capacity)
        )

    def fault(self, action: str, start: float, end: float, target: str = "") -> None:
        role = target.partition("-")[0]
        self.faults.append(
            Fault(action=action, started=BEGINNING + start, ended=BEGINNING + end, role=role, target=target)
        )

    def missed(
        self, job_id: str, first: float, last: float, number: int, at: float, reason: str, version: int | None = None
    ) -> None:
        self.ledger.append(
            LedgerRow(
                job_id=job_id,
                first_due=BEGINNING + first,
                last_due=BEGINNING + last,
                count=number,
                state="missed",
                reason=reason,
                version=version,
                at=BEGINNING + at,
            )
        )

    # --- the whole ---

    def row(self, run_id: str) -> RunRow:
        run = self.runs[run_id]
        return RunRow(
            run_id=run_id,
            job_id=run.job_id,
            scheduled_for=BEGINNING + run.due,
            state=run.state,
            cause=run.cause,
            version=run.version,
            attempt=run.attempt,
            live=run.state not in FINAL,
            reason=run.reason,
            ready_at=BEGINNING + run.ready,
            fence=run.fence,
            executor_id=NODES[run.executor] if run.executor else None,
        )

    def history(self) -> History:
        logs: dict[str, Any] = {
            name: log for name in History.__struct_fields__ if isinstance(log := getattr(self, name, None), list)
        }
        rows = [self.row(run_id) for run_id, run in self.runs.items() if run.state != "withdrawn"]
        nodes = [Node(node_id=number, name=name, role=name.partition("-")[0]) for name, number in NODES.items()]
        return History(
            settings=self.settings,
            jobs=[*self.jobs.values()],
            nodes=nodes,
            runs=[*rows, *self.more_runs],
            **logs,
        )
