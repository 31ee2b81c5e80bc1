"""What a caller may ask of jobs: submit, read, change, pause, resume, cancel, run now."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from hourhand.model.catchup import CatchUp, plan
from hourhand.model.errors import Conflict, DuplicateJob, Fault, InvalidFields, NotFound
from hourhand.model.ids import scheduled_run_id
from hourhand.model.job import Job, JobDefinition
from hourhand.model.keys import IdempotencyKey
from hourhand.model.overlap import Fate, Sibling, judge
from hourhand.model.policy import KeyFault, OnNextDue, Overlap, concurrency_key
from hourhand.model.secret_refs import references
from hourhand.model.states import LIVE_STATES, JobState, RunState
from hourhand.model.templates import render, zone_or_utc
from hourhand.operations.definition import (
    changes_timing,
    changes_work,
    define_change,
    define_job,
    faults_with_template,
    has_null,
)
from hourhand.operations.first_moments import PauseLooks, around_pauses, makes_recurring_runs
from hourhand.operations.group_commit import GroupCommit
from hourhand.operations.group_read import GroupRead
from hourhand.operations.next_runs import NextRuns
from hourhand.operations.offers import Offers
from hourhand.operations.pausing import PauseWish, pause_faults, read_pause
from hourhand.operations.placement import may_lack_executors, nobody_offers, placement_warnings
from hourhand.operations.plain_jobs import PlainSubmissions
from hourhand.operations.references import LookAtTargets, References, names_others, unknown_secret
from hourhand.operations.requests import (
    Caller,
    Changed,
    JobFilter,
    JobPage,
    JobPatch,
    JobRequest,
    PauseRequest,
    RunNowRequest,
    Submitted,
    SubmittedMany,
)
from hourhand.operations.submissions import KeyedSubmissions
from hourhand.operations.unique_keys import repeated_unique_keys, unique_key_of
from hourhand.ports.artifact_stores import ArtifactStore
from hourhand.ports.calendar_stores import CalendarStore
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.job_kind import JobKind
from hourhand.ports.secret_stores import SecretGrants
from hourhand.ports.stores import JobStore, NewJob, NodeRow, RunStore
from hourhand.ports.submission_stores import Duplicates, Submission, SubmissionStore
from hourhand.runtime.aside import Breath

"""Jobs of a batch that are checked in one go."""
CHANGES_TRIED_MAX = 50
"""In each round of writers that meet, one comes through."""
DUPLICATES_MAX = 100
"""Jobs of a batch that are told to be there already; more help nobody."""

# The class below has a method `list`, which inside it hides the type of that name.
Uuids = list[UUID]
Faults = list[Fault]
Jobs = list[Job]


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


class PresentNodes(Protocol):
    async def present_nodes(self) -> list[NodeRow]: ...


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    horizon_seconds: float = 1.7
    """A job due within this time gets its run in the submitting transaction. The same as the planner's horizon."""


