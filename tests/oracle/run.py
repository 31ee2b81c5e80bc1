"""The whole comparison: `make oracle`. Prints what was compared, ends with 1 when anything differs.

Zones are shared out over the cores. Each has its own chance, from the seed and its name: the cases of a seed are the
same on every machine, however many cores it has.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from random import Random

from tests.oracle.cases import Tally, all_zones, judge
from tests.oracle.others import Compared, compare
from tests.oracle.rules import Ruled, compare_rules

CASES_LEAST = 200_000
RULES_LEAST = 3000
TELL_SECONDS = 15.0


@dataclass(frozen=True)
class Extent:
    seed: int
    walls: int
    cases: int
    others: int
    rules: int


@dataclass
class Sum:
    zones: set[str] = field(default_factory=set)
    cases: int = 0
    changes: int = 0
    due_times: int = 0
    cronsim: int = 0
    croniter: int = 0
    rules: int = 0
    rule_times: int = 0
    wrong: list[str] = field(default_factory=list)
    wrong_by_others: list[str] = field(default_factory=list)
    wrong_rules: list[str] = field(default_factory=list)

    def add(self, tally: Tally, told: Compared, ruled: Ruled) -> None:
        self.zones |= tally.zones
        self.cases += tally.cases
        self.changes += tally.changes
        self.due_times += tally.due_times
        self.cronsim += told.cronsim
        self.croniter += told.croniter
        self.wrong += tally.wrong
        self.wrong_by_others += told.wrong
        self.rules += ruled.rules
        self.rule_times += ruled.due_times
        self.wrong_rules += ruled.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walls", type=int, default=8, help="clock changes of each zone")
    parser.add_argument("--cases", type=int, default=46, help="expressions around each of them")
    parser.add_argument("--others", type=int, default=20, help="expressions of each zone for the other libraries")
    parser.add_argument("--rules", type=int, default=6, help="recurrence rules of each zone for dateutil")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    began = time.monotonic()
    zones = all_zones()
    whole = Sum()
    extent = Extent(given.seed, given.walls, given.cases, given.others, given.rules)
    for found in _judged(zones, extent, given.processes):
        whole.add(*found)
    print(
        f"walker: {whole.cases:,} cases in {len(whole.zones)} of {len(zones)} zones "
        f"around {whole.changes:,} clock changes, {whole.due_times:,} due times, {len(whole.wrong)} cases differ"
    )
    print(f"cronsim: {whole.cronsim:,} cases; croniter: {whole.croniter:,} cases; {len(whole.wrong_by_others)} differ")
    print(f"dateutil: {whole.rules:,} rules, {whole.rule_times:,} due times; {len(whole.wrong_rules)} differ")
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s on {given.processes} processes")
    wrong = [*whole.wrong, *whole.wrong_by_others, *whole.wrong_rules]
    for line in wrong[:50]:
        print(line)
    complete = whole.cases >= CASES_LEAST and whole.rules >= RULES_LEAST and len(whole.zones) == len(zones)
    if not complete:
        print(f"fewer than {CASES_LEAST:,} cases or {RULES_LEAST:,} rules, or a zone was left out")
    return 0 if complete and not wrong else 1


def _judged(zones: list[str], extent: Extent, processes: int) -> Iterator[tuple[Tally, Compared, Ruled]]:
    """What was found in each zone; on the way it is said how far it has come."""
    began = said = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        asked = [pool.submit(judge_zone, zone, extent) for zone in zones]
        for done, found in enumerate(as_completed(asked), 1):
            yield found.result()
            now = time.monotonic()
            if now - said >= TELL_SECONDS or done == len(zones):
                said, left = now, (now - began) / done * (len(zones) - done)
                print(f"{done} of {len(zones)} zones, {now - began:.0f} s, some {left:.0f} s to go", file=sys.stderr)


def judge_zone(zone: str, extent: Extent) -> tuple[Tally, Compared, Ruled]:
    tally = judge([zone], extent.walls, extent.cases, Random(f"{extent.seed} {zone}"))
    told = compare([zone], extent.others, Random(f"{extent.seed} {zone} others"))
    return tally, told, compare_rules([zone], extent.rules, Random(f"{extent.seed} {zone} rules"))


if __name__ == "__main__":
    sys.exit(main())
