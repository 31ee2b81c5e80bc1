"""The whole comparison: `make oracle`. Prints what was compared, ends with 1 when anything differs."""

import argparse
import sys
import time
from random import Random

from tests.oracle.cases import all_zones, judge
from tests.oracle.others import compare

CASES_LEAST = 200_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--walls", type=int, default=8, help="clock changes of each zone")
    parser.add_argument("--cases", type=int, default=44, help="expressions around each of them")
    parser.add_argument("--others", type=int, default=20, help="expressions of each zone for the other libraries")
    given = parser.parse_args()
    began = time.monotonic()
    zones = all_zones()
    tally = judge(zones, given.walls, given.cases, Random(given.seed))
    print(
        f"walker: {tally.cases:,} cases in {len(tally.zones)} of {len(zones)} zones "
        f"around {tally.changes:,} clock changes, {tally.due_times:,} due times, {len(tally.wrong)} cases differ"
    )
    told = compare(zones, given.others, Random(given.seed))
    print(f"cronsim: {told.cronsim:,} cases; croniter: {told.croniter:,} cases; {len(told.wrong)} differ")
    print(f"seed {given.seed}, {time.monotonic() - began:.0f} s")
    for line in [*tally.wrong, *told.wrong][:50]:
        print(line)
    complete = tally.cases >= CASES_LEAST and len(tally.zones) == len(zones)
    if not complete:
        print(f"fewer than {CASES_LEAST:,} cases, or a zone was left out")
    return 0 if complete and not tally.wrong and not told.wrong else 1


if __name__ == "__main__":
    sys.exit(main())
