"""The truth, as the rooms need it: one protocol per noun.

Every write that carries a fence, an epoch or an expected value changes nothing when that value has passed; the
answer says which rows it changed. Methods take many; one is a list of one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

import msgspec

from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange
from hourhand.model.demands import NO_DEMANDS, Demands
from hourhand.model.job import Job, JobDefinition
from hourhand.model.keys import UniqueKey
from hourhand.model.node import Orders, Renewal
from hourhand.model.run import Attempt, Claim, Run
from hourhand.model.schedule import Timing
from hourhand.model.states import JobState, RunState
from hourhand.ports.database_time import HearTime, hear_nothing
from hourhand.ports.ends import Finish as Finish  # noqa: PLC0414 - callers find all rows of the store here
from hourhand.ports.ends import Requeue as Requeue  # noqa: PLC0414

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""Before everything that falls due."""
NEVER: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""Where cursors stand in the timetable that a pause holds: after everything that falls due."""


_T = TypeVar("_T")


class Walked(list[_T]):
    """What a walk over much found, newest first. It ends when it has looked at enough."""

    def __init__(self, found: Iterable[_T] = (), reached: UUID | None = None) -> None:
        super().__init__(found)
        self.reached = reached
        """Where it gave up: behind this id nothing has been looked at. None: there is nothing further, or the page is
        full."""


class NewJob(msgspec.Struct, frozen=True):
    """A job ready to be stored, and what its first moments look like."""

    job_id: UUID
    namespace_id: int
    definition: JobDefinition
    created_at: datetime
    created_by: str
    fires: Sequence[datetime]
    """Due times inside the horizon: their runs are inserted in the same transaction. Of a job that runs once this, or
    else `next_due`, is the one instant of its timing."""
    next_due: datetime | None
    """Where the cursor stands afterwards; None when nothing further falls due."""
    unique: UniqueKey | None = None
    """Stored through a `SubmissionStore`, which looks after it."""
    plain_payload: bytes | None = None
    """Its payload as JSON, of a plain job: one that runs once and says nothing beyond the basics."""


class JobStore(Protocol):
    async def insert_jobs(self, jobs: Sequence[NewJob]) -> None:
        """Stores all or none; returns after the commit."""

    async def get_job(self, namespace_id: int, job_id: UUID) -> Job | None: ...

    async def get_jobs(self, wanted: Sequence[tuple[int, UUID]]) -> Mapping[tuple[int, UUID], Job]:
        """Those that are there, by namespace and id."""

    async def runs_to_come(self, job_id: UUID, now: datetime) -> int | None:
        """How many due times later than now may make a run, of a job that has a budget of them."""

    async def list_jobs(
        self, namespace_id: int, before: UUID | None, limit: int, skip: int | None, filters: Mapping[str, Any]
    ) -> Walked[Job]:
        """Newest first, jobs with an id below `before`. With a name those that recur come first, then those that run
        once. `skip`: how many to leave out, for those who cannot go on behind `reached`."""

    async def change_job(
        self,
        namespace_id: int,
        job_id: UUID,
        definition: JobDefinition,
        expected_version: int,
        cursor: datetime | None,
        now: datetime,
        changed_by: str,
    ) -> list[UUID] | None:
        """Replaces the definition, keeps the old one as a version, withdraws unstarted future runs and sets the cursor,
        in one transaction. The answer names runs that an executor already holds; None when the version was not the
        expected one."""

    async def set_status(
        self,
        namespace_id: int,
        job_id: UUID,
        state: JobState,
        cursor: datetime | None,
        reason: str | None,
        now: datetime,
        expected_version: int | None = None,
        *,
        by: str = "",
        until: datetime | None = None,
        catch_up: CatchUp = CatchUp.NONE,
    ) -> list[UUID] | None:
        """Pauses, resumes or cancels: withdraws unstarted future runs (cancel: all waiting ones end as cancelled,
        running ones are asked to stop) and sets or drops the cursor. Names the runs an executor already holds; None,
        and nothing is changed, when the job was cancelled meanwhile or has not the expected version. `by` and `until`
        are of a pause; a paused job keeps the beginning of its pause. `catch_up`: what of it is run when resumed."""


# Structs, as are plans: one of each is made for every occurrence, in a fifth of the time.
class Cursor(msgspec.Struct, frozen=True):
    job_id: UUID
    next_fire: datetime
    version: int
    timing: Timing
    catchup: CatchUpPolicy
    runs_left: int | None = None
    """How many runs its schedule may still make; None: any number."""
    is_apart: bool = False
    """See `Timing.is_apart`; known beforehand, because it is asked for every cursor that falls due."""


class Move(msgspec.Struct, frozen=True):
    """A cursor's step: the runs it makes, what it missed, where it goes."""

    job_id: UUID
    expected: datetime
    version: int
    fires: Sequence[datetime]
    missed: Sequence[MissedRange]
    next_fire: datetime | None
    starts: Sequence[datetime] | None = None
    """When each run may start; None: at its due time."""
    is_apart: bool = False
    """Of a job that has a budget, starts of its own, or calendars: see `Timing.is_apart`."""


