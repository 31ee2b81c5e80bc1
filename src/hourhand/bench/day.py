"""A day of ten thousand users, many times faster: what they submit, change, look at, and what it leaves behind.

The load is that of the note "Design a Distributed Job Scheduler": 50,000 submissions a day, seven tenths of them from
9 to 17 h, a tenth recurring; a fifth of the jobs is changed once, the state of each is asked twice, 1,000 histories are
read; a run takes five minutes and writes 5 KB of log; one in a hundred fails. A job is a kilobyte as it is submitted.
What is stored is compared with the
note's own count: 50 MB of metadata and 250 MB of logs a day, 9 GB a month.
"""

import asyncio
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from hourhand.bench import day_job
from hourhand.bench.bodies import Acknowledged, instant_text
from hourhand.bench.cluster import SCHEMA
from hourhand.bench.course import Course, Table
from hourhand.bench.figures import per_second, percentiles
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import MICROS, now_micros
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.wire import Answered, Wire, expect
from hourhand.model.errors import InvalidParameter, WorldError

SUBMISSIONS: Final = 50_000
PEAK_HOURS: Final = range(9, 17)
PEAK_SHARE: Final = 0.7
RUN_SECONDS: Final = 300.0
LOG_BYTES: Final = 5 * 1024
NOTE_METADATA_MB: Final = 50.0
NOTE_LOGS_MB: Final = 250.0
NOTE_MONTH_GB: Final = 9.0
_MONTH_DAYS: Final = 30
_METADATA: Final = ("jobs", "job_versions")
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_BODY_BYTES: Final = 1024
"""Of a job as it is submitted: the kilobyte of metadata that the note counts with."""
_LEAD_SECONDS_MIN: Final = 5.0
_TRIES_MAX: Final = 5
_SEED: Final = 24


@dataclass(frozen=True, slots=True)
class Day:
    first_hour: int = 0
    last_hour: int = 24
    """Where the part ends."""
    faster: float = 60.0


def hours_of(text: str) -> tuple[int, int]:
    """ "9-17" as two numbers."""
    first, dash, last = text.partition("-")
    if dash and first.strip().isdigit() and last.strip().isdigit() and 0 <= int(first) < int(last) <= 24:
        return int(first), int(last)
    raise InvalidParameter("--hours", f"must be two full hours of a day, as in 9-17, not {text!r}")


def submissions_in(hour: int) -> float:
    """How many jobs are submitted within an hour of the day."""
    if hour in PEAK_HOURS:
        return SUBMISSIONS * PEAK_SHARE / len(PEAK_HOURS)
    return SUBMISSIONS * (1 - PEAK_SHARE) / (24 - len(PEAK_HOURS))


