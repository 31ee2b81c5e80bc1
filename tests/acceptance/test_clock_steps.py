"""The clocks of PostgreSQL and of nodes are stepped back and forth by minutes while jobs run."""

import contextlib
import os
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from harness import Roles, wait_for
from servers import Postgres
from stepped_clocks import (
    EPOCH,
    HERE,
    Started,
    SteppedClock,
    Times,
    Told,
    compile_shim,
    compiler,
    doubled,
    early,
    lateness,
    read_started,
    unaccounted,
    untrue,
)

from hourhand.client import Client

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C compiler (cc or gcc) for the clock shim")

SECOND = timedelta(seconds=1)
WITNESS = {"kind": "python", "payload": {"handler": "clock.witness"}, "max_retries": 0}
NODES = {"scheduler-1": "scheduler", "scheduler-2": "scheduler", "executor-1": "executor", "executor-2": "executor",
         "api-1": "api"}  # fmt: skip
FINAL = ("succeeded", "missed", "skipped")
STEP_SECONDS = 4.0
"""From one step to the next. Long enough that leases of 3 s have run out twice by the old time."""
SHORT = (120.0, 0.0, 240.0, 60.0, 600.0)
"""How far ahead of the machine PostgreSQL's clock is, step by step. The last is the furthest, so that all falls due."""
NOTICED_SECONDS = 3.0
"""What a request may take. Steps are far longer."""
LATE_SECONDS_MAX = 30.0  # a step forth ends every lease, and somebody must take over; busy machines take their time
"""Of due times with no step near. Busy machines are slow, but a clock that stands wrong for a minute would show."""


@needs_compiler
def test_while_clocks_are_stepped_by_minutes_nothing_runs_early_or_twice_and_no_due_time_is_missed_without_a_word(
    short_path: Path,
) -> None:
    step_clocks(short_path, SHORT)


@needs_compiler
@pytest.mark.measuring
def test_the_same_for_a_quarter_of_an_hour(short_path: Path) -> None:
    chance = random.Random(int(os.environ.get("CLOCK_STEPS_SEED", "1")))
    steps = [chance.uniform(-600.0, 600.0) for _ in range(90)]
    step_clocks(short_path, [*steps, 1300.0], seconds_each=10.0)


def wait_until(moment: float) -> None:
    wait_for(lambda: time.monotonic() >= moment, "the next jobs are to be submitted")


# --- the course -------------------------------------------------------------------------------------------