class TimetableStore(Protocol):
    async def fire_once(
        self, node_id: int, epoch: int, until: datetime, limit: int, since: datetime = EPOCH
    ) -> list[datetime]:
        """Turns due cursors of jobs that run once into live runs. The answer has one ready time per run made. What is
        older than `since` is passed over, here and below."""

    async def due_cursors(
        self, node_id: int, epoch: int, until: datetime, limit: int, since: datetime = EPOCH, shard: int = 0
    ) -> tuple[list[Cursor], bool]:
        """Recurring jobs of own shards that fall due up to `until`, earliest first, at one instant by their shards; and
        whether there may be more. Of those at `since` itself lower shards than `shard` are passed over."""

    async def advance_cursors(self, node_id: int, epoch: int, moves: Sequence[Move], now: datetime) -> list[datetime]:
        """Moves cursors that still stand where they are expected to. One ready time per run made. A run of a job that
        does not overlap waits to be judged when an earlier one that is due by `now` is not finished."""

    async def next_cursor(self, since: datetime = EPOCH, hear_time: HearTime = hear_nothing) -> datetime | None:
        """When the next job of any shard falls due. `hear_time` is called with the database's time."""


class Head(msgspec.Struct, frozen=True):
    """The oldest queued run of a lane and priority."""

    lane_id: int
    priority: int
    ready_at: datetime


class Lane(msgspec.Struct, frozen=True):
    """What an executor chooses its work by."""

    namespace_id: int
    queue: str
    needs: str
    careful: bool = False
    """Its runs pass gates: they are claimed with a look at each, and never ahead of time."""
    held: bool = False
    """Its queue is paused."""
    weight: int = 1
    """Its namespace's share among others."""
    demands: Demands = NO_DEMANDS
    """What its runs demand of an executor beyond what they need."""


class Wish(msgspec.Struct, frozen=True):
    """What to claim from one head. Heads of one share have a common limit."""

    head: Head
    share: int
    limit: int


def nothing_begun(_count: int) -> bool:
    return False


class Claimed(msgspec.Struct, frozen=True):
    claims: list[Claim]
    shares: Mapping[int, int] = {}
    """How many of them each share has got."""
    put_aside: int = 0
    """Runs that were looked at and must wait: behind a gate, or behind an earlier run of their job."""


@dataclass(frozen=True, slots=True)
class Held:
    """A run in the hands of an executor."""

    run_id: UUID
    fence: int
    failures: int
    losses: int
    state: RunState
    started_at: datetime | None
    at_most_once: bool = False
    gated: bool = False
    """It holds a place in a gate, perhaps since after its claim."""


