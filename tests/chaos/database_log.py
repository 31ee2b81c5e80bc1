"""The lines of the database log (D): transitions written by triggers, and the tables at the final read."""

from typing import Final

from tests.chaos.line import Line

WITHDRAWN: Final = "withdrawn"
"""Pseudo state: the row of a run that was not due yet was taken back (update, pause). It may be made anew."""


class RunEvent(Line, frozen=True, kw_only=True):
    """A transition of a run, written by a trigger in the transaction that made it. Rolled back with it.

    A finish is one event: the row leaves `live_runs` and appears in `runs`, `new` is the final state.
    Changes that leave the state alone (lane, priority, version, ready_at) need no event.
    """

    order: int
    """From one bigserial for all D events. Within one run it is the order of commits, since each locks the row."""
    at: float
    """`clock_timestamp()` in the trigger, so a little before the commit."""
    committed_at: float | None = None
    """`pg_xact_commit_timestamp`: from then on others can see it."""
    run_id: str
    job_id: str
    scheduled_for: float
    new: str
    """State after; `withdrawn` when the live row was deleted and no final row was made."""
    old: str | None = None
    """State before; None for the row's creation, or when not known."""
    ready_at: float | None = None
    """Of the new row, when live."""
    fence: int | None = None
    """Of the row after a claim; of the deleted live row at a finish."""
    attempt: int = 0
    executor_id: int | None = None
    """Who holds the run after the event; at a finish or a requeue, who held it before."""
    version: int | None = None
    """The job's version the run was made under."""
    cause: str | None = None
    """`once`, `schedule` or `manual`."""
    reason: str | None = None
    """Of final rows."""
    shard: int | None = None
    epoch: int | None = None
    """The shard epoch that the writer believed in, if the statement can be made to tell. Only for creations."""
    actor: str | None = None
    """`Node.name` of the node whose connection wrote, exactly as registered (no number of its start)."""
    shard_owner_id: int | None = None
    """Only for creations: who owned the job's shard when the row was written."""


class JobEvent(Line, frozen=True, kw_only=True):
    """A row of `jobs` was inserted or changed."""

    order: int
    at: float
    job_id: str
    version: int
    status: str
    """`active`, `paused` or `cancelled`."""
    created: bool = False
    committed_at: float | None = None
    actor: str | None = None


class NodeEvent(Line, frozen=True, kw_only=True):
    """A node registered, renewed its lease, left or was found dead."""

    order: int
    at: float
    node_id: int
    role: str
    name: str
    lease_until: float
    ended: bool = False
    """`ended_at` is set."""


class ShardEvent(Line, frozen=True, kw_only=True):
    """A row of `shards` changed."""

    order: int
    at: float
    shard: int
    owner_id: int | None
    epoch: int


class LeaseEvent(Line, frozen=True, kw_only=True):
    """A row of `leases` changed: taken, renewed, or dropped (`lease_until` not later than `at`)."""

    order: int
    at: float
    name: str
    """`leader`."""
    node_id: int
    epoch: int
    lease_until: float


class GateEvent(Line, frozen=True, kw_only=True):
    """A row of `gate_slots` was inserted (`taken`) or deleted."""

    order: int
    at: float
    gate: str
    """`kind:name` as in `gates`: `key:customer-7`, `job:<job_id>`, `queue:reports`, `namespace:default`."""
    run_id: str
    taken: bool
    capacity: int | None = None
    """The gate's capacity at that moment; None: any number."""


class JobRow(Line, frozen=True, kw_only=True):
    """A job at the final read."""

    job_id: str
    status: str
    """`active`, `paused` or `cancelled`."""
    version: int
    name: str = ""
    key: str | None = None
    """The idempotency key it was submitted with, which the workload also writes into a label of the job."""


class RunRow(Line, frozen=True, kw_only=True):
    """A run at the final read, from `live_runs` or from `runs`. A run in both is two rows."""

    run_id: str
    job_id: str
    scheduled_for: float
    state: str
    cause: str
    version: int
    attempt: int = 0
    live: bool = False
    """From `live_runs`."""
    reason: str | None = None
    ready_at: float | None = None
    """Of live rows."""
    fence: int | None = None
    executor_id: int | None = None
    started_at: float | None = None
    ended_at: float | None = None


class AttemptRow(Line, frozen=True, kw_only=True):
    """A row of `attempts` at the final read: a try that did not finish its run."""

    run_id: str
    attempt: int
    state: str
    fence: int | None = None
    executor_id: int | None = None
    reason: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    late_state: str | None = None
    late_at: float | None = None
    """An outcome that came after the fence had passed on, and was refused."""


class LedgerRow(Line, frozen=True, kw_only=True):
    """A row of `ledger_ranges`: due times that made no run."""

    job_id: str
    first_due: float
    last_due: float
    count: int
    state: str
    reason: str
    version: int | None = None
    """Of the job, by whose schedule they were due."""
    at: float | None = None
    """When it was written, from a trigger; it is the moment of planning."""
