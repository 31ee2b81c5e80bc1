"""How near the product comes to the floor: alternating runs of both on one machine, in one sitting.

The floor (`floor.py`) is a bare loop with the same durable writes. The median of the pairs is the figure.

    python benchmarks/lifecycle_ratio.py --pairs 3 --seconds 30
"""

import argparse

from pairs import bench, floor, median, ratios


def lifecycle(mode: str, seconds: float) -> float:
    found = bench("lifecycle", "--seconds", str(seconds), "--mode", mode)
    return float(found["jobs_per_second"])


def measure(mode: str, pairs: int, seconds: float) -> list[float]:
    return ratios(
        mode,
        pairs,
        lambda: lifecycle(mode, seconds),
        lambda: float(floor(mode, seconds)["jobs_per_second"]),
        "floor",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--modes", nargs="+", default=["immediate", "future"])
    parser.add_argument("--at-least", type=float, help="fail when a median ratio is below this")
    args = parser.parse_args()
    short = []
    for mode in args.modes:
        figure = median(measure(mode, args.pairs, args.seconds))
        print(f"{mode:9} median ratio {figure:.2f}", flush=True)
        if args.at_least and figure < args.at_least:
            short.append(mode)
    if short:
        raise SystemExit(f"below {args.at_least}: {', '.join(short)}")


if __name__ == "__main__":
    main()
