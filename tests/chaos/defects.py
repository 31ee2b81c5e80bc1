"""Deliberate defects: proof that the checker can fail.

Each is a patch of `src/`, applied to a copy, and a short scenario with the fault that brings it out. The checker must
find a broken promise in the defective code and none in ours, under the same scenario and seed.

    python -m tests.chaos.defects [NAME …]
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.check import check_folder
from tests.chaos.cluster import SHORT_LEASES, Cluster
from tests.chaos.nemesis import Nemesis, Planned
from tests.chaos.recording import Act, Order, Recorded, record

import hourhand

PATCHES = Path(__file__).parent / "defects"
SOURCE = Path(hourhand.__file__).parent.parent
SKEW = "CHAOS_CLOCK_SKEW_SECONDS"
"""A variable that only a patch reads: by how much this node's own clock is wrong."""


def faults(*planned: Planned, pause_seconds: float = 1.0) -> Act:
    """One after the other, with a moment in between."""

    async def act(cluster: Cluster, nemesis: Nemesis) -> None:
        for one in planned:
            await nemesis.inject(one)
            await asyncio.sleep(pause_seconds)

    return act


def calm(seconds: float) -> Act:
    """Nothing is broken: the defect shows by itself."""

    async def act(cluster: Cluster, nemesis: Nemesis) -> None:
        await asyncio.sleep(seconds)

    return act


@dataclass(frozen=True, slots=True)
class Defect:
    name: str
    """Of the patch, too."""
    what: str
    scenario: str
    """In words, for the table."""
    act: Callable[[], Act]
    rate: float
    shares: Mapping[str, float]
    recurring: int = 0
    node_environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def patch(self) -> Path:
        return PATCHES / f"{self.name}.patch"


def _many(kinds: Iterable[tuple[str, float]]) -> tuple[Planned, ...]:
    return tuple(Planned(kind, number, seconds) for number, (kind, seconds) in enumerate(kinds, 1))


DEFECTS = (
    Defect(
        "no-unique-guard",
        "run ids are drawn at random, and cursors move wherever they stand",
        "300 jobs of every second; schedulers come and go",
        lambda: faults(*_many([("kill_scheduler", 0.3), ("stop_scheduler", 3.6), ("kill_leader", 0.3)] * 3)),
        rate=5,
        shares={"quick": 1.0},
        recurring=300,
    ),
    Defect(
        "fence-not-compared",
        "an attempt that has lost its right may still finish its run",
        "long jobs; executors are stopped for longer than their lease",
        lambda: faults(*_many([("stop_executor", 6.5)] * 4)),
        rate=6,
        shares={"long": 1.0},
    ),
    Defect(
        "acknowledged-before-commit",
        "a submission is answered before it is stored",
        "submissions; PostgreSQL and APIs are killed",
        lambda: faults(*_many([("postgres_kill", 0.2), ("kill_api", 0.2)] * 4)),
        rate=80,
        shares={"quick": 1.0},
    ),
    Defect(
        "commit-not-awaited",
        "sessions do not wait for the disk when they commit",
        "submissions; PostgreSQL is killed",
        lambda: faults(*_many([("postgres_kill", 0.2)] * 6)),
        rate=80,
        shares={"quick": 1.0},
    ),
    Defect(
        "node-clock-for-leases",
        "leases run by the clock of the node that renews them",
        "one executor and one scheduler are an hour ahead, and killed",
        lambda: faults(
            Planned("kill_executor", 1, 9.0, "executor-1"),
            Planned("kill_scheduler", 2, 9.0, "scheduler-1"),
        ),
        rate=20,
        shares={"quick": 0.8, "long": 0.2},
        recurring=30,
        node_environment={name: {SKEW: "3600"} for name in ("executor-1", "scheduler-1")},
    ),
    Defect(
        "cancel-only-flips-a-flag",
        "the executor does not end what is cancelled",
        "running jobs are cancelled",
        lambda: calm(15),
        rate=4,
        shares={"cancel_running": 1.0},
    ),
    Defect(
        "no-reconnect",
        "a loop that met a broken connection does not try again",
        "submissions; sessions are ended",
        # So many, and so much to do meanwhile, that some loops are met in the middle of a statement: those at rest take
        # another session without noticing.
        lambda: faults(*_many([("backend_kill", 4.0)] * 2)),
        rate=60,
        shares={"quick": 1.0},
        recurring=60,
    ),
    Defect(
        "epoch-unchecked",
        "planners do not ask whose shard it is when they write",
        "recurring jobs; schedulers are stopped for longer than their lease",
        lambda: faults(*_many([("stop_scheduler", 3.6), ("stop_leader", 3.6)])),
        rate=5,
        shares={"quick": 1.0},
        recurring=60,
    ),
    Defect(
        "no-polling",
        "executors look for work only when they are told to",
        "a submission now and then; wake-ups get lost",
        lambda: faults(*_many([("drop_notify", 8.0)] * 2), pause_seconds=3),
        rate=2,
        shares={"quick": 1.0},
    ),
    Defect(
        "children-left-alone",
        "only the first process of a command is ended",
        "commands with children, cancelled and timed out",
        lambda: calm(15),
        rate=4,
        shares={"command": 0.5, "cancel_running": 0.5},
    ),
    Defect(
        "limit-not-counted",
        "nobody counts who holds a limit already",
        "jobs with concurrency keys",
        lambda: calm(15),
        rate=20,
        shares={"limited": 1.0},
    ),
    Defect(
        "retries-at-once",
        "failed runs are tried again at once",
        "failing jobs",
        lambda: calm(15),
        rate=10,
        shares={"failing": 1.0},
    ),
)


