"""What a caller may ask of backfills: see what one would do, start it, follow it, pause, resume, cancel."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.model.backfill import (
    PARALLELISM_MAX,
    RUNS_MAX,
    Backfill,
    BackfillRequest,
    BackfillState,
    Existing,
    dues_from,
    estimate_seconds,
    first_due_from,
    is_left_out,
)
from hourhand.model.errors import Conflict, Fault, InvalidFields, NotFound
from hourhand.model.job import Job
from hourhand.model.local_time import InstantFault, format_instant, parse_instant
from hourhand.model.policy import Overlap
from hourhand.model.schedule import Timing
from hourhand.model.states import JobState, Reason
from hourhand.operations.backfill_requests import BackfillPage, BackfillPlan, BackfillProgress, StartBackfillRequest
from hourhand.operations.calendars import with_calendars
from hourhand.operations.jobs import Clock, Ids
from hourhand.operations.policy import Refuse, read_rate
from hourhand.operations.requests import Caller
from hourhand.operations.selection import NOTE_CHARS_MAX
from hourhand.ports.backfill_stores import BackfillStore, NewBackfill
from hourhand.ports.calendar_stores import CalendarStore
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.stores import JobStore, RunStore

SLICE: Final = 200
"""Due times that are computed in one go: others want to be answered meanwhile."""
LOOK_MAX: Final = 2000
"""Due times whose runs are looked for by one statement."""
CANCEL_MAX: Final = 1000
OPEN_MAX: Final = 100
"""Backfills of a namespace that are not over."""
LEARNED_RUNS: Final = 50
"""How many of a job's newest runs say how long one takes."""

# The class below has a method `list`, which inside it hides the type of that name.
Texts = list[str]
Faults = list[Fault]