class LiveRunStore(Protocol):
    async def peek_ready(self, lanes: Sequence[int], hear_time: HearTime = hear_nothing) -> list[Head]:
        """The oldest queued run, due or not, of every lane and priority that has one. If there is any, `hear_time` is
        called with the database's time."""

    async def peek_known(self, heads: Sequence[Head], hear_time: HearTime = hear_nothing) -> list[Head]:
        """The same for the lanes and priorities of earlier heads, without what is older than those. Takes no longer
        when much is finished that cannot be cleared away."""

    async def is_crowd(self, head: Head, until: datetime, count: int) -> bool:
        """Whether at least `count` queued runs of a head's lane and priority are ready from its time to `until`."""

    async def claim_runs(
        self,
        executor_id: int,
        wishes: Sequence[Wish],
        now: datetime,
        until: datetime,
        others_until: datetime | None = None,
        heard: Callable[[int], bool] = nothing_begun,
    ) -> Claimed:
        """Claims runs of plain lanes that are ready by `until`, taking the heads of each share in their order up to its
        limit. Every claim carries a new fence, larger than any before. `others_until`: others may be claiming what is
        ready by then at the same moment; None: they claim no earlier. `heard` is told how many it has got, before these
        are read; if it has begun a task, that takes its first step before."""

    async def claim_carefully(self, executor_id: int, wishes: Sequence[Wish], now: datetime) -> Claimed:
        """The same for lanes with gates: of the runs that are due, those that every one of their gates lets through."""

    async def claim_parts(self, executor_id: int, lane_id: int, now: datetime, limit: int) -> Claimed:
        """Of a lane of parts, those that are for this executor."""

    async def start_runs(self, starts: Sequence[tuple[UUID, int, datetime]]) -> None:
        """Marks (run, fence, started_at) as running."""

    async def finish_runs(self, finishes: Sequence[Finish]) -> set[UUID]:
        """Moves runs into history; answers those it moved. The others were late: their fence had passed."""

    async def requeue_runs(self, requeues: Sequence[Requeue]) -> set[UUID]:
        """Brings runs back to the queue; answers which. The others were late, or are being cancelled."""

    async def cancelling_runs(self, executor_id: int) -> list[tuple[UUID, int]]:
        """Runs (with fences) the executor holds and must end."""

    async def held_by(self, executor_ids: Sequence[int], limit: int) -> list[Held]: ...

    async def note_late(self, said: Sequence[tuple[UUID, int, RunState, datetime]]) -> set[UUID]:
        """Keeps what attempts (run, fence) came to, and when, although their fence had passed. Answers which of them
        are really late: the others were recorded before, and only the answer was lost."""

    async def count_losses(self, run_ids: Sequence[UUID], since: datetime) -> dict[UUID, int]:
        """How often runs were lost with their executor since then; those that never were are left out."""


class OpenCompletion(Protocol):
    """A transaction in which a job writes, on its own connection."""

    connection: Any

    async def complete(self, finish: Finish) -> bool:
        """Commits the run's end too. False, and nothing: another has it, or it is cancelled. Raises CommitUnknown."""

    def is_lost_by(self, error: BaseException) -> bool: ...

    async def close(self) -> None:
        """Takes back what was not committed. Harmless when it was closed before."""


class CompletionStore(Protocol):
    async def begin(self) -> OpenCompletion: ...

    async def is_recorded(self, finish: Finish) -> bool:
        """Whether exactly this end is recorded, once a commit that is still under way has been decided."""


