"""The table of figures: each row's work, its bar, what was measured, and whether that is enough.

Ratios are medians of alternating pairs in one sitting. Prints Markdown and writes it, with date and machine, to
`build/figures.md`, and the plots of the rows beside it if matplotlib is there. Growth and soak take long and are left
out unless they are named.

    python benchmarks/table.py --quick
    python benchmarks/table.py --rows lifecycle steady-10000 burst
    python benchmarks/table.py --rows growth soak
"""

import argparse
import importlib.util
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lifecycle_ratio
import submit_ratio
from pairs import HERE, bench, median, ratios, run

BUILD = HERE.parent / "build"


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    quick: bool
    pairs: int
    seconds: float

    def pick(self, full: float, quick: float) -> str:
        return f"{quick if self.quick else full:g}"


@dataclass(frozen=True)
class Figure:
    work: str
    bar: str
    measured: str
    enough: bool | None
    """None: it could not be measured."""


Row = Callable[[Extent], list[Figure]]


def plotted(name: str, *words: str) -> dict[str, Any]:
    """A measurement whose course is drawn, where that is possible."""
    if importlib.util.find_spec("matplotlib") is not None:
        words = (*words, "--plot", str(BUILD / f"{name}.svg"))
    return bench(*words, whole=False)


# --- rows -------------------------------------------------------------------------------------------------


def lifecycle(extent: Extent) -> list[Figure]:
    found = []
    for mode in ("immediate", "future"):
        figure = median(lifecycle_ratio.measure(mode, extent.pairs, extent.seconds))
        found.append(Figure(f"lifecycle, saturated, {mode}", "≥ 0.75 × floor", f"{figure:.2f} ×", figure >= 0.75))
    plotted("lifecycle", "lifecycle", "--seconds", extent.pick(30, 5))
    return found


def pgqueuer(extent: Extent) -> list[Figure]:
    jobs = extent.pick(100_000, 20_000)
    command = [sys.executable, str(HERE / "peer_pgqueuer.py"), "--jobs", jobs, "--json"]
    figure = median(
        ratios(
            "pgqueuer",
            extent.pairs,
            lambda: lifecycle_ratio.lifecycle("immediate", extent.seconds),
            lambda: float(run(command)["jobs_per_second"]),
            "peer",
        )
    )
    return [Figure("lifecycle, immediate", "≥ 1.2 × PgQueuer", f"{figure:.2f} ×", figure >= 1.2)]


def _late(found: dict[str, Any]) -> str:
    late = found["lateness_ms"]
    counts = f"lost {found['lost']}, doubled {found['doubled']}, early {found['early']}"
    return (
        f"p50 {late['p50']:.1f}, p99 {late['p99']:.1f}, p99.9 {late['p99.9']:.1f}, max {late['max']:.0f} ms; {counts}"
    )


def _whole(found: dict[str, Any]) -> bool:
    return found["lost"] == found["doubled"] == found["early"] == 0


def steady_10000(extent: Extent) -> list[Figure]:
    found = plotted("steady-10000", "steady", "--rate", "10000", "--seconds", extent.pick(120, 10))
    late = found["lateness_ms"]
    enough = late["p50"] <= 20 and late["p99"] <= 100 and late["p99.9"] <= 500 and _whole(found)
    bar = "p50 ≤ 20 ms, p99 ≤ 100 ms, p99.9 ≤ 500 ms; lost 0, doubled 0"
    return [Figure(f"steady 10,000 due/s for {extent.pick(120, 10)} s, pre-loaded", bar, _late(found), enough)]


def steady_200(extent: Extent) -> list[Figure]:
    figures = []
    for submit in ("before", "meanwhile"):
        found = bench("steady", "--rate", "200", "--seconds", extent.pick(30, 5), "--submit", submit, whole=False)
        enough = found["lateness_ms"]["p99"] <= 5 and _whole(found)
        figures.append(Figure(f"steady 200 due/s, submitted {submit}", "p99 ≤ 5 ms", _late(found), enough))
    return figures


