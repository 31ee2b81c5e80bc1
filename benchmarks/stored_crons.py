"""A million distinct cron jobs stored, a thousand due each second, some of them changed just before: how late is each?

Zones are mixed. Meanwhile 5 % of the jobs that are about to fall due are changed through the API, a second or two
before their time. What must happen is counted without the product's cron code; beside it stands what the planner
takes. Then previews of 500 times are timed, in process and through the API.

    python benchmarks/stored_crons.py --jobs 1000000 --rate 1000 --seconds 60
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import httpx

from hourhand.bench.course import Course
from hourhand.bench.report import Progress
from hourhand.bench.submitting import MICROS, sleep_until
from hourhand.bench.target import Target, open_roles
from hourhand.bench.witness import compare, read_witness
from hourhand.cli.cron import _data
from hourhand.model.preview import preview
from hourhand.model.schedule_form import parse_timing
from pairs import run_whole
from recurring_rows import Cron, Stored, crons, store_jobs

LEAD_SECONDS = 20
PREVIEWED = [
    ({"cron": "0 2 * * *"}, "Europe/Berlin"),
    ({"cron": "*/5 * * * *"}, "America/New_York"),
    ({"cron": "30 2 L * *"}, "Australia/Lord_Howe"),
    ({"cron": "0 9 13 * FRI"}, "Pacific/Chatham"),
    ({"cron": "15,45 8-17 * * MON#1,FRIL"}, "Asia/Tehran"),
    ({"cron": "0 0 29 2 *"}, "Europe/London"),
    ({"rrule": "FREQ=YEARLY;BYMONTH=1,7;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=3,-3"}, "Europe/Berlin"),
    ({"rrule": "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"}, "America/New_York"),
    ({"rrule": "FREQ=MONTHLY;BYDAY=2TU,-1FR"}, "Australia/Lord_Howe"),
    ({"rrule": "FREQ=YEARLY;BYWEEKNO=1,20,-1;BYDAY=MO"}, "Europe/Berlin"),
    ({"rrule": "FREQ=YEARLY;BYYEARDAY=1,100,-1"}, "America/New_York"),
    ({"rrule": "FREQ=MONTHLY;BYMONTHDAY=-1"}, "Europe/London"),
    ({"rrule": "FREQ=SECONDLY;INTERVAL=7"}, "Asia/Tehran"),
]
FIRST = "2026-01-05T02:30:00"
"""Of the rules."""


async def measure(jobs: int, rate: float, seconds: int, changed: float) -> bool:
    progress = Progress.silent()
    async with open_roles({}, progress) as (roles, target):
        assert target.cluster is not None
        database = await target.cluster.connect()
        began = time.monotonic()
        found = crons(jobs, rate, time.time())
        assert len({(each.text, each.zone) for each in found}) == len(found)
        stored = await store_jobs(target, database, [(each.text, each.zone) for each in found])
        begin = int(time.time()) + 30 + len(found) // 20_000
        took = await stored.put_cursors([next(each.due_times(begin, begin + 3601)) for each in found])
        await database.execute("CHECKPOINT")
        zones = len({each.zone for each in found})
        print(f"{len(found):,} jobs in {zones} zones stored in {time.monotonic() - began:.0f} s", flush=True)
        if time.time() > begin - LEAD_SECONDS:
            raise SystemExit(f"storing the cursors took {took:.0f} s, too long for the first due time")
        await sleep_until((begin - LEAD_SECONDS) * MICROS)
        await roles.start("executor")
        await roles.start("scheduler")
        expected = expected_keys(found, stored, begin, begin + seconds)
        good = await run(target, found, stored, begin, seconds, changed, expected)
        await database.close()
        return good & await time_previews(target)


def expected_keys(found: Sequence[Cron], stored: Stored, begin: int, end: int) -> list[int]:
    return [
        key(job_id.int & ((1 << 64) - 1), due)
        for each, job_id in zip(found, stored.ids, strict=True)
        for due in each.due_times(begin, end)
    ]


def key(low: int, due: int) -> int:
    return low << 40 | due


async def run(
    target: Target, found: Sequence[Cron], stored: Stored, begin: int, seconds: int, share: float, expected: list[int]
) -> bool:
    end = begin + seconds
    course = Course(target, Progress.silent())
    due = to_change(found, stored, begin, end, share)
    await sleep_until((begin - 1) * MICROS)
    async with course:
        changed = await change_meanwhile(target, due, begin, end)
        await sleep_until(end * MICROS)
    await asyncio.sleep(3)  # what is late is written by then
    seen = read_witness(target.witness)
    ours = [place for place, due in enumerate(seen.dues) if begin * MICROS <= due < end * MICROS]
    late = sorted((seen.starts[place] - seen.dues[place]) / 1000 for place in ours)
    told = compare(expected, (key(seen.lows[place], seen.dues[place] // MICROS) for place in ours))
    cores = course.cpu()
    planner, of_postgres = cores.get("scheduler", 0.0), cores.get("postgres scheduler", 0.0)
    p50, p99, p999 = (late[int((len(late) - 1) * part)] for part in (0.5, 0.99, 0.999))
    print(
        f"{len(expected):,} due in {seconds} s ({len(expected) / seconds:,.0f}/s), {changed:,} jobs changed meanwhile"
    )
    early = sum(each < 0 for each in late)
    print(f"lateness p50 {p50:.1f}, p99 {p99:.1f}, p99.9 {p999:.1f}, max {late[-1]:.0f} ms; early {early}; {told}")
    print(f"planner {planner:.2f} cores, its sessions of PostgreSQL {of_postgres:.2f}")
    print(f"cores: {json.dumps(cores)}; machine: {json.dumps(course.machine())}", flush=True)
    return p99 <= 100 and planner <= 0.5 and not early and told == {"lost": 0, "doubled": 0}


def to_change(
    found: Sequence[Cron], stored: Stored, begin: int, end: int, share: float
) -> Mapping[int, Sequence[UUID]]:
    """A share of the jobs that are due at each second."""
    chance = random.Random(8)
    due: defaultdict[int, list[UUID]] = defaultdict(list)
    for each, job_id in zip(found, stored.ids, strict=True):
        for instant in each.due_times(begin, end):
            if chance.random() < share:
                due[instant].append(job_id)
    return due


async def change_meanwhile(target: Target, due: Mapping[int, Sequence[UUID]], begin: int, end: int) -> int:
    """Changes the jobs of each second, from two seconds to one before it. How many were changed."""
    changed = 0
    async with target.client() as http:
        for second in range(begin + 2, end):
            now = second - 2
            changing = due.get(second, ())
            for number, job_id in enumerate(changing):
                await sleep_until(int((now + number / len(changing)) * MICROS))
                answer = await http.put(f"/api/v1/jobs/{job_id}", content=b'{"description": "changed"}')
                answer.raise_for_status()
                changed += 1
    return changed


async def time_previews(target: Target) -> bool:
    """500 times of each expression and rule, the median of several."""
    now, good = datetime.now(UTC), True
    async with target.client() as http:
        for said, zone in PREVIEWED:
            schedule = said | {"first": FIRST} if "rrule" in said else said

            def in_process(schedule: dict[str, str] = schedule, zone: str = zone) -> None:
                _data(preview(parse_timing(schedule, zone, now=now, seed=0), now, None, 500))

            asked = [await _asked(http, schedule, zone) for _ in range(15)]
            ours = [_timed(in_process) for _ in range(15)]
            inside, through = statistics.median(ours), statistics.median(asked)
            good &= inside <= 20 and through <= 20
            [text] = said.values()
            print(
                f"500 times of {text!r} in {zone}: in process {inside:.1f} ms, by the API {through:.1f} ms", flush=True
            )
    return good


def _timed(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return (time.perf_counter() - began) * 1000


async def _asked(http: httpx.AsyncClient, schedule: Mapping[str, str], zone: str) -> float:
    began = time.perf_counter()
    answer = await http.get("/api/v1/schedules/preview", params={**schedule, "zone": zone, "count": "500"})
    took = (time.perf_counter() - began) * 1000
    assert len(answer.raise_for_status().json()["times"]) >= 40
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--changed", type=float, default=0.05, help="share of those due that are changed meanwhile")
    given = parser.parse_args()
    good = run_whole(measure(given.jobs, given.rate, given.seconds, given.changed))
    print("enough" if good else "not enough: p99 ≤ 100 ms, planner ≤ 0.5 cores, previews ≤ 20 ms, lost and doubled 0")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
