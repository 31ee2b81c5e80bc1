"""How many synchronous handlers a second worker processes run: attempts of the kind `python`, without a database.

python benchmarks/workers.py --seconds 5
"""

import argparse
import asyncio
import json
import time
from datetime import UTC, datetime
from uuid import uuid4

import uvloop

from hourhand.job_kinds.registry import KindSettings, kinds_for_running
from hourhand.model.outcome import Succeeded
from hourhand.ports.job_kind import Task


def task() -> Task:
    payload = {"handler": "bench.sync"}
    return Task(
        uuid4(), uuid4(), "default", "bench", "python", payload, 1, 1, datetime.now(UTC), lambda *_: None
    )  # fmt: skip


async def measure(processes: int, at_once: int, seconds: float) -> float:
    settings = KindSettings(
        handler_modules=("hourhand.job_kinds.samples",), worker_processes_max=processes, worker_processes_warm=processes
    )
    kind = kinds_for_running(settings)["python"]
    await kind.open()
    done = 0
    end = 0.0

    async def caller() -> None:
        nonlocal done
        while time.monotonic() < end:
            assert isinstance(await kind.run(task()), Succeeded)
            done += 1

    try:
        end = time.monotonic() + 0.5
        await asyncio.gather(*(caller() for _ in range(at_once)))  # everybody is warm
        done, begun = 0, time.monotonic()
        end = begun + seconds
        await asyncio.gather(*(caller() for _ in range(at_once)))
        return done / (time.monotonic() - begun)
    finally:
        await kind.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rates = [uvloop.run(measure(given.processes, given.at_once, given.seconds)) for _ in range(given.rounds)]
    print(json.dumps({"runs_per_second": [round(rate) for rate in rates], "bar": 5000}))


if __name__ == "__main__":
    main()