class JobOperations:
    def __init__(
        self,
        jobs: JobStore,
        submissions: SubmissionStore,
        runs: RunStore,
        kinds: Mapping[str, JobKind],
        clock: Clock,
        ids: Ids,
        bus: EventBus,
        settings: SubmitSettings,
        calendars: CalendarStore | None = None,
        nodes: PresentNodes | None = None,
        pauses: PauseLooks | None = None,
        secrets: SecretGrants | None = None,
        look_at_targets: LookAtTargets | None = None,
        artifacts: ArtifactStore | None = None,
        offers: Offers | None = None,
    ) -> None:
        self._jobs = jobs
        self._runs = runs
        self._kinds = kinds
        self._clock = clock
        self._ids = ids
        self._bus = bus
        self._horizon = timedelta(seconds=settings.horizon_seconds)
        self._group = GroupCommit(jobs.insert_jobs)
        self._offers = offers or Offers()
        self.plain = PlainSubmissions(
            kinds, clock, ids, bus, self._horizon, self._group, jobs.insert_jobs, self._offers
        )
        self._reads = GroupRead(jobs.get_jobs)
        self._keyed = KeyedSubmissions(submissions)
        self._next_runs = NextRuns(calendars)
        self._nodes = nodes
        self._pauses = pauses
        self._references = References(calendars, secrets, look_at_targets, artifacts)

    async def create(self, caller: Caller, request: JobRequest, key: IdempotencyKey | None = None) -> Submitted:
        """Stores one job together with whatever else arrives at the moment; returns after the commit. With a key that
        the same request came with before, nothing is stored and its job is the answer."""
        now = self._clock.now()
        try:
            new = self._new_job(caller, request, now)
            if names_others(new.definition):
                await self._references.refuse_missing(caller, (new.job_id, new.definition), now)
        except InvalidFields as wrong:
            earlier = await self._earlier(caller, key, now)
            if not earlier:
                raise await self._references.with_unknown(caller, request.calendars, wrong) from None
            return Submitted(await self.get(caller, earlier[0]), replayed=True)
        if makes_recurring_runs(new):
            [new] = await around_pauses(self._pauses, [new], now)
        if key is None and new.unique is None:
            await self._group.store(new)
        elif earlier := await self._submit([new], key, lambda _: "/unique_key"):
            return Submitted(await self.get(caller, earlier[0]), replayed=True)
        if new.fires:
            self._bus.publish(Topic.READY)
        upcoming = new.fires[0] if new.fires else new.next_due
        job = Job(
            new.job_id, caller.namespace, new.definition, 1, JobState.SCHEDULED, upcoming, new.created_at, caller.name,
            new.created_at, unique_key=request.unique_key,
        )  # fmt: skip
        if request.calendars:
            [job] = await self._next_runs.shown(caller.namespace_id, [job])
        return Submitted(await self._with_warnings(job))

    async def create_many(
        self, caller: Caller, requests: Sequence[JobRequest], key: IdempotencyKey | None = None
    ) -> SubmittedMany:
        """Stores all or none, in a transaction of their own. Faults are named with the place in the list. A key stands
        for all of them."""
        now = self._clock.now()
        faults: Faults = []
        news = []
        breath = Breath()
        for place, request in enumerate(requests):
            if breath.is_out():  # a large batch, or one of dear schedules, must not keep everybody else waiting
                await breath.take()
            try:
                news.append(self._new_job(caller, request, now))
            except InvalidFields as wrong:
                faults += [fault.under(f"/{place}") for fault in wrong.faults]
                if len(faults) >= 1000:
                    break
        faults += repeated_unique_keys(requests)
        if not faults and any(names_others(new.definition) for new in news):
            faults = await self._references.faults_of_many(caller, [(new.job_id, new.definition) for new in news], now)
        if faults:
            earlier = await self._earlier(caller, key, now)
            if not earlier:
                raise InvalidFields(faults)
            return SubmittedMany(earlier, replayed=True)
        news = await around_pauses(self._pauses, news, now)
        if news:
            if key is None and all(new.unique is None for new in news):
                await self._jobs.insert_jobs(news)
            elif earlier := await self._submit(news, key, "/{}/unique_key".format):
                return SubmittedMany(earlier, replayed=True)
            if any(new.fires for new in news):
                self._bus.publish(Topic.READY)
        return SubmittedMany([new.job_id for new in news])

    def faults_of(self, caller: Caller, request: JobRequest) -> Faults:
        """What `create` would refuse; nothing is stored. For requests with faults elsewhere, to tell all at once."""
        now = self._clock.now()
        try:
            define_job(request, self._ids.new_id(now), now, caller.name, self._kinds)
        except InvalidFields as wrong:
            return wrong.faults
        return []

    async def faults_of_change(self, caller: Caller, job_id: UUID, patch: JobPatch) -> Faults:
        """The same of `update`."""
        old = await self.get(caller, job_id)
        try:
            self._changed(old, patch, self._clock.now())
        except InvalidFields as wrong:
            return wrong.faults
        return []

    async def faults_of_run(self, caller: Caller, job_id: UUID, request: RunNowRequest) -> Faults:
        """The same of `run_now`."""
        job = await self.get(caller, job_id)
        return self._run_faults(job.definition, request)

    async def get(self, caller: Caller, job_id: UUID) -> Job:
        job = await self._reads.get((caller.namespace_id, job_id))
        if job is None:
            raise NotFound("job", job_id)
        if job.definition.timing.calendars:
            [job] = await self._next_runs.shown(caller.namespace_id, [job])
        return await self._with_warnings(job)

    async def _with_warnings(self, job: Job) -> Job:
        definition = job.definition
        if may_lack_executors(definition):
            nodes = [] if self._nodes is None else await self._nodes.present_nodes()
            return replace(job, warnings=placement_warnings(definition, nodes))
        if job.state in (JobState.SCHEDULED, JobState.PAUSED) and self._offers.lack(definition.queue, definition.needs):
            return replace(job, warnings=[nobody_offers(definition)])
        return job

    async def list(
        self, caller: Caller, filter: JobFilter, before: UUID | None, limit: int, skip: int | None = None
    ) -> JobPage:
        """`skip`: for those who know no cursor but a page number."""
        filters = {name: getattr(filter, name) for name in filter.__struct_fields__}
        jobs = await self._jobs.list_jobs(caller.namespace_id, before, limit + 1, skip, filters)
        shown = await self._next_runs.shown(caller.namespace_id, jobs[:limit])
        return JobPage(shown, jobs[limit - 1].job_id if len(jobs) > limit else jobs.reached)

    async def update(self, caller: Caller, job_id: UUID, patch: JobPatch, if_version: int | None = None) -> Changed:
        """Changes the fields given. Unstarted runs of later due times are replaced by those of the new version. Without
        a version the last writer wins: whoever was overtaken begins anew with what is there now."""
        for turn in range(CHANGES_TRIED_MAX):
            if turn:
                await asyncio.sleep(random.uniform(0, min(turn * 0.002, 0.05)))  # noqa: S311 - not all at once again
            old = await self.get(caller, job_id)
            refuse_other_version(old, if_version)
            if old.state is JobState.CANCELLED:
                raise Conflict("job-cancelled", "a cancelled job cannot be changed: create a new one")
            now = self._clock.now()
            try:
                definition, cursor = self._changed(old, patch, now)
            except InvalidFields as wrong:
                raise await self._references.with_unknown(caller, patch.calendars, wrong) from None
            await self._references.refuse_missing(
                caller, (job_id, definition), now, timing=changes_timing(patch), payload=changes_work(patch)
            )
            too_late = await self._jobs.change_job(
                caller.namespace_id, job_id, definition, old.version, cursor, now, caller.name
            )
            if too_late is not None:
                self._bus.publish(Topic.READY)
                return Changed(await self.get(caller, job_id), too_late)
        raise Conflict("busy", "the job is being changed by others again and again; try once more")

    async def pause(
        self,
        caller: Caller,
        job_id: UUID,
        reason: str | None,
        until: datetime | None = None,
        *,
        if_version: int | None = None,
    ) -> Changed:
        """No due time that is later than the answer makes a run, until `until` or until somebody resumes the job. A job
        that is paused stays so since when it was, for the new reason."""
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        _refuse_final(job, "paused")
        now = self._clock.now()
        too_late = await self._jobs.set_status(
            caller.namespace_id, job_id, JobState.PAUSED, None, reason, now, if_version, by=caller.name, until=until
        )
        if too_late is None:
            refuse_other_version(await self.get(caller, job_id), if_version)
            raise Conflict("job-final", "the job has just been cancelled and cannot be paused")
        return Changed(await self.get(caller, job_id), too_late)

    def read_pause(self, request: PauseRequest) -> PauseWish:
        """What `pause` takes, from what was sent. Raises InvalidFields."""
        return read_pause(request, self._clock.now())

    def faults_of_pause(self, request: PauseRequest) -> Faults:
        """What it would refuse."""
        return pause_faults(request, self._clock.now())

    async def resume(
        self, caller: Caller, job_id: UUID, catch_up: CatchUp = CatchUp.NONE, *, if_version: int | None = None
    ) -> Changed:
        """Goes on from now; of what fell into the pause only that is run which is to be caught up. A job that runs once
        and whose time passed during the pause runs at once."""
        for _ in range(5):
            job = await self.get(caller, job_id)
            refuse_other_version(job, if_version)
            _refuse_final(job, "resumed")
            if job.state is JobState.SCHEDULED:
                return Changed(job, [])
            timing = job.definition.timing
            now = self._clock.now()
            cursor = timing.next_after(now)
            once = timing.only_instant
            if cursor is None and once is not None and not await self._has_run(caller, job, once):
                cursor = once
            too_late = await self._jobs.set_status(
                caller.namespace_id, job_id, JobState.SCHEDULED, cursor, None, now, job.version, catch_up=catch_up
            )
            if too_late is not None:
                self._bus.publish(Topic.READY)
                return Changed(await self.get(caller, job_id), too_late)
        raise Conflict("busy", "the job is being changed by others again and again; try once more")

    async def cancel(self, caller: Caller, job_id: UUID, *, if_version: int | None = None) -> Changed:
        """Ends the job: waiting runs end at once, running ones are asked to stop. Doing it twice changes nothing."""
        job = await self.get(caller, job_id)
        refuse_other_version(job, if_version)
        if job.state is JobState.CANCELLED:
            return Changed(job, [])
        now = self._clock.now()
        too_late = await self._jobs.set_status(
            caller.namespace_id, job_id, JobState.CANCELLED, None, None, now, if_version
        )
        if too_late is None:
            refuse_other_version(await self.get(caller, job_id), if_version)
        self._bus.publish(Topic.CANCEL)
        return Changed(await self.get(caller, job_id), too_late or [])

    async def run_now(
        self, caller: Caller, job_id: UUID, request: RunNowRequest, *, if_version: int | None = None
    ) -> UUID:
        """A run outside the schedule. Also of paused and completed jobs; not of cancelled ones."""
        for _ in range(5):
            job = await self.get(caller, job_id)
            refuse_other_version(job, if_version)
            if job.state is JobState.CANCELLED:
                raise Conflict("job-cancelled", "a cancelled job cannot be run: create a new one")
            faults = self._run_faults(job.definition, request)
            if faults:
                raise InvalidFields(faults)
            now = self._clock.now()
            run_id = self._ids.new_id(now)
            behind = await self._stands_behind(caller, job, request, now)
            payload = request.payload and render(request.payload, now, zone_or_utc(job.definition.timing.zone))
            made = await self._runs.insert_manual_run(
                run_id, job, caller.namespace_id, caller.name, request.note, payload, now, request.overlap, behind
            )
            if made is not False:
                self._bus.publish(Topic.READY)
                return run_id
        raise Conflict("busy", "the job is being changed by others again and again; try once more")

    async def _stands_behind(self, caller: Caller, job: Job, request: RunNowRequest, now: datetime) -> bool:
        """Whether a run asked for now must wait for earlier ones. Refused when the job would have it skipped: whoever
        asks by hand wants to know. What changes meanwhile is judged again when the run is about to start."""
        recurring = job.definition.timing.only_instant is None
        policy = job.definition.policy
        overlap = Overlap(request.overlap) if request.overlap else policy.overlap_of(recurring)
        if overlap is Overlap.ALLOW:
            return False
        live = await self._runs.list_runs(caller.namespace_id, job, LIVE_STATES, None, 500)
        earlier = [
            Sibling(run.run_id, run.state, held_back=run.state is RunState.WAITING)
            for run in live
            if run.scheduled_for <= now
        ]
        judged = judge(overlap, policy.overlap_max, OnNextDue.WAIT, earlier)
        if judged.fate is Fate.SKIP:
            in_the_way = earlier[-1].run_id
            message = f"run {in_the_way} is not finished, and the job's overlap policy is {overlap.value}"
            raise Conflict("overlap", f"{message}; say overlap 'allow' to run beside it", run_id=str(in_the_way))
        return judged.fate is Fate.WAIT

    async def next_times(self, caller: Caller, job_id: UUID, count: int) -> Sequence[datetime]:
        job = await self.get(caller, job_id)
        if job.state in (JobState.CANCELLED, JobState.COMPLETED):
            return []
        now = self._clock.now()
        timing = job.definition.timing
        if timing.after_completion is not None:  # what follows is set when that run has ended
            return [] if job.next_due is None else [job.next_due]
        if timing.max_runs is not None:
            left = await self._jobs.runs_to_come(job.job_id, now)
            count = min(count, timing.max_runs if left is None else left)
        return await self._next_runs.times(caller.namespace_id, timing, now, count)

    # --- steps -------------------------------------------------------------------------------------------

    async def _submit(
        self, news: Sequence[NewJob], key: IdempotencyKey | None, pointer_of: Callable[[int], str]
    ) -> Sequence[UUID]:
        """Stores jobs with keys. If the same request did so before, the ids of then; else none."""
        verdict = await self._keyed.submit(Submission(news, key))
        if isinstance(verdict, Duplicates):
            told = list(verdict.holders.items())[:DUPLICATES_MAX]
            raise DuplicateJob({pointer_of(place): holder for place, holder in told})
        return () if verdict is None else verdict.job_ids

    async def _earlier(self, caller: Caller, key: IdempotencyKey | None, now: datetime) -> Sequence[UUID]:
        """What the same request made when it came first. Asked when it is wrong: it may have been right then, if a time
        that it names has passed by now."""
        return () if key is None else await self._keyed.find(caller.namespace_id, key, now)

    def _new_job(self, caller: Caller, request: JobRequest, now: datetime) -> NewJob:
        if request.namespace is not None and request.namespace != caller.namespace:
            message = f"this request is in namespace {caller.namespace!r}; choose another by ?namespace="
            raise InvalidFields([Fault("/namespace", "namespace-mismatch", message)])
        job_id = self._ids.new_id(now)
        definition = define_job(request, job_id, now, caller.name, self._kinds)
        fires, cursor = self._first_moments(definition, now)
        unique = None if request.unique_key is None else unique_key_of(request, now)
        return NewJob(job_id, caller.namespace_id, definition, now, caller.name, fires, cursor, unique)

    def _first_moments(self, definition: JobDefinition, now: datetime) -> tuple[Sequence[datetime], datetime | None]:
        once = definition.timing.only_instant
        if once is not None:  # the shortest road for what is submitted most
            return ((once,), None) if once <= now + self._horizon else ((), once)
        first = definition.timing.first_due(now)
        assert first is not None, "a definition that never fires is refused"
        if definition.timing.is_apart:  # a scheduler plans these, who sees budgets and calendars as they are
            return (), first
        if first > now + self._horizon:
            return (), first
        planned = plan(definition.timing, first, now, self._horizon, definition.catchup)
        return planned.fires, planned.next_due

    def _changed(self, old: Job, patch: JobPatch, now: datetime) -> tuple[JobDefinition, datetime | None]:
        definition = define_change(old.definition, patch, old.job_id, now, self._kinds)
        timing = definition.timing
        return definition, timing.first_due(now, old.definition.timing)

    def _run_faults(self, definition: JobDefinition, request: RunNowRequest) -> Faults:
        faults = [] if request.payload is None else self._run_payload_faults(definition, request.payload)
        if request.overlap is not None and request.overlap not in list(Overlap):
            message = f"there is no overlap {request.overlap[:40]!r}"
            faults.append(Fault("/overlap", "unknown-value", message, None, [word.value for word in Overlap]))
        return faults

    def _run_payload_faults(self, definition: JobDefinition, payload: Mapping[str, Any]) -> Faults:
        kind = self._kinds.get(definition.kind)
        faults = [] if kind is None else [fault.under("/payload") for fault in faults_with_template(payload, kind)]
        if kind is not None and not faults and kind.needs(payload, definition.name) != definition.needs:
            faults.append(Fault("/payload/handler", "handler-differs", "a run cannot change the handler of its job"))
        # A run may use what its job refers to: that was checked, and by that its executor knows what to ask for.
        faults += [
            unknown_secret(f"/payload{pointer}", name)
            for pointer, name in references(definition.kind, payload)
            if name not in definition.policy.secrets
        ]
        if has_null(msgspec.json.encode(payload)):
            faults.append(Fault("/payload", "invalid-unicode", "the character NUL cannot be stored"))
        if definition.policy.concurrency_key is not None:
            try:
                concurrency_key(definition.policy.concurrency_key, payload)
            except KeyFault as fault:
                faults.append(Fault("/payload", "invalid-key", str(fault)))
        return faults

    async def _has_run(self, caller: Caller, job: Job, due: datetime) -> bool:
        return await self._runs.get_run(caller.namespace_id, scheduled_run_id(due, job.job_id)) is not None


def refuse_other_version(job: Job, if_version: int | None) -> None:
    """Whoever names a version has seen that one, and wants nothing done to another."""
    if if_version is not None and job.version != if_version:
        raise Conflict("version-mismatch", f"the job has version {job.version}, not {if_version}", version=job.version)


def _refuse_final(job: Job, verb: str) -> None:
    if job.state in (JobState.CANCELLED, JobState.COMPLETED):
        raise Conflict("job-final", f"the job is {job.state.value} and cannot be {verb}")
