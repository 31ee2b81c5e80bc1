"""The gate: a cluster under load, broken in every way by a plan, healed, read and judged.

    python -m tests.chaos.gate --seed 7 --minutes 5 --leases short

Warm, then one fault after another, each followed by healing; then the load stops, everything settles, all logs are
written to a folder and judged. Exit code 0: every promise held; 1: one was broken; 3: too little was put to the test.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path

from tests.chaos.check import check_folder
from tests.chaos.cluster import DEFAULT_LEASES, SHORT_LEASES, Cluster
from tests.chaos.invariants import INVARIANTS
from tests.chaos.nemesis import KINDS, Nemesis, Planned, plan
from tests.chaos.recording import Order, Recorded, record

import hourhand

LEASES = {"short": SHORT_LEASES, "default": DEFAULT_LEASES}
EXIT_CODES = {"pass": 0, "fail": 1, "unknown": 3}
REST_SECONDS = 28.0
"""After a round nothing is broken for so long: promises of calm times need calm times."""
SILENCE_SECONDS = 8.0
"""The end of a rest, in which no wake-up is heard."""
CATCHUP_GRACE_SECONDS = 15.0
"""Due times that are older than this when they are planned follow their job's catch-up policy."""
SPECIALS_SECONDS = 70.0
"""For what is done once, after all rounds."""
END_SECONDS = 40.0
"""Settling, reading and stopping."""


def main() -> int:
    arguments = _arguments()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    folder = arguments.folder or Path("build/chaos") / f"{time.strftime('%Y%m%d-%H%M%S')}-{seed}"
    order = Order(
        title=f"gate, seed {seed}, {arguments.leases} leases",
        seed=seed,
        folder=folder.absolute(),
        source=arguments.source.absolute(),
        leases=LEASES[arguments.leases],
        rate=arguments.rate,
        injections_min=dict.fromkeys(KINDS, arguments.injections) if arguments.injections else {},
        invariants_demanded=[one.number for one in INVARIANTS] if arguments.injections else [],
        figures_demanded=bool(arguments.injections),
    )
    ends = time.monotonic() + arguments.minutes * 60 - END_SECONDS

    async def act(cluster: Cluster, nemesis: Nemesis) -> None:
        await _break_everything(nemesis, order, arguments, ends)

    _say(f"{order.title}, {arguments.minutes:g} minutes; logs in {folder}")
    recorded = asyncio.run(record(order, act))
    return _judge(order, recorded)


async def _break_everything(nemesis: Nemesis, order: Order, given: argparse.Namespace, ends: float) -> None:
    """Round after round while there is time; then what takes long and is done once."""
    ends -= SPECIALS_SECONDS
    for planned in plan(order.seed, order.leases):
        if time.monotonic() + planned.seconds + 5 > ends:  # it could not be healed any more
            break
        began = time.monotonic()
        await nemesis.inject(planned)
        passed = time.monotonic() - began
        _say(f"{planned.number:4} {planned.kind:<18} for {planned.seconds:5.2f} s, whole again after {passed:5.2f} s")
        done, rest = divmod(planned.number, len(KINDS))
        if rest == 0:
            if done >= given.rounds:
                break
            if done % given.rest_every == 0:
                await _rest(nemesis, ends)
    await nemesis.stop_all_schedulers(CATCHUP_GRACE_SECONDS + 4)
    await nemesis.restart_everything()


async def _rest(nemesis: Nemesis, ends: float) -> None:
    """Nothing is broken for a while. Wake-ups get lost in it, because that must not be felt."""
    if time.monotonic() + REST_SECONDS < ends:
        await asyncio.sleep(REST_SECONDS - SILENCE_SECONDS)
        await nemesis.inject(Planned("drop_notify", 0, SILENCE_SECONDS))


def _judge(order: Order, recorded: Recorded) -> int:
    report = check_folder(order.folder)
    verdict = report.verdict
    lines = [report.text(), ""]
    lines += [f"not offered by this version, so not exercised: {name}" for name in recorded.missing]
    lines += [f"not whole again in time: {what}" for what in recorded.unhealed]
    lines += [f"ended by itself: {what}" for what in recorded.ended_by_themselves]
    lines += [f"traceback: {what}" for what in recorded.tracebacks]
    lines += [f"the workload could not make sense of an answer: {what}" for what in recorded.broken]
    if recorded.tracebacks or recorded.ended_by_themselves or recorded.unhealed or recorded.broken:
        verdict = "fail"
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    lines.append(f"gate: {verdict}  (seed {order.seed}, {recorded.seconds:.0f} s, load average {load})")
    text = "\n".join(lines)
    (order.folder / "report.txt").write_text(text + "\n")
    _say(text)
    return EXIT_CODES[verdict]


def _arguments() -> argparse.Namespace:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.gate", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=None, help="the plan follows from it; a new one by default")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long everything may take, without the judging")
    parser.add_argument("--leases", choices=sorted(LEASES), default="short")
    parser.add_argument(
        "--injections",
        type=int,
        default=0,
        help="of each kind; with fewer, or a promise not put to the test, the result is unknown",
    )
    parser.add_argument("--rate", type=float, default=60.0, help="pieces of work per second")
    parser.add_argument("--rounds", type=int, default=1000, help="rounds of all faults at most; time may allow fewer")
    parser.add_argument("--rest-every", type=int, default=1, help="a time without faults after so many rounds")
    parser.add_argument("--folder", type=Path, default=None, help="where the logs go; build/chaos/… by default")
    parser.add_argument("--source", type=Path, default=Path(hourhand.__file__).parent.parent, help="the code to run")
    return parser.parse_args()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