def steady_5000(extent: Extent) -> list[Figure]:
    words = ("steady", "--rate", "5000", "--seconds", extent.pick(60, 10), "--submit", "meanwhile")
    found = plotted("steady-5000-meanwhile", *words)
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found)
    return [Figure("steady 5,000/s submitted meanwhile", "p99 ≤ 100 ms", _late(found), enough)]


def recurring(extent: Extent) -> list[Figure]:
    found = plotted("recurring", "recurring", "--rate", "5000", "--seconds", extent.pick(120, 10))
    kinds = f"{found['expressions']:,} expressions in {found['zones']} zones"
    alone = bench("recurring", "--planner-only", "--jobs", extent.pick(60_000, 6_000), whole=False)
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found)
    return [
        Figure(f"recurring 5,000 occurrences/s, {kinds}", "p99 ≤ 100 ms", _late(found), enough),
        Figure(
            "recurring, planner alone",
            "≥ 20,000/s",
            f"{alone['jobs_per_second']:,.0f}/s",
            alone["jobs_per_second"] >= 20_000,
        ),
    ]


def burst(extent: Extent) -> list[Figure]:
    figures = []
    for jobs, limit, key in ((5_000, 0.3, "p99"), (10_000, 1.0, "all"), (100_000, 10.0, "all")):
        if extent.quick and jobs > 10_000:
            continue
        found = plotted(f"burst-{jobs}", "burst", "--jobs", str(jobs))
        seconds = found["lateness_ms"]["p99"] / 1000 if key == "p99" else found["all_started_seconds"]
        told = f"p50 {found['lateness_ms']['p50']:.0f} ms, p99 {found['lateness_ms']['p99']:.0f} ms, "
        told += f"all after {found['all_started_seconds']:.2f} s; lost {found['lost']}, doubled {found['doubled']}"
        figures.append(
            Figure(f"burst {jobs:,} at one instant", f"{key} ≤ {limit:g} s", told, seconds <= limit and _whole(found))
        )
    return figures


def immediate(extent: Extent) -> list[Figure]:
    found = bench("immediate", "--seconds", extent.pick(30, 5), whole=False)
    start = found["sent_to_start_ms"]
    told = f"p50 {start['p50']:.1f}, p99 {start['p99']:.1f} ms"
    enough = start["p50"] <= 8 and start["p99"] <= 25 and _whole(found)
    return [Figure("immediate, lightly loaded: sent → start", "p50 ≤ 8 ms, p99 ≤ 25 ms", told, enough)]


def submit(extent: Extent) -> list[Figure]:
    figures = []
    for mode, bar, other in (
        ("single", 0.6, "bare ASGI"),
        ("batch", 0.6, "floor's submit"),
        ("read", 0.5, "bare ASGI"),
    ):
        figure = median(submit_ratio.measure(mode, extent.pairs, float(extent.pick(10, 3))))
        work = "get a job by id" if mode == "read" else f"submit, {mode}"
        figures.append(Figure(work, f"≥ {bar} × {other}", f"{figure:.2f} ×", figure >= bar))
    return figures


def flight(extent: Extent) -> list[Figure]:
    figures = []
    for kind, full, quick in (("async", 10_000, 1000), ("http", 10_000, 500), ("process", 1000, 50)):
        jobs = int(extent.pick(full, quick))
        found = bench("flight", "--kind", kind, "--jobs", str(jobs), whole=False)
        ended = found["ended"].get("succeeded", 0)
        told = f"{found['in_flight_max']:,} at once, executor {found['executor_mb']:,.0f} MB, {ended:,} succeeded"
        enough = found["in_flight_max"] >= jobs and ended == jobs
        figures.append(Figure(f"in flight on one executor, {kind}", f"{jobs:,} at once", told, enough))
    return figures


def idle(extent: Extent) -> list[Figure]:
    words = ("--seconds", extent.pick(60, 5), "--windows", extent.pick(3, 1), "--rest", extent.pick(60, 5))
    found = bench("idle", *words)
    told = f"{found['core_percent']:.2f} % of a core, {found['besides_postgres_mb']:.0f} MB"
    enough = found["core_percent"] < 1 and found["besides_postgres_mb"] < 250
    return [Figure("idle", "< 1 % of one core; < 250 MB PSS besides PostgreSQL", told, enough)]


