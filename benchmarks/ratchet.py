"""The check that CI makes: short alternating pairs with the floor, in a minute; no later change may lose speed unseen.

Fails when a median ratio is below nine tenths of the one that is recorded in `recorded.json`, and when nothing is
recorded: an empty record must not pass for a good one. `--record` writes what was measured there.

    python benchmarks/ratchet.py
"""

import argparse
import json
from pathlib import Path

from lifecycle_ratio import measure
from pairs import HERE, median

RECORDED = HERE / "recorded.json"
MODES = ("immediate", "future")
TOLERANCE = 0.9


def judge(found: dict[str, float], recorded: dict[str, float | None]) -> list[str]:
    """What is wrong, a line for each mode; nothing when all is well."""
    faults = []
    for mode in MODES:
        bar = recorded.get(mode)
        if not isinstance(bar, int | float) or bar <= 0:
            faults.append(f"{mode}: no ratio is recorded in {RECORDED.name}")
        elif mode not in found:
            faults.append(f"{mode}: was not measured")
        elif found[mode] < TOLERANCE * bar:
            faults.append(f"{mode}: {found[mode]:.2f} is below {TOLERANCE} × {bar:.2f}, which is recorded")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--recorded", type=Path, default=RECORDED)
    parser.add_argument("--record", action="store_true", help="write the ratios instead of judging them")
    args = parser.parse_args()
    found = {mode: round(median(measure(mode, args.pairs, args.seconds)), 3) for mode in MODES}
    for mode, ratio in found.items():
        print(f"{mode:9} median ratio {ratio:.2f}", flush=True)
    if args.record:
        args.recorded.write_text(json.dumps(found, indent=2) + "\n")
        return
    faults = judge(found, json.loads(args.recorded.read_text()))
    if faults:
        raise SystemExit("\n".join(faults))


if __name__ == "__main__":
    main()