def submission_times(asked: Day) -> list[float]:
    """When jobs are submitted, in seconds of our own time since the part of the day began; even within an hour."""
    times, length, owed = [], _HOUR / asked.faster, 0.0
    for place, hour in enumerate(range(asked.first_hour, asked.last_hour)):
        owed += submissions_in(hour)
        count = int(owed + 1e-9)
        owed -= count
        times += [(place + number / count) * length for number in range(count)]
    return times


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of one submission."""

    number: int
    recurring: bool
    fails: bool
    changed: bool
    history: bool


def plan_of(number: int) -> Plan:
    """A tenth recurs, a hundredth fails, a fifth is changed, of a fiftieth the history is read."""
    return Plan(number, number % 10 == 0, number % 100 == 55, number % 5 == 1, number % 50 == 3)


async def measure_day(target: Target, asked: Day, progress: Progress) -> Measured:
    times = submission_times(asked)
    hours = asked.last_hour - asked.first_hour
    progress.note(f"{len(times):,} submissions of {hours} hours in {hours * _HOUR / asked.faster / 60:.1f} minutes")
    async with target.wire() as wire, Course(target, progress) as course:
        users = _Users(wire, asked)
        began = time.monotonic()
        await users.live(times)
        await _drain(target, course, users.acknowledged.count)
        seconds = time.monotonic() - began
        failed = await _failed(target)
    witnessed = await read_ours(target, course, users.acknowledged)
    facts: Facts = {
        "bench": "day",
        "mode": "day",
        "hours": hours,
        "faster": asked.faster,
        "jobs": users.acknowledged.count,
        "seconds": seconds,
        "jobs_per_second": per_second(users.acknowledged.count, seconds),
        **users.facts(),
        "failed": failed,
        "storage": storage(course.samples[0].tables, course.samples[-1].tables, users.acknowledged.count),
        **told(course, users.acknowledged, witnessed),
    }
    return Measured(facts, curves_of(course, witnessed))


def storage(before: Mapping[str, Table], after: Mapping[str, Table], jobs: int) -> dict[str, float]:
    """Megabytes that a whole day would leave, beside the note's own count; and the room that tables take which do not
    grow with the days, as it is. Empty where tables cannot be looked at."""
    if not after or not jobs:
        return {}
    grown = {name: table.bytes - (before[name].bytes if name in before else 0) for name, table in after.items()}
    day = SUBMISSIONS / jobs / 1e6
    metadata, runs = (sum(grown.pop(name, 0) for name in names) * day for names in (_METADATA, ("runs", "attempts")))
    logs = grown.pop("log_chunks", 0) * day
    return {
        "metadata_mb": round(metadata, 1),
        "metadata_note_mb": NOTE_METADATA_MB,
        "runs_mb": round(runs, 1),
        "logs_mb": round(logs, 1),
        "logs_note_mb": NOTE_LOGS_MB,
        "note_mb": NOTE_METADATA_MB + NOTE_LOGS_MB,
        "month_gb": round((metadata + runs + logs) * _MONTH_DAYS / 1000, 2),
        "month_note_gb": NOTE_MONTH_GB,
        "year_gb": round((metadata + runs + logs) * _MONTH_DAYS * 12 / 1000, 1),
        "year_note_gb": NOTE_MONTH_GB * 12,
        "working_mb": round(sum(grown.values()) / 1e6, 1),
    }


class _Users:
    """Each submission has somebody who changes it, looks after it twice, and perhaps reads its history."""

    def __init__(self, wire: Wire, asked: Day) -> None:
        self._wire = wire
        self._asked = asked
        self._chance = random.Random(_SEED)  # noqa: S311 - the same day every time
        self.acknowledged = Acknowledged(read_at_once=True)
        self._took: dict[str, list[float]] = {"submit": [], "update": [], "status": [], "history": []}
        self._came_late = 0

    def facts(self) -> Facts:
        counts = {f"{name}_count": len(took) for name, took in self._took.items()}
        times = {f"{name}_ms": percentiles(took) for name, took in self._took.items()}
        return {**counts, **times, "came_late": self._came_late}

    async def live(self, times: list[float]) -> None:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number, at in enumerate(times):
                await asyncio.sleep(max(began + at - time.monotonic(), 0.0))
                group.create_task(self._one(plan_of(number)))

    async def _one(self, plan: Plan) -> None:
        answer, ahead = await self._submitted(plan)
        path, ends_after = f"/api/v1/jobs/{self.acknowledged.add_one(answer)}", ahead + RUN_SECONDS / self._asked.faster
        await asyncio.sleep(1)
        await self._timed("status", "GET", f"{path}/status", None, 200)
        if plan.changed:
            await asyncio.sleep(1)
            await self._timed("update", "PATCH", path, {"description": "changed by its owner"}, 200)
        await asyncio.sleep(ends_after)
        await self._timed("status", "GET", f"{path}/status", None, 200)
        if plan.history:
            await self._timed("history", "GET", f"{path}/runs", None, 200)

    async def _submitted(self, plan: Plan) -> tuple[bytes, float]:
        """The answer, and how long after it was sent the job is due."""
        # What is to be changed must still wait then; and a recurring job that came too late would have no due time.
        least = _LEAD_SECONDS_MIN if plan.changed or plan.recurring else 0.5
        for number in range(_TRIES_MAX):
            ahead = self._chance.uniform(least, max(_HOUR / self._asked.faster, least + 1))
            answered = await self._ask("submit", "POST", "/api/v1/jobs", self._job(plan, ahead))
            if answered.status != HTTPStatus.UNPROCESSABLE_ENTITY or number + 1 == _TRIES_MAX:
                break
            # On a machine that is busy otherwise it may have been under way for longer than that: its time had passed
            # when it came. A user would choose a later one.
            self._came_late += 1
            least *= 2
        return expect(answered, HTTPStatus.ACCEPTED, "POST /api/v1/jobs"), ahead

    async def _timed(self, name: str, method: str, path: str, body: dict[str, Any] | None, status: int) -> bytes:
        return expect(await self._ask(name, method, path, body), status, f"{method} {path}")

    async def _ask(self, name: str, method: str, path: str, body: dict[str, Any] | None) -> Answered:
        request = self._wire.request(method, path, None if body is None else msgspec.json.encode(body))
        began = time.monotonic()
        answered = await self._wire.ask(request)
        self._took[name].append((time.monotonic() - began) * 1000)
        return answered

    def _job(self, plan: Plan, ahead: float) -> dict[str, Any]:
        due = now_micros() + int(ahead * MICROS)
        payload = {
            "handler": day_job.HANDLER,
            "seconds": RUN_SECONDS / self._asked.faster,
            "log_bytes": LOG_BYTES,
            "fails": plan.fails,
            "note": "",
        }
        job: dict[str, Any] = {
            "name": f"report-{plan.number}",
            "payload": payload,
            "max_retries": 0,
            "labels": {"user": f"user-{plan.number % 10_000}"},
        }
        if plan.recurring:
            # Once a day; it ends before the second time, so that what must happen can be counted.
            length = _DAY / self._asked.faster
            job |= {
                "schedule": {"every": f"{max(int(length), 2)}s"},
                "start_at": instant_text(due),
                "end_at": instant_text(due + int(length / 2 * MICROS)),
            }
        else:
            job["schedule"] = {"at": instant_text(due)}
        payload["note"] = day_job.note_of(plan.number, max(_BODY_BYTES - len(msgspec.json.encode(job)), 0))
        return job


async def _drain(target: Target, course: Course, expected: int) -> None:
    """Until all have begun; those that are still under way then are given their time and a little more."""
    deadline = time.monotonic() + 300
    while course.lines.lines() < expected:
        if time.monotonic() > deadline:
            raise WorldError(f"{course.lines.lines():,} of {expected:,} runs have begun")
        await asyncio.sleep(0.2)
    if target.cluster is None:
        return
    database = await target.cluster.connect()
    try:
        while await database.fetchval(f"SELECT EXISTS (SELECT FROM {SCHEMA}.live_runs)"):
            if time.monotonic() > deadline:
                raise WorldError("some runs have not ended")
            await asyncio.sleep(0.2)
    finally:
        await database.close()


async def _failed(target: Target) -> int:
    """Runs that have failed within the hour, as the cluster says."""
    return int((await target.status())["last_hour"].get("failed", 0))
