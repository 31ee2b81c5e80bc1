"""A cluster over the weekends on which clocks are set, with an hour in which nobody plans: its ledger, row by row.

Two schedulers, an executor and people who pause share a virtual clock. One scheduler dies with the outage; the other
comes back from it alone. What the ledger then says of every due time of every job is compared with an oracle that has
looked at every minute and shares no code with the product.
"""

import heapq
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from crew import FunctionKind, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, claim
from weekend_oracle import Outage, Row, Spec, expected_ledger

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.ids import scheduled_run_id
from hourhand.model.job import JobDefinition
from hourhand.model.pauses import PauseScope
from hourhand.model.policy import Overlap, Policy
from hourhand.model.run import Claim
from hourhand.model.schedule import CronSchedule, DstOverlap, Every, Gap, Timing
from hourhand.model.states import RunState
from hourhand.operations.history import HistoryOperations
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.pauses import PauseOperations
from hourhand.operations.requests import Caller, PauseRequest, ResumeRequest
from hourhand.ports.event_bus import EventBus
from hourhand.ports.stores import Finish, NewJob
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.judge import Judge
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.wiring import Store

CALLER = Caller("ada", NAMESPACE, "default", cluster_wide=True)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
OVER = -1.0
LABEL = (CALLER, PauseScope.LABEL, "held:yes")


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


WEEKENDS = {
    # The zone, where the day begins, and where the hour begins in which nobody plans: across the jump.
    "Berlin, spring": ("Europe/Berlin", utc(2026, 3, 28, 12), utc(2026, 3, 29, 0, 30)),
    "Berlin, autumn": ("Europe/Berlin", utc(2026, 10, 24, 12), utc(2026, 10, 25, 0, 30)),
    "New York, spring": ("America/New_York", utc(2026, 3, 7, 18), utc(2026, 3, 8, 6, 50)),
    "New York, autumn": ("America/New_York", utc(2026, 10, 31, 18), utc(2026, 11, 1, 5, 10)),
    "Lord Howe, half an hour": ("Australia/Lord_Howe", utc(2026, 4, 4, 2), utc(2026, 4, 4, 14, 40)),
}
LENGTH = 24 * HOUR


def jobs_of(zone: str, begin: datetime, outage: Outage) -> list[Spec]:
    """Every sort of schedule, choice and policy, and pauses of every scope around and across the outage."""
    night = [Spec(f"{cron} {gap} {overlap}", cron, zone=zone, gap=gap, overlap=overlap, catchup="all", window=3 * HOUR)
             for cron in ("30 2 * * *", "15 1 * * *", "0 2,3 * * *", "*/20 2 * * *", "*/15 * * * *", "45 * * * *")
             for gap in ("fire_after", "skip")
             for overlap in ("auto", "first", "last", "both")]  # fmt: skip
    policies = [
        Spec(f"catch-up {mode} {window}", "*/5 * * * *", zone=zone, catchup=mode, window=window, most=4)
        for mode in ("none", "last", "all")
        for window in (timedelta(0), 20 * MINUTE, HOUR, 4 * HOUR)
    ]
    paused = [
        Spec("paused alone", "*/5 * * * *", zone=zone, pauses=[(begin + 3 * HOUR + SECOND, begin + 5 * HOUR)]),
        Spec("paused with a label", "*/5 * * * *", zone=zone,
             pauses=[(begin + 2 * HOUR, begin + 4 * HOUR + 7 * MINUTE),
                     (outage.begin - 10 * MINUTE, outage.begin + 20 * MINUTE)]),
    ]  # fmt: skip
    return [
        *night,
        *policies,
        *paused,
        Spec("interval", every=7 * MINUTE, zone=zone, catchup="none"),
        Spec("plain UTC", "*/10 * * * *", catchup="none"),
        Spec("weekdays", "0 6 * * 1-5", zone=zone),
        Spec("either day", "0 */3 29 * 0", zone=zone),
        Spec("slow", "*/5 * * * *", zone=zone, catchup="none", takes=12 * MINUTE),
        Spec("minutes of the night", "* 0-4 * * *", zone=zone, catchup="last", window=30 * MINUTE),
    ]


