"""How near the product comes to the floor: alternating runs of both on one machine, in one sitting.

The floor (`floor.py`) is a bare loop with the same durable writes. Machines are shared and noisy, so only the ratio
within a pair means anything; the median of the pairs is the figure.

    python benchmarks/lifecycle_ratio.py --pairs 3 --seconds 30
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

FLOOR = Path(__file__).with_name("floor.py")


def run(command: list[str]) -> dict:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--modes", nargs="+", default=["immediate", "future"])
    parser.add_argument("--at-least", type=float, help="fail when a median ratio is below this")
    args = parser.parse_args()
    short = []
    for mode in args.modes:
        ratios = []
        for pair in range(args.pairs):
            options = ["--seconds", str(args.seconds), "--mode", mode, "--json"]
            floor = run([sys.executable, str(FLOOR), *options])
            ours = run([sys.executable, "-m", "hourhand.cli", "bench", "lifecycle", *options])
            if ours["lost"] or ours["doubled"]:
                raise SystemExit(f"{mode}: {ours['lost']} lost, {ours['doubled']} doubled")
            ratios.append(ours["jobs_per_second"] / floor["jobs_per_second"])
            late = ours["lateness_ms"]
            print(
                f"{mode:9} pair {pair + 1}: floor {floor['jobs_per_second']:8.0f}/s   "
                f"hourhand {ours['jobs_per_second']:8.0f}/s   ratio {ratios[-1]:.2f}   "
                f"late p50 {late['p50']:.0f} p99 {late['p99']:.0f} ms   lost 0 doubled 0   {ours['settings']}",
                flush=True,
            )
        median = statistics.median(ratios)
        print(f"{mode:9} median ratio {median:.2f}", flush=True)
        if args.at_least and median < args.at_least:
            short.append(mode)
    if short:
        raise SystemExit(f"below {args.at_least}: {', '.join(short)}")


if __name__ == "__main__":
    main()
