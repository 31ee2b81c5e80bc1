"""Random hours of pauses, resumes, outages and calendars, by seed: every due time is told once, as an oracle says.

The oracle keeps what people did as a list of intervals and looks at every minute of every job; it shares no code with
the product.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pause_stage import CALLER, MADE, PauseStage
from sample_jobs import NAMESPACE, START

from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.pauses import PauseScope
from hourhand.model.policy import Overlap, Policy
from hourhand.model.schedule import CronSchedule, Timing, format_instant
from hourhand.operations.requests import PauseRequest, ResumeRequest
from hourhand.wiring import Store

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)
GRACE, AHEAD = timedelta(seconds=15), timedelta(seconds=2)
LENGTH = timedelta(minutes=100)
SEEDS = range(8)


@dataclass
class Held:
    """A pause as the oracle keeps it. One that was resumed holds what is due at that very instant too."""

    scope: str
    name: Any
    since: datetime
    until: datetime | None = None
    resumed_at: datetime | None = None
    catch_up: str = "none"

    def is_in_force(self, now: datetime) -> bool:
        return not self.is_over(now)

    def is_over(self, now: datetime) -> bool:
        return any(end is not None and end <= now for end in (self.until, self.resumed_at))

    def covers(self, due: datetime) -> bool:
        before_until = self.until is None or due < self.until
        return self.since < due and before_until and (self.resumed_at is None or due <= self.resumed_at)


@dataclass
class Known:
    """A job as the oracle knows it."""

    every: int
    label: str
    queue: str
    catchup: str
    window: timedelta
    acts: list[datetime] = field(default_factory=list)
    """When somebody paused or resumed it alone: what was overdue is settled then, also of pauses that go on."""
    is_paused: bool = False
    """Whether it was paused alone and not resumed since. Resuming what is not paused does nothing at all."""
    closed: list[tuple[datetime, datetime]] = field(default_factory=list)
    """What its calendar leaves out, whatever else happens."""


@dataclass
class Oracle:
    jobs: dict[UUID, Known]
    pauses: list[Held] = field(default_factory=list)
    planned: list[datetime] = field(default_factory=list)

    def pause(self, scope: str, name: Any, now: datetime, until: datetime | None) -> None:
        for held in self.pauses:
            if (held.scope, held.name) == (scope, name) and held.is_in_force(now):
                held.until = until
                return
        self.pauses.append(Held(scope, name, now, until))

    def resume(self, scope: str, name: Any, now: datetime, catch_up: str) -> None:
        for held in self.pauses:
            if (held.scope, held.name) == (scope, name) and held.is_in_force(now):
                held.resumed_at, held.catch_up = now, catch_up

    def is_paused_alone(self, job_id: UUID, now: datetime) -> bool:
        return any(held.name == job_id and held.is_in_force(now) for held in self.pauses)

    def ledger(self, job_id: UUID, end: datetime) -> list[tuple[datetime, str]]:
        job = self.jobs[job_id]
        dues = [START + MINUTE * step for step in range(1, 1000) if START + MINUTE * step <= end]
        dues = [due for due in dues if due.minute % job.every == 0]
        concerning = [held for held in self.pauses if self._concerns(held, job_id, job)]
        told = {due: "excluded" for due in dues if any(begin <= due < end for begin, end in job.closed)}
        told |= (paused := self._paused(job, [due for due in dues if due not in told], concerning))
        late: dict[datetime, list[datetime]] = {}
        for due in dues:
            if due not in told:
                at = min([p for p in self.planned if due <= p + AHEAD] + [act for act in job.acts if due <= act])
                told[due] = "run"
                if due < at - GRACE:
                    late.setdefault(at, []).append(due)
        for at, group in late.items():
            inside = [due for due in group if at - due <= job.window]
            is_one_fresh = any(at - GRACE <= due <= at and told[due] == "run" for due in dues if due not in paused)
            keep = {"none": 0, "last": 0 if is_one_fresh else 1, "all": 1000}[job.catchup]
            for due in group:
                if due not in inside[len(inside) - min(keep, len(inside)) :]:
                    told[due] = "missed"
        return sorted(told.items())

    def _paused(self, job: Known, dues: list[datetime], concerning: list[Held]) -> dict[datetime, str]:
        """What pauses hold is decided about when all of them are over, or somebody pauses or resumes the job alone.
        The strictest counts, and one that still goes on is as strict as can be. `last` runs the newest of all that one
        pause leaves to be decided about at one time."""
        told: dict[datetime, str] = {}
        newest: dict[tuple[datetime, int], datetime] = {}
        for due in dues:
            covering = [held for held in concerning if held.covers(due)]
            if not covering:
                continue
            told[due] = "paused"
            covering.sort(key=lambda held: held.scope != "job")
            plans = [p for p in self.planned if p >= due and all(held.is_over(p) for held in covering)]
            decided = min([*plans, *(act for act in job.acts if act >= due)], default=None)
            if decided is None:
                continue
            strict = [held.catch_up if held.is_over(decided) else "none" for held in covering]
            if "none" not in strict and "last" in strict:
                newest[decided, id(covering[strict.index("last")])] = due
            elif "none" not in strict:
                told[due] = "run"
        return told | dict.fromkeys(newest.values(), "run")

    @staticmethod
    def _concerns(held: Held, job_id: UUID, job: Known) -> bool:
        match held.scope:
            case "job":
                return bool(held.name == job_id)
            case "label":
                return bool(held.name == job.label)
            case "queue":
                return bool(held.name == job.queue)
            case _:
                return True


class Day:
    def __init__(self, stage: PauseStage, seed: int) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.oracle = Oracle({})

    async def open(self) -> None:
        begins = [START + SECOND * self.chance.randint(0, int(LENGTH / SECOND)) for _ in range(4)]
        closed = [(begin, begin + SECOND * self.chance.randint(30, 900)) for begin in begins]
        blackouts = [{"from": begin.isoformat(), "to": end.isoformat()} for begin, end in closed]
        rule = read_calendar(blackouts=blackouts)
        await self.stage.store.calendars.put(NAMESPACE, "closed", rule, START, "ada", None)
        for number in range(8):
            known = Known(
                every=self.chance.choice([1, 2, 3, 5, 10]),
                label=self.chance.choice("ab"),
                queue=self.chance.choice("xy"),
                catchup=self.chance.choice(["none", "last", "all"]),
                window=MINUTE * self.chance.choice([0, 3, 10, 60]),
                closed=closed if number % 2 else [],
            )
            calendars = ("closed",) if known.closed else ()
            timing = Timing((CronSchedule(f"*/{known.every} * * * *"),), calendars=calendars)
            first = timing.next_after(START)
            assert first is not None
            job_id = await self.stage.job(
                timing,
                first=(first - START).total_seconds(),
                name=f"job {number}",
                labels={"team": known.label},
                queue=known.queue,
                catchup=CatchUpPolicy(CatchUp(known.catchup), known.window, 1000),
                policy=Policy(overlap=Overlap.ALLOW),
                created_at=START,
            )
            self.oracle.jobs[job_id] = known

    async def act(self, now: datetime) -> None:
        """Somebody pauses or resumes something."""
        self.stage.clock.time = now
        scope = self.chance.choice(["job", "job", "label", "queue", "cluster"])
        names: dict[str, list[Any]] = {"job": list(self.oracle.jobs), "label": ["a", "b"], "queue": ["x", "y"]}
        name = self.chance.choice(names.get(scope, [""]))
        was_paused = scope == "job" and self.oracle.is_paused_alone(name, now)
        pauses = self.chance.random() < 0.5
        if pauses:
            until = None if self.chance.random() < 0.5 else now + SECOND * self.chance.randint(20, 1500)
            await self._pause(scope, name, until)
            self.oracle.pause(scope, name, now, until)
        else:
            # Of a job whose own pause is over by itself nothing is caught up.
            catch_up = self.chance.choice(["none", "last", "all", "all"]) if scope != "job" or was_paused else "none"
            await self._resume(scope, name, catch_up)
            self.oracle.resume(scope, name, now, catch_up)
        if scope == "job" and (pauses or self.oracle.jobs[name].is_paused):
            if not (pauses and was_paused):
                self.oracle.jobs[name].acts.append(now)
            self.oracle.jobs[name].is_paused = pauses

    async def _pause(self, scope: str, name: Any, until: datetime | None) -> None:
        request = PauseRequest(reason="by chance", until=until and format_instant(until))
        if scope == "job":
            await self.stage.jobs.pause(CALLER, name, "by chance", until)
        elif scope == "queue":
            await self.stage.queues.pause(CALLER, name, request)
        else:
            words = f"team:{name}" if scope == "label" else ""
            await self.stage.pauses.pause(CALLER, PauseScope(scope), words, request)

    async def _resume(self, scope: str, name: Any, catch_up: str) -> None:
        request = ResumeRequest(catch_up=catch_up)
        if scope == "job":
            await self.stage.jobs.resume(CALLER, name, CatchUp(catch_up))
        elif scope == "queue":
            await self.stage.queues.resume(CALLER, name, request)
        else:
            words = f"team:{name}" if scope == "label" else ""
            await self.stage.pauses.resume(CALLER, PauseScope(scope), words, request)

    async def plan(self, now: datetime) -> None:
        self.stage.clock.time = now
        await self.stage.scheduler.keeper.run_once()
        await self.stage.scheduler.planner.run_once()
        self.oracle.planned.append(now)


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_people_and_schedulers_do_every_due_time_is_told_once_and_rightly(
    store: Store, seed: int
) -> None:
    stage = await PauseStage(store).open()
    day = Day(stage, seed)
    await day.open()
    end = START + LENGTH
    minutes = [START + MINUTE * step for step in range(int(LENGTH / MINUTE) + 1)]
    away = [(begin, begin + MINUTE * day.chance.randint(2, 25)) for begin in day.chance.sample(minutes[5:-30], 2)]
    plans = {instant + off for instant in minutes for off in (-SECOND, timedelta(0))} | {end + SECOND}
    acts = {START + SECOND * day.chance.randint(10, int(LENGTH / SECOND)) + SECOND / 7 for _ in range(40)}
    for now in sorted(plans | acts):
        if now in acts:
            await day.act(now)
        elif not any(begin < now < back for begin, back in away) or now > end:
            await day.plan(now)
        # Whoever asks in between is told no nonsense either.
        if day.chance.random() < 0.02:
            job_id = day.chance.choice(list(day.oracle.jobs))
            dues = [entry.due_at for entry in await stage.entries(job_id, 0, LENGTH / SECOND, limit=50)]
            assert dues == sorted(set(dues))

    for job_id, known in day.oracle.jobs.items():
        entries = await stage.entries(job_id, 0, LENGTH / SECOND, limit=50)
        found = [(entry.due_at, "run" if entry.status in MADE else entry.status) for entry in entries]
        wanted = day.oracle.ledger(job_id, end)
        assert found == wanted, f"seed {seed}, {known}: {sorted({*found} ^ {*wanted})}"
