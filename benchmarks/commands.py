"""How fast `/bin/true` is run as a command, beside `xargs -P2 -n1 /bin/true` on the same machine.

    python benchmarks/commands.py [--seconds 3] [--rounds 3] [--slots 4]

Pairs alternate, so that what else happens on the machine happens to all of them. Each is the rate of the kind itself:
attempts through a `ProgramRunner`, as many at once as there are slots, without a database. Printed are rates, and what
counts: their ratios to the bare loop of xargs. The issue asks for 0.5 without containment and 0.25 with it.
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Literal
from uuid import uuid4

import uvloop

from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.outcome import Succeeded
from hourhand.ports.job_kind import Task

PROGRAM = "/bin/true"
WAYS: Sequence[Literal["none", "full"]] = ("none", "full")
GOALS = {"none": 0.5, "full": 0.25}
_fences = count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=4, help="attempts at once")
    told = parser.parse_args()
    busy = os.getloadavg()[0]
    rates: dict[str, list[float]] = {"xargs": [], **{way: [] for way in WAYS}}
    for _ in range(told.rounds):
        for way in WAYS:
            rates["xargs"].append(xargs_rate(told.seconds))
            rates[way].append(uvloop.run(kind_rate(way, told.seconds, told.slots)))
    print(f"{os.cpu_count()} cores, load at the beginning {busy:.2f}, {told.slots} attempts at once, {PROGRAM}")
    bare = statistics.median(rates["xargs"])
    print(f"xargs -P2 -n1       {bare:8.0f}/s   {_spread(rates['xargs'])}")
    for way in WAYS:
        rate = statistics.median(rates[way])
        ratio = statistics.median(
            one / two for one, two in zip(rates[way], rates["xargs"][WAYS.index(way) :: len(WAYS)], strict=True)
        )
        print(f"containment {way:<7} {rate:8.0f}/s   {_spread(rates[way])}   {ratio:.2f} x xargs (goal {GOALS[way]})")


def xargs_rate(seconds: float) -> float:
    """Programs per second, by as many as take about so long."""
    took, number = 0.0, 200
    while took < seconds / 2:
        began = time.monotonic()
        lines = "x\n" * number
        command = ["xargs", "-P2", "-n1", PROGRAM]
        subprocess.run(command, input=lines, text=True, check=True)
        took = time.monotonic() - began
        rate = number / took
        number = max(number, round(rate * seconds))
    return rate


async def kind_rate(containment: Literal["full", "none"], seconds: float, slots: int) -> float:
    kind = CommandKind(ProgramRunner(ProgramSettings(containment=containment)))
    await kind.open()
    try:
        await kind.run(task())
        end = time.monotonic() + seconds
        began = time.monotonic()
        done = await asyncio.gather(*(slot(kind, end) for _ in range(slots)))
        return sum(done) / (time.monotonic() - began)
    finally:
        await kind.close()


async def slot(kind: CommandKind, end: float) -> int:
    done = 0
    while time.monotonic() < end:
        outcome = await kind.run(task())
        assert outcome == Succeeded({"exit_code": 0}), outcome
        done += 1
    return done


def task() -> Task:
    return Task(
        uuid4(), uuid4(), "default", "bench", "command", {"argv": [PROGRAM]}, 1, next(_fences), datetime.now(UTC), _log
    )  # fmt: skip


def _log(_stream: str, _text: str) -> None:
    pass


def _spread(rates: Sequence[float]) -> str:
    return f"({min(rates):.0f} to {max(rates):.0f})"


if __name__ == "__main__":
    main()
