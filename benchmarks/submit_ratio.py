"""How near submitting and reading come to the least they could cost: alternating runs, medians of ratios.

`single` and `read` against the bare ASGI application (`bare_asgi.py`), `batch` against the floor's submission alone
(`floor_submit.py`), which has no HTTP, no checks and no answers.

    python benchmarks/submit_ratio.py --pairs 3 --seconds 10
"""

import argparse
import sys

from pairs import HERE, bench, median, ratios, run

MODES = ("single", "batch", "read")


def measure(mode: str, pairs: int, seconds: float) -> list[float]:
    theirs = {
        "single": ["bare_rates.py", "submit"],
        "batch": ["floor_submit.py"],
        "read": ["bare_rates.py", "read"],
    }[mode]
    command = [sys.executable, str(HERE / theirs[0]), *theirs[1:], "--seconds", str(seconds), "--json"]
    return ratios(
        mode,
        pairs,
        lambda: _ours(mode, seconds),
        lambda: float(run(command)["per_second"]),
        "floor" if mode == "batch" else "bare",
    )


def _ours(mode: str, seconds: float) -> float:
    if mode == "read":
        return float(bench("read", "--seconds", str(seconds), "--readers", "0")["gets_per_second"])
    return float(bench("submit", "--mode", mode, "--seconds", str(seconds))["submit_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    args = parser.parse_args()
    for mode in args.modes:
        print(f"{mode:9} median ratio {median(measure(mode, args.pairs, args.seconds)):.2f}", flush=True)


if __name__ == "__main__":
    main()