# --- patching ---------------------------------------------------------------------------------------------


def patched_copy(defect: Defect, folder: Path) -> Path:
    """A copy of our sources with the defect in it."""
    source = folder / "src"
    shutil.copytree(SOURCE / "hourhand", source / "hourhand", ignore=shutil.ignore_patterns("__pycache__"))
    # From the folder above src, as the patch names its files; two lines of context on each side must fit.
    command = ["git", "apply", "-C2", "--whitespace=nowarn", str(defect.patch)]
    # Should the folder lie inside a repository, git must not look for the files in that.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    said = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if said.returncode:
        raise PatchRefused(f"{defect.patch.name} does not fit any more: {said.stderr.strip()}")
    return source


class PatchRefused(Exception):
    """The code that a defect is about has changed: the patch must follow it."""


# --- running ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    violated: tuple[str, ...]
    """Broken promises, by number and name; and what the logs do not say."""
    first: str
    seconds: float


def run(defect: Defect, source: Path, folder: Path, seed: int) -> Result:
    order = Order(
        title=defect.name,
        seed=seed,
        folder=folder,
        source=source,
        leases=SHORT_LEASES,
        rate=defect.rate,
        warm_seconds=5.0,
        schedulers=2,
        executors=2,
        apis=1,
        shares=defect.shares,
        recurring=defect.recurring,
        node_environment=defect.node_environment,
        settle_seconds_max=30.0,
    )
    recorded = asyncio.run(record(order, defect.act()))
    return _result(order, recorded)


def _result(order: Order, recorded: Recorded) -> Result:
    report = check_folder(order.folder)
    (order.folder / "report.txt").write_text(report.text() + "\n")
    found = [f"{number}" for number in report.violated]
    first = ""
    for number in report.violated:
        first = first or f"{number}: {report.findings[number].violations[0].message}"
    if report.broken_figures:
        found.append("figures")
        first = first or report.broken_figures[0].name
    for name, facts in (("not healed", recorded.unhealed), ("traceback", recorded.tracebacks)):
        if facts:
            found.append(name)
            first = first or facts[0]
    return Result(tuple(found), first, recorded.seconds)


def main() -> int:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.defects", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("build/chaos/defects"))
    parser.add_argument("--only-defective", action="store_true", help="leave out the runs of our own code")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {defect.name for defect in DEFECTS}
    if unknown:
        parser.error(f"there is no defect {', '.join(sorted(unknown))}")
    chosen = [defect for defect in DEFECTS if not arguments.names or defect.name in arguments.names]
    folder = arguments.folder.absolute() / time.strftime("%Y%m%d-%H%M%S")
    rows, bad = [], 0
    for defect in chosen:
        ours, theirs = _try(defect, folder, arguments.seed, with_ours=not arguments.only_defective)
        bad += bool(ours and ours.violated) + (not theirs.violated)
        rows.append((defect, ours, theirs))
    _print_table(rows)
    return 1 if bad else 0


def _try(defect: Defect, folder: Path, seed: int, *, with_ours: bool) -> tuple[Result | None, Result]:
    print(f"{defect.name} …", flush=True)
    ours = run(defect, SOURCE, folder / defect.name / "ours", seed) if with_ours else None
    with tempfile.TemporaryDirectory(prefix="hh-defect-") as scratch:
        theirs = run(defect, patched_copy(defect, Path(scratch)), folder / defect.name / "defective", seed)
    said = f"caught by {', '.join(theirs.violated)}: {theirs.first}" if theirs.violated else "NOT CAUGHT"
    print(f"  {said}", flush=True)
    if ours and ours.violated:
        print(f"  BUT OURS FAILS TOO, by {', '.join(ours.violated)}: {ours.first}", flush=True)
    return ours, theirs


def _print_table(rows: list[tuple[Defect, Result | None, Result]]) -> None:
    caught = sum(bool(theirs.violated) for _, _, theirs in rows)
    print(f"\n{caught} of {len(rows)} deliberate defects caught. Numbers are those of the invariants.\n")
    print(f"{'defect':<28} {'caught by':<24} {'ours':<8} scenario")
    for defect, ours, theirs in rows:
        by = ", ".join(theirs.violated) or "NOTHING"
        own = "not run" if ours is None else "FAILS" if ours.violated else "passes"
        print(f"{defect.name:<28} {by:<24} {own:<8} {defect.scenario}")


if __name__ == "__main__":
    sys.exit(main())