class BackfillOperations:
    def __init__(
        self,
        backfills: BackfillStore,
        jobs: JobStore,
        runs: RunStore,
        calendars: CalendarStore,
        clock: Clock,
        ids: Ids,
        bus: EventBus,
    ) -> None:
        self._backfills = backfills
        self._jobs = jobs
        self._runs = runs
        self._calendars = calendars
        self._clock = clock
        self._ids = ids
        self._bus = bus

    async def plan(self, caller: Caller, job_id: UUID, given: StartBackfillRequest) -> BackfillPlan:
        """What `start` would do; nothing is stored and nothing runs."""
        job = await self._job(caller, job_id)
        request = self._request(job, given)
        dues = await _due_times(await self._timing(caller, job), request)
        left_out = await self._left_out(caller, job, request, dues)
        run_seconds = await self._backfills.usual_seconds(job, LEARNED_RUNS)
        return BackfillPlan(
            job_id,
            job.definition.name,
            request.start,
            request.end,
            len(dues),
            left_out,
            dues[0],
            dues[-1],
            estimate_seconds(len(dues) - left_out, request.parallelism, request.rate, run_seconds),
            run_seconds,
            _notes(job, request, run_seconds),
        )

    async def start(self, caller: Caller, job_id: UUID, given: StartBackfillRequest) -> BackfillProgress:
        """Stores it; the leading scheduler releases its runs."""
        for _ in range(5):
            job = await self._job(caller, job_id)
            request = self._request(job, given)
            timing = await self._timing(caller, job)
            dues = await _due_times(timing, request)
            now = self._clock.now()
            new = NewBackfill(
                self._ids.new_id(now), caller.namespace_id, job_id, job.version, request, timing, dues[0], dues[-1],
                len(dues), now, caller.name,
            )  # fmt: skip
            refused = await self._backfills.insert_backfill(new, OPEN_MAX)
            if refused is None:
                self._bus.publish(Topic.BACKFILLS)
                return await self.get(caller, new.backfill_id)
            if refused == "open":
                message = f"the namespace has {OPEN_MAX} backfills that are not over: wait for one, or cancel it"
                raise Conflict("too-many-backfills", message)
            if isinstance(refused, UUID):
                message = f"backfill {refused} of this job is not over and has due times of this range"
                raise Conflict("backfill-overlaps", f"{message}; wait for it, or cancel it", backfill_id=str(refused))
        raise Conflict("busy", "the job is being changed by others again and again; try once more")

    async def faults_of_start(self, caller: Caller, job_id: UUID, given: StartBackfillRequest) -> Faults:
        """What `start` would refuse. For bodies with faults elsewhere, to tell all at once."""
        job = await self._job(caller, job_id)
        faults: list[Fault] = []
        _read(job, given, self._clock.now(), faults.append)
        return faults

    async def get(self, caller: Caller, backfill_id: UUID) -> BackfillProgress:
        backfill = await self._backfills.get_backfill(caller.namespace_id, backfill_id)
        if backfill is None:
            raise NotFound("backfill", backfill_id)
        return BackfillProgress(backfill, await self._estimate(caller, backfill))

    async def list(
        self, caller: Caller, job_id: UUID | None, states: Sequence[BackfillState], before: UUID | None, limit: int
    ) -> BackfillPage:
        wanted = states or list(BackfillState)
        found = await self._backfills.list_backfills(caller.namespace_id, job_id, wanted, before, limit + 1)
        return BackfillPage(found[:limit], found[limit - 1].backfill_id if len(found) > limit else None)

    async def pause(self, caller: Caller, backfill_id: UUID, reason: str | None) -> BackfillProgress:
        """Releases nothing more; what is released goes on. Doing it twice changes nothing but the reason,
        if there is one."""
        _check_reason(reason)
        return await self._set_state(caller, backfill_id, BackfillState.PAUSED, reason)

    async def resume(self, caller: Caller, backfill_id: UUID) -> BackfillProgress:
        progress = await self._set_state(caller, backfill_id, BackfillState.RUNNING, None)
        self._bus.publish(Topic.BACKFILLS)
        return progress

    async def cancel(self, caller: Caller, backfill_id: UUID, reason: str | None) -> BackfillProgress:
        """Ends it: nothing more is released, waiting runs end at once, running ones are asked to stop. Doing it twice
        changes nothing."""
        _check_reason(reason)
        backfill = (await self.get(caller, backfill_id)).backfill
        if backfill.state is not BackfillState.CANCELLED:
            await self._set_state(caller, backfill_id, BackfillState.CANCELLED, reason)
        run_ids = await self._backfills.unfinished_runs(backfill_id)
        for begin in range(0, len(run_ids), CANCEL_MAX):
            batch = run_ids[begin : begin + CANCEL_MAX]
            for _ in range(3):  # a run that goes back to the queue just between the two statements is missed by both
                done = await self._runs.cancel_runs(
                    caller.namespace_id, batch, Reason.CANCELLED.value, self._clock.now()
                )
                batch = [run_id for run_id in batch if run_id not in done]
                if not batch:
                    break
        self._bus.publish(Topic.CANCEL)
        self._bus.publish(Topic.BACKFILLS)
        return await self.get(caller, backfill_id)

    # --- steps -------------------------------------------------------------------------------------------

    async def _job(self, caller: Caller, job_id: UUID) -> Job:
        job = await self._jobs.get_job(caller.namespace_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        if job.state is JobState.CANCELLED:
            raise Conflict("job-cancelled", "a cancelled job cannot be run: create a new one")
        return job

    async def _timing(self, caller: Caller, job: Job) -> Timing:
        """As the job's calendars leave it now: they count for all of the backfill."""
        return await with_calendars(self._calendars, caller.namespace_id, job.definition.timing)

    def _request(self, job: Job, given: StartBackfillRequest) -> BackfillRequest:
        faults: list[Fault] = []
        request = _read(job, given, self._clock.now(), faults.append)
        if faults or request is None:
            raise InvalidFields(faults)
        return request

    async def _left_out(self, caller: Caller, job: Job, request: BackfillRequest, dues: Sequence[datetime]) -> int:
        if request.existing is Existing.REPEAT:
            return 0
        left_out = 0
        for begin in range(0, len(dues), LOOK_MAX):
            found = await self._backfills.runs_of_dues(caller.namespace_id, job.job_id, dues[begin : begin + LOOK_MAX])
            left_out += sum(is_left_out(states, request.existing) for states in found.values())
        return left_out

    async def _estimate(self, caller: Caller, backfill: Backfill) -> float | None:
        if backfill.state.is_final:
            return None
        job = await self._jobs.get_job(caller.namespace_id, backfill.job_id)
        seconds = None if job is None else await self._backfills.usual_seconds(job, LEARNED_RUNS)
        request = backfill.request
        return estimate_seconds(backfill.remaining + backfill.live, request.parallelism, request.rate, seconds)

    async def _set_state(
        self, caller: Caller, backfill_id: UUID, state: BackfillState, reason: str | None
    ) -> BackfillProgress:
        now = self._clock.now()
        changed = await self._backfills.set_backfill_state(
            caller.namespace_id, backfill_id, state, reason, caller.name, now
        )
        progress = await self.get(caller, backfill_id)
        if not changed:
            said = progress.backfill.state.value
            raise Conflict("backfill-final", f"the backfill is {said} and cannot be {_DONE[state]}")
        return progress


_DONE: Final = {
    BackfillState.PAUSED: "paused",
    BackfillState.RUNNING: "resumed",
    BackfillState.CANCELLED: "cancelled",
}


async def _due_times(timing: Timing, request: BackfillRequest) -> Sequence[datetime]:
    """All of the range, in order. Raises InvalidFields when there are none, or too many."""
    if timing.after_completion is not None:
        message = "the job falls due when a run has ended: no past range has due times of its own"
        raise InvalidFields([Fault("/from", "no-due-times", message, "run it now, as often as is needed")])
    dues: list[datetime] = []
    due = first_due_from(timing, request.start)
    while due is not None and len(dues) <= RUNS_MAX:
        some, due = dues_from(timing, due, request.end, SLICE)
        dues += some
        await asyncio.sleep(0)
    if len(dues) > RUNS_MAX:
        message = f"the range has more than {RUNS_MAX} due times"
        raise InvalidFields([Fault("/to", "out-of-range", message, f"end it by {format_instant(dues[RUNS_MAX])}")])
    if not dues:
        first = timing.next_after(request.start)
        hint = None if first is None else f"the first due time after its beginning is {format_instant(first)}"
        raise InvalidFields([Fault("/from", "no-due-times", "the job has no due time in this range", hint)])
    return dues


def _read(job: Job, given: StartBackfillRequest, now: datetime, refuse: Refuse) -> BackfillRequest | None:
    start = _instant(given.start, "/from", refuse)
    end = _instant(given.end, "/to", refuse)
    if start is not None and end is not None and start >= end:
        refuse(Fault("/to", "empty-window", f"to is not later than from ({format_instant(start)})"))
    if end is not None and end > now:
        message = f"to lies in the future; the server's time is {format_instant(now)}"
        refuse(Fault("/to", "out-of-range", message, "what is still to come runs by itself"))
    existing = _existing(given.existing, refuse)
    overlap = _overlap(given, refuse)
    parallelism = 1 if given.parallelism is None else given.parallelism
    if not 1 <= parallelism <= PARALLELISM_MAX:
        refuse(Fault("/parallelism", "out-of-range", f"parallelism is 1 to {PARALLELISM_MAX}"))
    elif parallelism > 1 and overlap is None and given.overlap is None and not _may_overlap(job):
        own = job.definition.policy.overlap_of(job.definition.timing.only_instant is None).value
        message = f"the job's overlap policy is {own}: its runs go one after the other"
        hint = "say overlap 'allow' with a reason to run them beside each other"
        refuse(Fault("/parallelism", "conflicting-fields", message, hint, beside="/overlap"))
    for text, pointer in ((given.reason, "/reason"), (given.note, "/note")):
        _check_text(text, pointer, refuse)
    rate = read_rate(given.rate, "/rate", refuse)
    if start is None or end is None:
        return None
    return BackfillRequest(start, end, existing, parallelism, rate, overlap, given.reason, given.note)


def _check_text(text: str | None, pointer: str, refuse: Refuse) -> None:
    if text is not None and (len(text) > NOTE_CHARS_MAX or "\x00" in text):
        refuse(Fault(pointer, "invalid-text", f"at most {NOTE_CHARS_MAX} characters, none of them NUL"))


def _check_reason(reason: str | None) -> None:
    faults: list[Fault] = []
    _check_text(reason, "/reason", faults.append)
    if faults:
        raise InvalidFields(faults)


def _instant(given: str | None, pointer: str, refuse: Refuse) -> datetime | None:
    if given is None:
        refuse(Fault(pointer, "required", "is required"))
        return None
    try:
        return parse_instant(given)
    except InstantFault as fault:
        refuse(Fault(pointer, fault.code, str(fault)))
        return None


def _existing(given: str | None, refuse: Refuse) -> Existing:
    if given is None:
        return Existing.SKIP
    if given not in list(Existing):
        allowed = [word.value for word in Existing]
        refuse(Fault("/existing", "unknown-value", f"there is no existing {given[:40]!r}", None, allowed))
        return Existing.SKIP
    return Existing(given)


def _overlap(given: StartBackfillRequest, refuse: Refuse) -> Overlap | None:
    """A job's policy is set aside by name and with a reason, or not at all."""
    if given.overlap is None:
        return None
    if given.overlap != Overlap.ALLOW:
        message = "a backfill obeys the job's overlap policy, or sets it aside with allow"
        refuse(Fault("/overlap", "unknown-value", message, None, [Overlap.ALLOW.value]))
        return None
    if not (given.reason or "").strip():
        refuse(Fault("/reason", "required", "say why the job's overlap policy is set aside"))
    return Overlap.ALLOW


def _may_overlap(job: Job) -> bool:
    return job.definition.policy.overlap_of(job.definition.timing.only_instant is None) is Overlap.ALLOW


def _notes(job: Job, request: BackfillRequest, run_seconds: float | None) -> Texts:
    notes = []
    if run_seconds is None:
        notes.append("no run of this job has succeeded yet, so nobody knows how long one takes")
    recurring = job.definition.timing.only_instant is None
    own = job.definition.policy.overlap_of(recurring)
    if request.overlap is None and own is not Overlap.ALLOW:
        notes.append("its runs wait for their turn, one after the other, because the job does not overlap")
        if own is Overlap.SKIP and recurring and job.state is JobState.SCHEDULED:
            notes.append(
                "due times of the job that come while one of them is not finished are skipped, as its overlap "
                "policy says; overlap 'allow' with a reason runs the backfill beside them"
            )
    if job.definition.timing.calendars:
        notes.append("due times that the job's calendars leave out, as they are now, are no part of it")
    if job.definition.policy.gated:
        notes.append("the job's own limits count for the backfill too")
    return notes
