"""The planner alone: how many occurrences a second one scheduler makes into runs, with no executor there.

Each job falls due once a minute. All are submitted while no scheduler runs, due far enough ahead. Then one scheduler is
started whose horizon is a minute longer than usual, so that it finds one occurrence of each job to plan at once, none
of them late, and does nothing else until all have their run. The clock runs from the moment at which the first runs are
there until no cursor is left before the end of that minute; the runs that were there at its start do not count.
"""

import asyncio
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
START_SECONDS: Final = 9
"""How long before the first due time the scheduler is started. With that time the minute lies within its horizon."""
WAIT_SECONDS_MAX: Final = 120.0
_POLL_SECONDS: Final = 0.005


@dataclass(frozen=True, slots=True)
class PlannerOnly:
    jobs: int = 60_000
    stages: bool = False
    settings: dict[str, str] = field(default_factory=dict)


async def measure_planner(asked: PlannerOnly, progress: Progress) -> Measured:
    """On a temporary cluster of an API and one scheduler."""
    jobs = max(asked.jobs // MINUTE, 1) * MINUTE
    async with open_roles(asked.settings, progress) as (roles, target):
        assert target.cluster is not None
        begin = int(time.time() + jobs / SUBMIT_RATE_LOW + START_SECONDS) + 3
        progress.note(f"submitting {jobs:,} recurring jobs; nobody plans them yet")
        found = expressions(jobs, 1, begin, MINUTE)
        submitted = await submit_recurring(target, found, begin, None, progress)
        refuse_late((begin - START_SECONDS) * MICROS, f"{jobs:,} recurring jobs")
        await sleep_until((begin - START_SECONDS) * MICROS)
        database = await target.cluster.connect()
        try:
            progress.note("starting the scheduler")
            await roles.start("scheduler", {"scheduler.horizon_seconds": str(HORIZON_SECONDS)})
            await _wait(database, f"SELECT count(*) FROM {SCHEMA}.nodes WHERE role = 'scheduler'")
            async with Course(target, progress) as course:
                seconds, runs, left = await _planned(database, begin + MINUTE)
        finally:
            await database.close()
    facts: Facts = {
        "bench": "recurring",
        "mode": "planner-only",
        "recurring_jobs": jobs,
        "jobs": runs,
        "seconds": seconds,
        "jobs_per_second": per_second(runs, seconds),
        "submit_per_second": submitted.per_second,
        "lost": jobs - left,
        **beside(course, runs, stages=asked.stages),
    }
    return Measured(facts, course.lines_over_time())


async def _planned(database: Connection, end: int) -> tuple[float, int, int]:
    """Seconds from the first runs to the last, how many were made meanwhile, and how many there are."""
    count = f"SELECT count(*) FROM {SCHEMA}.live_runs WHERE scheduled_for < to_timestamp($1)"
    before = await _wait(database, count, end)
    began = time.monotonic()
    left = f"SELECT NOT EXISTS (SELECT FROM {SCHEMA}.timetable WHERE recurring AND next_fire < to_timestamp($1))"
    await _wait(database, left, end)
    seconds = time.monotonic() - began
    made = await database.fetchval(count, end)
    return seconds, made - before, made


async def _wait(database: Connection, question: str, *values: Any) -> int:
    """Asks until the answer is not nothing."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not (answer := await database.fetchval(question, *values)):
        if time.monotonic() > deadline:
            raise WorldError(f"the scheduler has not come so far within {WAIT_SECONDS_MAX:g} s: {question}")
        await asyncio.sleep(_POLL_SECONDS)
    return int(answer)