class RunStore(Protocol):
    async def get_run(self, namespace_id: int, run_id: UUID) -> Run | None: ...

    async def list_runs(
        self,
        namespace_id: int,
        job: Job | None,
        states: Sequence[RunState],
        before: UUID | None,
        limit: int,
        *,
        reasons: Sequence[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Walked[Run]:
        """Newest first, live and finished ones as one list. `since` and `until` go by the time a run stands for or was
        asked for."""

    async def list_attempts(self, run_id: UUID) -> list[Attempt]: ...

    async def insert_manual_run(
        self,
        run_id: UUID,
        job: Job,
        namespace_id: int,
        requested_by: str,
        note: str | None,
        payload: Any,
        now: datetime,
        overlap: str | None = None,
        behind: bool = False,
    ) -> bool:
        """False when the job was changed or cancelled meanwhile: there is none. `behind`: it waits for its turn."""

    async def list_retries(self, run_id: UUID) -> list[UUID]:
        """The runs that were asked for to repeat this one, oldest first."""

    async def pick_retries(
        self, namespace_id: int, job_id: UUID | None, states: Sequence[RunState], reasons: Sequence[str] | None,
        since: datetime | None, until: datetime | None, before: UUID | None, again: bool, limit: int,
    ) -> Walked[UUID]:  # fmt: skip
        """Finished runs to repeat, newest first; unless `again`, without those that a retry already repeats or has
        repeated with success."""

    async def retry_runs(
        self,
        namespace_id: int,
        new_ids: Mapping[UUID, UUID],
        seen: Sequence[UUID],
        requested_by: str,
        note: str | None,
        again: bool,
        now: datetime,
    ) -> list[UUID]:
        """Repeats finished runs, each under its new id; which of these were made. Left out are runs of cancelled jobs,
        runs of which a later repetition is in `seen`, and unless `again` those that are repeated already: two who ask
        at once make one repetition."""

    async def cancel_runs(
        self, namespace_id: int, run_ids: Sequence[UUID], reason: str, now: datetime
    ) -> dict[UUID, bool]:
        """For each run that could be cancelled: True if it ended at once, False if its executor was asked to stop."""

    async def count_live(self, namespace_id: int) -> dict[RunState, int]:
        """Live runs by state."""

    async def count_finished(self, namespace_id: int, since: datetime) -> dict[RunState, int]:
        """Finished runs of due times since then by state. Takes the longer the more there are."""


@dataclass(frozen=True, slots=True)
class NodeRow:
    node_id: int
    role: str
    name: str
    started_at: datetime
    lease_until: datetime
    facts: Mapping[str, Any]
    now: datetime


@dataclass(frozen=True, slots=True)
class SweptNode:
    node_id: int
    role: str
    ended: bool
    expired: bool
    seconds_left: float
    """Of its lease."""
    orders: Orders = Orders.WORK


class NodeStore(Protocol):
    async def register_node(
        self, role: str, name: str, lease_seconds: float, facts: Mapping[str, Any], orders: Orders = Orders.WORK
    ) -> int: ...

    async def renew_node(self, node_id: int, lease_seconds: float, facts: Mapping[str, Any]) -> Renewal | None:
        """Renews the lease; the database's time and the node's orders, or None when it was found dead meanwhile."""

    async def end_node(self, node_id: int) -> None: ...

    async def present_nodes(self) -> list[NodeRow]: ...

    async def sweep_nodes(self) -> list["SweptNode"]:
        """Every node that has not ended, and every ended one whose runs were not returned yet."""

    async def bury_nodes(self, node_ids: Sequence[int]) -> list[int]:
        """Ends those of the nodes whose lease has run out by now; which."""

    async def database_times(self) -> tuple[datetime, datetime]:
        """What the database's clock shows, and what it showed when the database was started."""

    async def mark_returned(self, node_ids: Sequence[int]) -> None:
        """Nothing is in the hands of these ended nodes any more."""

    async def stray_executors(self) -> list[int]:
        """Ended executors whose number live runs still carry."""

    async def take_lease(self, name: str, node_id: int, lease_seconds: float) -> int | None:
        """Takes or renews; the epoch, or None when another holds it."""

    async def drop_lease(self, name: str, node_id: int) -> None: ...

    async def lease_seconds_left(self, name: str) -> float:
        """How long nobody but its holder can have it."""

    async def leader(self) -> str | None: ...

    async def assign_shards(self, node_id: int, leader_epoch: int, owners: Mapping[int, int]) -> int:
        """Writes the owners that changed; how many. Nothing when the leader's lease has passed."""

    async def owned_shards(self, node_id: int) -> tuple[int, int]:
        """How many shards the node owns, and the newest epoch of all."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    token_id: UUID
    name: str
    purpose: str
    namespace_id: int | None
    namespace: str | None


class TokenStore(Protocol):
    async def insert_token(
        self,
        token_id: UUID,
        name: str,
        digest: bytes,
        purpose: str,
        lifetime_seconds: float | None,
        namespace_id: int | None = None,
    ) -> None:
        """Without a namespace the token works in all of them; without a lifetime, for ever."""

    async def find_token(self, digest: bytes) -> TokenRow | None: ...

    async def use_login_code(self, digest: bytes) -> bool: ...

    async def revoke_token(self, token_id: UUID) -> bool: ...


class NameStore(Protocol):
    async def find_namespace(self, name: str) -> int | None: ...

    async def lanes(self) -> dict[int, Lane]:
        """Every lane, as it is now."""
