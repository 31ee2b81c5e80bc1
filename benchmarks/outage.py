"""Three days without a scheduler, of a million jobs of every minute: how many rows that leaves, and how long it takes.

python benchmarks/outage.py --jobs 1000000
"""

import argparse
import asyncio
import time

import psutil

from hourhand.bench.cluster import SCHEMA
from hourhand.bench.course import Course
from hourhand.bench.occurrences import ZONES
from hourhand.bench.report import Progress
from hourhand.bench.target import open_roles
from pairs import run_whole
from recurring_rows import store_jobs

DAYS = 3
MINUTES_A_DAY = 1440
MINUTES_LONG_MAX = 60
"""How long planning may take: the minutes meanwhile may be missed too."""
MINUTES = ["* * * * *", "*/1 * * * *", "0-59 * * * *", "0 * * * * *"]
LEFT = f"SELECT min(next_fire) < $1 FROM {SCHEMA}.timetable WHERE recurring"
"""Whether any job still stands in the time before planning began. While it goes on new minutes come, more than some
machines can plan in a minute: what becomes of those is no part of the outage."""
ROWS = f"""
    SELECT coalesce(sum(n), 0), coalesce(max(n), 0), coalesce(sum(c), 0)
      FROM (SELECT count(*) AS n, sum(count) AS c FROM {SCHEMA}.ledger_ranges WHERE first_due < $1 GROUP BY job_id) r"""


async def measure(jobs: int) -> None:
    progress = Progress.silent()
    async with open_roles({}, progress) as (roles, target):
        assert target.cluster is not None
        database = await target.cluster.connect()
        began = time.monotonic()
        texts = [(MINUTES[place % len(MINUTES)], ZONES[place % len(ZONES)]) for place in range(jobs)]
        stored = await store_jobs(target, database, texts)
        minute = int(time.time()) // 60 * 60 - DAYS * 86_400
        await stored.put_cursors([minute] * jobs)
        print(f"{jobs:,} jobs stored in {time.monotonic() - began:.0f} s", flush=True)
        before = await database.fetchval("SELECT pg_current_wal_insert_lsn()")
        began, over = time.monotonic(), await database.fetchval("SELECT clock_timestamp()")
        async with Course(target, progress) as course:
            scheduler = psutil.Process((await roles.start("scheduler")).pid)
            while await database.fetchval(LEFT, over):
                print(f"{time.monotonic() - began:5.0f} s: not through yet", flush=True)
                await asyncio.sleep(1)
            used = scheduler.cpu_times()
        seconds = time.monotonic() - began
        written = await database.fetchval("SELECT pg_current_wal_insert_lsn() - $1::pg_lsn", before)
        rows, most, count = await database.fetchrow(ROWS, over)
        runs = await database.fetchval(f"SELECT count(DISTINCT job_id) FROM {SCHEMA}.live_runs")
        size = await database.fetchval(f"SELECT pg_total_relation_size('{SCHEMA}.ledger_ranges')")
        await database.close()
    print(f"{DAYS} days of {jobs:,} jobs: {int(count):,} due times missed, in {int(rows):,} rows, at most {most} a job")
    print(f"{runs:,} jobs run what is newest; {seconds:.0f} s, {jobs / seconds:,.0f} jobs/s")
    print(f"the ledger has {size / 1e6:,.0f} MB; {float(written) / 1e6:,.0f} MB of log written")
    of_postgres = course.cpu_seconds().get("postgres scheduler", 0.0)
    print(f"processor: scheduler {used.user + used.system:.0f} s, its sessions of PostgreSQL {of_postgres:.0f} s")
    wrong = faults(jobs, int(rows), int(most), int(count), int(runs))
    if wrong:
        raise SystemExit("; ".join(wrong))


def faults(jobs: int, rows: int, most: int, missed: int, runs: int) -> list[str]:
    """What is not as it must be. Of each job the newest due time makes a run and all before it are missed; those of
    the minutes in which it begins and ends may be among them or not."""
    least, most_missed = jobs * (DAYS * MINUTES_A_DAY - 2), jobs * (DAYS * MINUTES_A_DAY + MINUTES_LONG_MAX)
    found = []
    if most > 1 or rows > jobs:
        found.append(f"more than one row for a job: {rows} rows for {jobs}")
    if rows < jobs:
        found.append(f"{jobs - rows} jobs have no row for what they missed")
    if not least <= missed <= most_missed:
        found.append(f"{missed} due times are told as missed, and there were {least} to {most_missed}")
    if runs != jobs:
        found.append(f"{runs} of {jobs} jobs run what is newest")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    run_whole(measure(parser.parse_args().jobs))


if __name__ == "__main__":
    main()
