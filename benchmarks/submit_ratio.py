"""How near submitting and reading come to the least they could cost: alternating runs, medians of ratios.

`single` and `read` against the bare ASGI application (`bare_asgi.py`), `batch` against the floor's submission alone
(`floor_submit.py`), which has no HTTP, no checks and no answers.

    python benchmarks/submit_ratio.py --pairs 3 --seconds 15
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pairs import HERE, OURS, Rates, Round, Spare, bench, median, refuse_unsound, rounds, run, shares_of

BARE, FLOOR = "bare", "floor"


def measure_requests(pairs: int, seconds: float, spare: Spare | None = None) -> tuple[list[Round], list[Round]]:
    """Rounds of single submissions, and of gets by id: one server of each side does both, one after the other. So both
    of a round are set aside or neither is."""
    gets: list[Rates] = []

    def side(of: str) -> float:
        found = _rates(of, seconds)
        if len(gets) == 0 or of in gets[-1]:
            gets.append({})
        gets[-1][of] = float(found["gets_per_second"])
        return float(found["submit_per_second"])

    singles = rounds("single", pairs, {BARE: lambda: side(BARE), OURS: lambda: side(OURS)}, spare)
    return singles, [replace(each, rates=rates) for each, rates in zip(singles, gets, strict=True)]


def measure_batches(
    pairs: int, seconds: float, spare: Spare | None = None, measure: Callable[..., dict[str, Any]] = bench
) -> list[Round]:
    """`measure`: who runs our side, if it shall do more than that."""
    command = [sys.executable, str(HERE / "floor_submit.py"), "--seconds", str(seconds), "--json"]
    return rounds(
        "batch",
        pairs,
        {
            FLOOR: lambda: float(run(command)["per_second"]),
            OURS: lambda: float(measure("submit", "--mode", "batch", "--seconds", str(seconds))["submit_per_second"]),
        },
        spare,
    )


def _rates(of: str, seconds: float) -> dict[str, Any]:
    found = run([sys.executable, str(HERE / "request_rates.py"), of, "--seconds", str(seconds), "--json"])
    if of == OURS:
        refuse_unsound("request_rates.py", found)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--modes", nargs="+", default=["single", "batch"], choices=["single", "batch"])
    args = parser.parse_args()
    if "single" in args.modes:
        singles, gets = measure_requests(args.pairs, args.seconds)
        print(f"single    median ratio {median(shares_of(singles, BARE)):.2f}", flush=True)
        print(f"read      median ratio {median(shares_of(gets, BARE)):.2f}", flush=True)
    if "batch" in args.modes:
        print(f"batch     median ratio {median(shares_of(measure_batches(args.pairs, args.seconds), FLOOR)):.2f}")


if __name__ == "__main__":
    main()