class Cluster:
    """Everybody, on one clock, and what is to happen when."""

    def __init__(self, store: Store, begin: datetime) -> None:
        self.store = store
        self.clock = SetClock(begin)
        bus = cast("EventBus", NotedBus())
        settings = SchedulerSettings(batch_max=500)
        self.schedulers = [Scheduler(store, self.clock, settings) for _ in range(2)]
        self.judges = [Judge(store.turns, lambda one=one: one.node_id, self.clock, bus) for one in self.schedulers]  # type: ignore[misc]
        kinds = cast("Any", {"number": FunctionKind(cast("Any", None))})
        self.jobs = JobOperations(
            store.jobs, store.submissions, store.runs, kinds, self.clock, IdSource(1), bus, SubmitSettings()
        )
        self.pauses = PauseOperations(store.pauses, store.names, self.clock, bus)
        self.history = HistoryOperations(store.ledger, self.clock)
        self.takes: dict[UUID, timedelta] = {}
        self.going: list[tuple[datetime, int, Claim]] = []
        self.planning = True

    async def open(self) -> None:
        for number, scheduler in enumerate(self.schedulers):
            await scheduler.join(f"scheduler {number}", lease_seconds=3600)
        await self.share_out()

    async def share_out(self) -> None:
        for scheduler in self.schedulers:
            scheduler.leadership._renew_at = 0.0
            await scheduler.leadership.run_once()
        for scheduler in self.schedulers:
            await scheduler.lookout.run_once()

    async def bury_first(self) -> None:
        """The first scheduler is dead, and the other has all there is."""
        dead, alive = self.schedulers
        await self.store.nodes.renew_node(dead.node_id, OVER, {})
        await self.store.nodes.drop_lease("leader", dead.node_id)
        self.schedulers, self.judges = [alive], self.judges[1:]
        for _ in range(2):
            await self.share_out()

    async def step(self, now: datetime) -> None:
        self.clock.time = now
        await self.end_runs(now)
        if self.planning:
            for scheduler in self.schedulers:
                await scheduler.keeper.run_once()
                await scheduler.planner.run_once()
        for _ in range(3):
            claims = await claim(self.store, 7, now, limit=1000)
            for begun in claims:
                ends = now + self.takes.get(begun.job_id, timedelta(0))
                heapq.heappush(self.going, (ends, begun.fence, begun))
            await self.end_runs(now)
            turns = [await judge.run_once() for judge in self.judges] if self.planning else []
            if not claims and all(pause is None for pause in turns):
                break  # nothing to claim and nobody whose turn may come: at this time nothing more happens

    async def end_runs(self, now: datetime) -> None:
        finishes = []
        while self.going and self.going[0][0] <= now:
            ends, _, begun = heapq.heappop(self.going)
            finishes.append(Finish(begun.run_id, begun.fence, RunState.SUCCEEDED, begun.ready_at, ends))
        if finishes:
            await self.store.live_runs.finish_runs(finishes)

    async def ledger(self, job_id: UUID, begin: datetime, end: datetime) -> list[Row]:
        rows: list[Row] = []
        after = None
        while True:
            page = await self.history.page(CALLER, job_id, begin + SECOND, end, after, 100, compact=False)
            rows += [(one.due_at, one.status, one.reason, one.count) for one in page.entries]
            after = page.next_after
            if after is None:
                return rows


def definition(spec: Spec, anchor: datetime) -> JobDefinition:
    schedule = CronSchedule(spec.cron) if spec.cron else Every(cast("timedelta", spec.every), anchor)
    timing = Timing((schedule,), spec.zone, gap=Gap(spec.gap), overlap=DstOverlap(spec.overlap))
    return JobDefinition(
        name=spec.name,
        kind="number",
        payload={},
        timing=timing,
        needs="number",
        catchup=CatchUpPolicy(CatchUp(spec.catchup), spec.window, spec.most),
        policy=Policy(overlap=Overlap.ALLOW if spec.takes is None else Overlap.SKIP),
        labels={"held": "yes"} if spec.name == "paused with a label" else {},
    )