def growth(extent: Extent) -> list[Figure]:
    stored = int(extent.pick(10_000_000, 100_000))
    found = bench("growth", "--stored", str(stored), "--seconds", extent.pick(30, 5), whole=False)
    costs = {name: part["cost_us"] for name, part in found["compared"].items()}
    told = f"{found['cost_ratio']:.2f} × ({costs['base']:.0f} → {costs['grown']:.0f} µs)"
    work = f"growth: cost per job with {stored:,} jobs and runs stored"
    return [Figure(work, "≤ 1.2 × that at 10,000", told, found["cost_ratio"] <= 1.2)]


def soak(extent: Extent) -> list[Figure]:
    minutes = extent.pick(30, 1)
    found = plotted("soak", "soak", "--minutes", minutes, "--compare", extent.pick(5, 0.25))
    compared = found["compared"]["last_to_first"]
    worst = found["p99_worst_minute_ms"]
    told = f"p99 {compared.get('p99', 0):.2f} ×, cost {compared.get('cpu', 0):.2f} × the first"
    told += f"; worst minute {worst:.0f} ms; lost {found['lost']}, doubled {found['doubled']}"
    within = all(compared.get(key, 1.0) <= 1.1 for key in ("p99", "cpu"))
    bar = "last 5 min within 10 % of the first 5; p99 ≤ 100 ms throughout"
    return [Figure(f"soak {minutes} min at 5,000/s", bar, told, within and worst <= 100 and _whole(found))]


ROWS: dict[str, Row] = {
    "lifecycle": lifecycle,
    "pgqueuer": pgqueuer,
    "steady-10000": steady_10000,
    "steady-200": steady_200,
    "steady-5000": steady_5000,
    "recurring": recurring,
    "burst": burst,
    "immediate": immediate,
    "submit": submit,
    "flight": flight,
    "growth": growth,
    "soak": soak,
    "idle": idle,
}
LONG = ("growth", "soak")


# --- telling ----------------------------------------------------------------------------------------------


def machine() -> list[str]:
    """What the figures were taken on. Nothing that would tell whose machine it is."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split()[1]
    postgres = bench("immediate", "--seconds", "1", "--rate", "10")["settings"]
    durable = ", ".join(f"{key} {postgres[key]}" for key in ("fsync", "synchronous_commit", "full_page_writes"))
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"{os.cpu_count()} cores ({models[0].partition(':')[2].strip() if models else platform.machine()})",
        f"{int(memory) / 1024 / 1024:.0f} GiB",
        f"Python {platform.python_version()}, PostgreSQL {postgres['server_version']}",
        durable,
    ]


def markdown(figures: list[Figure], facts: list[str]) -> str:
    words = {True: "pass", False: "short", None: "not measured"}
    lines = ["; ".join(facts), "", "| work | bar | measured | |", "| --- | --- | --- | --- |"]
    lines += [f"| {each.work} | {each.bar} | {each.measured} | {words[each.enough]} |" for each in figures]
    return "\n".join(lines) + "\n"


def measure(names: list[str], extent: Extent, known: dict[str, Row] = ROWS) -> list[Figure]:
    """A row that fails says why in its place; the others are still measured."""
    figures: list[Figure] = []
    for name in names:
        try:
            rows = known[name](extent)
        except SystemExit as fault:
            print(fault, file=sys.stderr, flush=True)
            rows = [Figure(name, "", str(fault).splitlines()[-1][:200], None)]
        for row in rows:
            word = {True: "pass", False: "short", None: "-"}[row.enough]
            print(f"{word:5}  {row.work}: {row.measured}  (bar: {row.bar})", file=sys.stderr, flush=True)
        figures += rows
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form that shows that it works")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=[name for name in ROWS if name not in LONG])
    parser.add_argument("--pairs", type=int, help="alternating pairs of each ratio")
    parser.add_argument("--seconds", type=float, help="length of each side of a pair")
    parser.add_argument("--output", type=Path, default=BUILD / "figures.md")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    pairs = args.pairs or (1 if args.quick else 5)
    seconds = args.seconds or (4 if args.quick else 30)
    text = markdown(measure(args.rows, Extent(args.quick, pairs, seconds)), machine())
    args.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