@dataclass
class Recurring:
    """A job and its due times, worked out without the product: every so many seconds, from its anchor on."""

    job_id: UUID
    since: datetime
    seconds: int
    made: float
    """Since when there is the job, by the clock that nobody steps."""

    def dated_by(self, times: Times) -> float:
        """When the clock showed the time by which it was made: a node may not have noticed the last step yet."""
        by_now = abs(self.since - times.at(self.made)) < NOTICED_SECONDS * SECOND
        return self.made if by_now else times.before_last_step(self.made)

    def dues(self, until: datetime) -> list[datetime]:
        first = (self.since - EPOCH) // SECOND + 1
        return [
            EPOCH + second * SECOND
            for second in range(first, (until - EPOCH) // SECOND + 1)
            if second % self.seconds == 0
        ]


def step_clocks(folder: Path, steps: Sequence[float], seconds_each: float = STEP_SECONDS) -> None:
    shim = compile_shim(folder)
    clocks = {name: SteppedClock(folder, name, shim) for name in ("postgres", *NODES)}
    database = Postgres(folder / "postgres").create().start(clocks["postgres"].environment)
    try:
        witness = folder / "starts"
        settings = {
            "PYTHONPATH": str(HERE),
            "CLOCK_WITNESS": str(witness),
            "HOURHAND_KINDS_HANDLER_MODULES": "clock_witness",
        }
        with Roles(folder / "nodes", database.url, "clocks", settings) as roles:
            for name, role in NODES.items():
                roles.start(role, name, **clocks[name].environment)
            roles.wait_until_ready()
            with roles.client() as client:
                course = Course(client, clocks, random.Random(5))
                course.run(steps, seconds_each)
                course.settle(witness)
                faults = course.judge(witness)
            assert not faults, "\n".join([f"{len(faults)} faults", *faults[:40]])
    finally:
        database.close()


class Course:
    def __init__(self, client: Client, clocks: Mapping[str, SteppedClock], chance: random.Random) -> None:
        self._client = client
        self._clocks = clocks
        self._clock = clocks["postgres"]
        self._chance = chance
        self._recurring: list[Recurring] = []
        self._once: dict[UUID, float] = {}
        self._until = EPOCH

    def run(self, steps: Sequence[float], seconds_each: float) -> None:
        self._submit_recurring(6)
        self._go_on(seconds_each)
        for ahead in steps:
            for name in NODES:  # they are stepped too, and it must not matter
                if self._chance.random() < 0.5:
                    self._clocks[name].set(self._chance.uniform(-600, 600))
            self._clock.set(ahead)
            # At once, while some nodes may not have noticed yet.
            self._submit_recurring(1)
            self._go_on(seconds_each)

    def settle(self, witness: Path) -> None:
        """Until everything that has fallen due by now is accounted for."""
        self._until = self._clock.now().replace(microsecond=0)
        with contextlib.suppress(AssertionError):  # the judgement says what is missing
            wait_for(lambda: not self._unseen(read_started(witness)), "every one-time job has run", 120)
            for job in self._recurring:
                wait_for(partial(self._is_told, job), "all due times are told", 60)

    def judge(self, witness: Path) -> list[str]:
        started, times = read_started(witness), self._clock.times
        faults = [*early(started, times), *doubled(started)]
        faults += [f"never ran: {job_id}" for job_id in self._unseen(started)]
        for job in self._recurring:
            told = self._told(job)
            faults += unaccounted(job.job_id, job.dues(self._until), told)
            faults += untrue(job.job_id, told, started, times.since(job.dated_by(times)))
        made = self._once | {job.job_id: job.dated_by(times) for job in self._recurring}
        late = lateness(started, times, 2.5, time.monotonic(), made)
        faults += [f"{seconds:.1f} s late: {job_id}" for job_id, seconds in late.items() if seconds > LATE_SECONDS_MAX]
        print(
            f"{len(started):,} runs of {len(self._recurring)} recurring and {len(self._once)} other jobs, "
            f"{sum(len(job.dues(self._until)) for job in self._recurring):,} due times; "
            f"at most {max(late.values(), default=0.0):.2f} s late away from steps"
        )
        return faults

    def _go_on(self, seconds: float) -> None:
        """One-time jobs all the time, due now and in the seconds to come."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0:
            next_at = time.monotonic() + min(0.2, left)
            soon = [self._clock.now() + self._chance.uniform(0.1, 6.0) * SECOND for _ in range(4)]
            jobs = [{"name": "once", "schedule": {"at": at.isoformat()}, **WITNESS} for at in soon]
            made, wanted = time.monotonic(), [*jobs, {"name": "now", "schedule": "now", **WITNESS}]
            self._once |= dict.fromkeys(self._client.create_jobs(wanted), made)
            wait_until(next_at)

    def _submit_recurring(self, each: int) -> None:
        for schedule, seconds, more in (
            ({"every": "1s", "anchor": "2026-01-01T00:00:00Z"}, 1, {}),
            ({"cron": "* * * * * *"}, 1, {"overlap": "allow"}),
            ({"cron": "*/2 * * * * *"}, 2, {"zone": "America/New_York"}),
            ({"cron": "*/5 * * * * *"}, 5, {"catchup": {"mode": "all"}}),
        ):
            for _ in range(each):
                made = time.monotonic()
                job_id = self._client.create_job(name="beat", schedule=schedule, **more, **WITNESS).job_id
                since = self._client.get_job(job_id).created_at
                assert since is not None
                self._recurring.append(Recurring(job_id, since, seconds, made))

    def _is_told(self, job: Recurring) -> bool:
        told = self._told(job)
        return len(told) >= len(job.dues(self._until)) and all(entry.status in FINAL for entry in told)

    def _unseen(self, started: Sequence[Started]) -> set[UUID]:
        return set(self._once) - {line.job_id for line in started}

    def _told(self, job: Recurring) -> list[Told]:
        entries = self._client.job_history(job.job_id, since=job.since.isoformat(), until=self._until.isoformat())
        return [Told(entry.due_at, entry.status, entry.reason) for entry in entries]


# --- that the judgement can fail --------------------------------------------------------------------------

JOB = UUID(int=1)
BASE = 1_000_000.0


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=BASE + seconds)


@pytest.fixture
def times() -> Times:
    """At 100 s it is set 120 s ahead, at 110 s back again, at 400 s 600 s ahead."""
    times = Times(BASE)
    for moment, ahead in ((100.0, 120.0), (110.0, 0.0), (400.0, 600.0)):
        times.stepped(moment, moment, ahead)
    return times


def start(due: float, monotonic: float) -> Started:
    return Started(JOB, at(due), UUID(int=2), 1, monotonic)


def test_times_know_what_was_walked_through_and_what_was_jumped_over(times: Times) -> None:
    assert [times.at(moment) for moment in (99.0, 101.0, 111.0, 401.0)] == [at(99), at(221), at(111), at(1001)]
    assert times.jumps() == [(at(100), at(220)), (at(400), at(1000))]
    assert times.walked(at(50), 900) == 50
    assert times.walked(at(150), 900) is None
    assert times.walked(at(225), 900) == 105
    assert times.walked(at(300), 900) == 300


def test_a_start_before_its_time_is_seen_unless_the_clock_was_just_set(times: Times) -> None:
    assert list(early([start(50, 50.0), start(221, 101.0), start(229.9, 110.2)], times)) == []
    assert len(list(early([start(50, 49.9), start(221, 112.0), start(221, 99.0)], times))) == 3


def test_two_starts_for_one_due_time_are_seen() -> None:
    assert len(list(doubled([start(50, 50.0), start(50, 51.0), start(51, 51.0)]))) == 1


def test_each_due_time_must_be_told_once() -> None:
    told = [Told(at(1), "succeeded"), Told(at(2), "succeeded"), Told(at(2), "missed"), Told(at(4), "succeeded")]
    found = list(unaccounted(JOB, [at(1), at(2), at(3)], told))
    assert [fault.split(":")[0] for fault in found] == ["told 2 times", "missed without a word", "never due"]


def test_what_did_not_run_must_have_been_jumped_over(times: Times) -> None:
    jumped = [Told(at(150), "missed", "catchup_last"), Told(at(500), "missed", "catchup_window")]
    assert list(untrue(JOB, jumped, [], times)) == []
    walked = [Told(at(50), "missed", "catchup_last"), Told(at(300), "skipped", "overlap"), Told(at(150), "paused")]
    unseen, hidden = Told(at(60), "succeeded"), Told(at(151), "missed", "catchup_last")
    assert len(list(untrue(JOB, [*walked, unseen, hidden], [start(151, 103.0)], times))) == 5


def test_a_run_may_be_skipped_while_an_earlier_one_is_not_finished(times: Times) -> None:
    skipped = [Told(at(300), "skipped", "overlap")]
    assert list(untrue(JOB, skipped, [start(299, 299.9)], times)) == []
    assert len(list(untrue(JOB, skipped, [start(299, 299.1), start(301, 301.0)], times))) == 1


def test_how_late_a_run_was_counts_where_no_step_is_near(times: Times) -> None:
    started = [start(50, 62.0), start(99, 200.0), start(150, 200.0)]
    assert lateness(started, times, 2.5, 900, {JOB: 0.0})[JOB] == pytest.approx(12)


def test_what_the_clock_had_shown_before_there_was_a_job_counts_for_nothing(times: Times) -> None:
    """Made at 105 s, when the clock shows 225: it is set back to 110 at once, and walks through 225 at 225 s."""
    since = times.since(105.0)
    assert [since.at(moment) for moment in (106.0, 111.0, 401.0)] == [at(226), at(111), at(1001)]
    assert times.walked(at(227), 900) == 107
    assert since.walked(at(227), 900) == 107
    assert times.since(111.0).walked(at(227), 900) == 227
    assert times.since(111.0).jumps() == [(at(400), at(1000))]
    late = {JOB: 111.0}
    assert lateness([start(227, 230.0)], times, 2.5, 900, late)[JOB] == pytest.approx(3)
    told = [Told(at(120), "missed", "catchup_window")]
    assert len(list(untrue(JOB, told, [], times))) == 0
    assert len(list(untrue(JOB, told, [], times.since(111.0)))) == 1