async def store_jobs(cluster: Cluster, specs: list[Spec], begin: datetime) -> dict[UUID, Spec]:
    ids = IdSource(5)
    stored: dict[UUID, Spec] = {}
    new: list[NewJob] = []
    for spec in specs:
        job_id = ids.new_id(begin)
        made = definition(spec, begin)
        new.append(NewJob(job_id, NAMESPACE, made, begin, "ada", [], made.timing.next_after(begin)))
        stored[job_id] = spec
        if spec.takes is not None:
            cluster.takes[job_id] = spec.takes
    await cluster.store.jobs.insert_jobs(new)
    return stored


def events_of(cluster: Cluster, stored: dict[UUID, Spec]) -> list[tuple[datetime, Any]]:
    """What people do, and when."""
    events: list[tuple[datetime, Any]] = []
    for job_id, spec in stored.items():
        for since, until in spec.pauses:
            if spec.name == "paused alone":
                events.append((since, lambda job_id=job_id: cluster.jobs.pause(CALLER, job_id, "holiday")))
                events.append((until, lambda job_id=job_id: cluster.jobs.resume(CALLER, job_id)))
            else:
                events.append((since, lambda: cluster.pauses.pause(*LABEL, PauseRequest(reason="moving"))))
                events.append((until, lambda: cluster.pauses.resume(*LABEL, ResumeRequest())))
    return events


@pytest.mark.parametrize("weekend", WEEKENDS)
async def test_over_a_weekend_on_which_clocks_are_set_the_ledger_is_what_the_oracle_says_row_by_row(
    store: Store, weekend: str
) -> None:
    zone, begin, last_plan = WEEKENDS[weekend]
    outage = Outage(last_plan, last_plan + HOUR)
    end = begin + LENGTH
    cluster = Cluster(store, begin)
    await cluster.open()
    stored = await store_jobs(cluster, jobs_of(zone, begin, outage), begin)
    expected = {job_id: expected_ledger(spec, begin, end, outage) for job_id, spec in stored.items()}

    # At each due time, a second before it, and whenever somebody does something. In the outage nobody plans.
    instants = {row[0] for rows in expected.values() for row in rows}
    steps = {instant + off for instant in instants for off in (-SECOND, timedelta(0))} | {outage.begin, outage.end, end}
    acts = sorted(events_of(cluster, stored), key=lambda act: act[0])
    for now in sorted(steps | {when for when, _ in acts}):
        cluster.planning = not outage.begin < now < outage.end
        if now == outage.end:
            await cluster.bury_first()
        await cluster.step(now)
        while acts and acts[0][0] <= now:
            cluster.clock.time = now
            await acts.pop(0)[1]()
    await cluster.step(end + 13 * MINUTE)  # what was going on has ended

    wrong = {}
    for job_id, spec in stored.items():
        found, wanted = await cluster.ledger(job_id, begin, end), expected[job_id]
        if found != wanted:
            wrong[spec.name] = [f"missing {row}" for row in wanted if row not in found]
            wrong[spec.name] += [f"surplus {row}" for row in found if row not in wanted]
    assert wrong == {}
    assert len(stored) > 60
    became = {row[1] for rows in expected.values() for row in rows}
    jumps = {"dst_gap"} if "spring" in weekend else set()
    assert became == {"succeeded", "missed", "paused", "skipped"} | jumps


def test_the_oracle_knows_the_nights_that_everybody_knows() -> None:
    outage = Outage(datetime(2000, 1, 1, tzinfo=UTC), datetime(2000, 1, 1, tzinfo=UTC))
    fixed = Spec("fixed", "30 2 * * *", zone="Europe/Berlin")
    spring, autumn = datetime(2026, 3, 28, 22, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)

    def night(spec: Spec, begin: datetime) -> list[tuple[str, str]]:
        return [(f"{row[0]:%H:%M}", row[1]) for row in expected_ledger(spec, begin, begin + 6 * HOUR, outage)]

    assert night(fixed, spring) == [("01:00", "succeeded")]
    assert night(replace(fixed, gap="skip"), spring) == [("01:00", "dst_gap")]
    assert night(fixed, autumn) == [("00:30", "succeeded")]
    assert night(replace(fixed, overlap="last"), autumn) == [("01:30", "succeeded")]
    assert night(replace(fixed, cron="30 * * * *"), autumn)[2:4] == [("00:30", "succeeded"), ("01:30", "succeeded")]
    assert scheduled_run_id(spring, UUID(int=1)) != scheduled_run_id(autumn, UUID(int=1))
