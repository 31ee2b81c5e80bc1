"""How fast `/bin/true` is run as a command, beside `xargs -P2 -n1 /bin/true` on the same machine.

    python benchmarks/commands.py [--seconds 3] [--rounds 3] [--slots 4]

Pairs alternate, so that what else happens on the machine happens to all of them. Each is the rate of the kind itself:
attempts through a `ProgramRunner`, as many at once as there are slots, without a database. Printed are rates and their
ratios to the bare loop of xargs, of which 0.5 is wanted without containment and 0.25 with it; and the processor time
per program, of everybody who has a part in it, which says the same on a machine that is busy with other things.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
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
    parser.add_argument("--json", action="store_true", help="one object instead of lines for people")
    told = parser.parse_args()
    busy = os.getloadavg()[0]
    rates: dict[str, list[float]] = {"xargs": [], **{way: [] for way in WAYS}}
    costs: dict[str, list[float]] = {name: [] for name in rates}

    def note(name: str, measure: Callable[[], tuple[int, float]]) -> None:
        before = cpu_seconds()
        number, seconds = measure()
        rates[name].append(number / seconds)
        costs[name].append((cpu_seconds() - before) / number * 1000)

    for _ in range(told.rounds):
        for way in WAYS:
            note("xargs", lambda: xargs_runs(told.seconds))
            note(way, lambda way=way: uvloop.run(kind_runs(way, told.seconds, told.slots)))  # type: ignore[misc]
    if not told.json:
        print(f"{os.cpu_count()} cores, load at the beginning {busy:.2f}, {told.slots} attempts at once, {PROGRAM}")
    found = {}
    for name, goal in (("xargs", 1.0), *GOALS.items()):
        rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
        beside = rates["xargs"] if name == "xargs" else rates["xargs"][WAYS.index(name) :: len(WAYS)]  # type: ignore[arg-type]
        ratio = statistics.median(one / two for one, two in zip(rates[name], beside, strict=True))
        by_cost = statistics.median(costs["xargs"]) / cost
        found[name] = {"per_second": round(rate), "ratio": round(ratio, 3), "ratio_by_cost": round(by_cost, 3)}
        if told.json:
            continue
        spread = f"({min(rates[name]):.0f} to {max(rates[name]):.0f})"
        print(
            f"{name:<6} {rate:7.0f}/s {spread:<16} {ratio:5.2f} x xargs (goal {goal}); "
            f"{cost:5.2f} ms of processor time each, {by_cost:5.2f} x"
        )
    if told.json:
        print(json.dumps(found))


def cpu_seconds() -> float:
    """Of this process and all that it has waited for."""
    return sum(os.times()[:4])


def xargs_runs(seconds: float) -> tuple[int, float]:
    """How many programs were run in how many seconds; about as many seconds as wished."""
    began, number = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        subprocess.run(["xargs", "-P2", "-n1", PROGRAM], input="x\n" * 100, text=True, check=True)
        number += 100
    return number, time.monotonic() - began


async def kind_runs(containment: Literal["full", "none"], seconds: float, slots: int) -> tuple[int, float]:
    kind = CommandKind(ProgramRunner(ProgramSettings(containment=containment)))
    await kind.open()
    try:
        await kind.run(task())
        began = time.monotonic()
        done = await asyncio.gather(*(slot(kind, began + seconds) for _ in range(slots)))
        return sum(done), time.monotonic() - began
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


if __name__ == "__main__":
    main()
