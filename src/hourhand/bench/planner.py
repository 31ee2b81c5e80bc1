"""The planner alone: how many occurrences a second one scheduler makes into runs, with no executor there.

Each job falls due once a minute. All are submitted while no scheduler runs. Then one is started whose horizon is a
minute longer than usual, so that it finds one occurrence of each job to plan at once, none of them late: that is the
`cold` rate, in which it reads every expression for the first time. Afterwards its process is stopped for a while, so
that the next occurrences pile up within the horizon, and let go on: the rate at which it catches up, knowing the
expressions, is the figure. Its lease is longer than the stop, so that nothing else happens meanwhile.
"""

import asyncio
import signal
import time
from dataclasses import dataclass, field
from typing import Any, Final

from hourhand.bench.cluster import SCHEMA
from hourhand.bench.course import Course
from hourhand.bench.figures import per_second
from hourhand.bench.occurrences import MINUTE, expressions
from hourhand.bench.recurring import SUBMIT_RATE_LOW, submit_recurring
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import MICROS, refuse_late, sleep_until
from hourhand.bench.target import open_roles
from hourhand.bench.telling import beside
from hourhand.database.servers import Connection
from hourhand.model.errors import WorldError

HORIZON_SECONDS: Final = MINUTE + 10
SCHEDULER: Final = {
    "scheduler.horizon_seconds": str(HORIZON_SECONDS),
    "scheduler.lease_seconds": "600",
    "scheduler.heartbeat_seconds": "60",
}
START_SECONDS: Final = 9
"""How long before the first due time the scheduler is started. With that time the minute lies within its horizon."""
PILE_SECONDS_MAX: Final = 50.0
"""Longer, and jobs would fall due twice within the horizon, or be late."""
WAIT_SECONDS_MAX: Final = 120.0
_POLL_SECONDS: Final = 0.005
_COUNT: Final = f"SELECT count(*) FROM {SCHEMA}.live_runs WHERE scheduled_for < to_timestamp($1)"
_DONE: Final = f"SELECT NOT EXISTS (SELECT FROM {SCHEMA}.timetable WHERE recurring AND next_fire < to_timestamp($1))"


@dataclass(frozen=True, slots=True)
class PlannerOnly:
    jobs: int = 60_000
    seconds: float = PILE_SECONDS_MAX
    """How long occurrences pile up; at most 50."""
    stages: bool = False
    settings: dict[str, str] = field(default_factory=dict)


async def measure_planner(asked: PlannerOnly, progress: Progress) -> Measured:
    """On a temporary cluster of an API and one scheduler."""
    jobs = max(asked.jobs // MINUTE, 1) * MINUTE
    async with open_roles(asked.settings, progress) as (roles, target):
        assert target.cluster is not None
        begin = int(time.time() + jobs / SUBMIT_RATE_LOW + START_SECONDS) + 3
        progress.note(f"submitting {jobs:,} recurring jobs; nobody plans them yet")
        found = expressions(jobs, 1, begin, 3 * MINUTE)
        submitted = await submit_recurring(target, found, begin, None, progress)
        refuse_late((begin - START_SECONDS) * MICROS, f"{jobs:,} recurring jobs")
        await sleep_until((begin - START_SECONDS) * MICROS)
        database = await target.cluster.connect()
        try:
            progress.note("starting the scheduler")
            scheduler = await roles.start("scheduler", SCHEDULER)
            cold_seconds, cold, first_minute = await _plan_first(database, begin + MINUTE)
            await _pile_up(scheduler, min(asked.seconds, PILE_SECONDS_MAX), progress)
            async with Course(target, Progress.silent()) as course:
                seconds, runs = await _catch_up(scheduler, database)
        finally:
            await database.close()
    facts: Facts = {
        "bench": "recurring",
        "mode": "planner-only",
        "recurring_jobs": jobs,
        "jobs": runs,
        "seconds": seconds,
        "jobs_per_second": per_second(runs, seconds),
        "cold_per_second": per_second(cold, cold_seconds),
        "submit_per_second": submitted.per_second,
        "lost": jobs - first_minute,
        **beside(course, runs, stages=asked.stages),
    }
    return Measured(facts, course.lines_over_time())


async def _plan_first(database: Connection, end: int) -> tuple[float, int, int]:
    """Seconds from the first runs to the last before `end`, how many were made meanwhile, and how many there are."""
    before = await _wait(database, _COUNT, end)
    began = time.monotonic()
    await _wait(database, _DONE, end)
    seconds = time.monotonic() - began
    made = await database.fetchval(_COUNT, end)
    return seconds, made - before, made


async def _pile_up(scheduler: asyncio.subprocess.Process, seconds: float, progress: Progress) -> None:
    scheduler.send_signal(signal.SIGSTOP)
    progress.note(f"letting occurrences pile up for {seconds:g} s")
    try:
        await asyncio.sleep(seconds)
    except BaseException:
        scheduler.send_signal(signal.SIGCONT)  # or it could not end
        raise


async def _catch_up(scheduler: asyncio.subprocess.Process, database: Connection) -> tuple[float, int]:
    """Seconds from letting it go on until nothing within its horizon is left to plan, and how many runs it made."""
    end = time.time() + HORIZON_SECONDS - 1
    before = await database.fetchval(_COUNT, end)
    began = time.monotonic()
    scheduler.send_signal(signal.SIGCONT)
    await _wait(database, _DONE, end)
    seconds = time.monotonic() - began
    return seconds, await database.fetchval(_COUNT, end) - before


async def _wait(database: Connection, question: str, *values: Any) -> int:
    """Asks until the answer is not nothing."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (answer := await database.fetchval(question, *values)):
        if time.monotonic() > deadline:
            raise WorldError(f"the scheduler has not come so far within {WAIT_SECONDS_MAX:g} s: {question}")
        await asyncio.sleep(_POLL_SECONDS)
    return int(answer)
