"""The table of figures: each row's work, its bar, what was measured, and whether that is enough.

Ratios are medians of alternating rounds in one sitting. Prints Markdown and writes it, with date and machine, to
`build/figures.md`, and the plots of the rows beside it; `publish.py` puts both into the documentation. Ends with 1 when
a row is short or could not be measured; a short form (`--quick`), which says so, only when one could not be measured.

The rows of `make bench` must not take more than 40 minutes. Five rounds of whole lives take 13 of them: 30 s for each
side and mode, and PgQueuer's 100,000 jobs in the same rounds. Five rounds of submissions and gets take 9: 15 s for each
side, 30 s a pair. The 120 s of 10,000 due a second take 4 with their submission; the rest, each once, 11. What it took
is told with the table. Rows that take longer are left out unless they are named.

    python benchmarks/table.py --quick
    python benchmarks/table.py --rows lifecycle-immediate steady-10000 burst
    python benchmarks/table.py --rows growth soak day --output build/figures-long.md
"""

import argparse
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pairs
import submit_ratio
from pairs import HERE, OURS, bench, floor, median, rounds, run, shares_of, told_share

BUILD = HERE.parent / "build"
PLOTS = BUILD / "plots"
MINUTES_MAX = 40
QUICK = "**a short form, which shows that it works: its values are no figures**"


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    quick: bool
    pairs: int
    seconds: float

    def pick(self, full: float, quick: float) -> str:
        chosen = quick if self.quick else full
        return str(int(chosen)) if chosen == int(chosen) else f"{chosen:g}"  # else a million would be 1e+06


@dataclass(frozen=True)
class Figure:
    work: str
    bar: str
    measured: str
    enough: bool | None
    """None: it could not be measured."""
    others: float | None = None
    """Cores that others took meanwhile, or the host; None if that is not known."""
    plot: str | None = None
    """Name of the picture of its course."""


Row = Callable[[Extent], list[Figure]]


def plotted(name: str, *words: str, whole: bool = False) -> dict[str, Any]:
    """A measurement whose course is drawn, where that is possible."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("matplotlib") is not None:
        words = (*words, "--plot", str(PLOTS / f"{name}.png"))
    return bench(*words, whole=whole)


# --- rows -------------------------------------------------------------------------------------------------


def lifecycle_immediate(extent: Extent) -> list[Figure]:
    """Beside the floor and beside PgQueuer, in the same rounds."""
    jobs = extent.pick(100_000, 20_000)
    peer = [sys.executable, str(HERE / "peer_pgqueuer.py"), "--jobs", jobs, "--json"]
    sides = _sides("immediate", extent)
    failure, enqueued = "", list[float]()

    def peers() -> float:
        found = run(peer)
        enqueued.append(float(found["enqueue_per_second"]))
        return float(found["jobs_per_second"])

    try:
        version = run([*peer, "--install"])["peer"]  # so that nobody waits for a download within a round
        sides["peer"] = peers
    except SystemExit as fault:
        failure = str(fault).splitlines()[-1][:200]
    found = rounds("immediate", extent.pairs, sides)
    figures = [_ratio("lifecycle, saturated, immediate", 0.75, found, "floor", "floor", "lifecycle-immediate")]
    if failure:
        return [*figures, Figure("lifecycle, immediate", "≥ 1.2 × PgQueuer", failure, None)]
    beside = _ratio("lifecycle, immediate", 1.2, found, "peer", version)
    return [*figures, replace(beside, measured=f"{beside.measured}; its producer {median(enqueued):,.0f}/s")]


def lifecycle_future(extent: Extent) -> list[Figure]:
    found = rounds("future", extent.pairs, _sides("future", extent))
    return [_ratio("lifecycle, saturated, future", 0.75, found, "floor", "floor", "lifecycle-future")]


def _sides(mode: str, extent: Extent) -> dict[str, Callable[[], float]]:
    """The first round is drawn: one picture is enough, and each takes two seconds."""
    words = ("lifecycle", "--seconds", str(extent.seconds), "--mode", mode)
    ways = iter([lambda: plotted(f"lifecycle-{mode}", *words, whole=True)])

    def ours() -> float:
        return float(next(ways, lambda: bench(*words))()["jobs_per_second"])

    return {"floor": lambda: float(floor(mode, extent.seconds)["jobs_per_second"]), OURS: ours}


def _ratio(work: str, bar: float, found: list[pairs.Rates], other: str, name: str, plot: str | None = None) -> Figure:
    enough = median(shares_of(found, other)) >= bar
    return Figure(work, f"≥ {bar:g} × {name}", told_share(found, other), enough, plot=plot)


def _late(found: dict[str, Any]) -> str:
    late = found["lateness_ms"]
    counts = f"lost {found['lost']}, doubled {found['doubled']}, early {found['early']}"
    counts += f", misdated {found['misdated']}" if found.get("misdated") else ""
    return (
        f"p50 {late['p50']:.1f}, p99 {late['p99']:.1f}, p99.9 {late['p99.9']:.1f}, max {late['max']:.0f} ms; {counts}"
    )


def _whole(found: dict[str, Any]) -> bool:
    return found["lost"] == found["doubled"] == found["early"] == found.get("misdated", 0) == 0


def steady_10000(extent: Extent) -> list[Figure]:
    found = plotted("steady-10000", "steady", "--rate", "10000", "--seconds", extent.pick(120, 10))
    late = found["lateness_ms"]
    enough = late["p50"] <= 20 and late["p99"] <= 100 and late["p99.9"] <= 500 and _whole(found)
    bar = "p50 ≤ 20 ms, p99 ≤ 100 ms, p99.9 ≤ 500 ms; lost 0, doubled 0"
    work = f"steady 10,000 due/s for {extent.pick(120, 10)} s, pre-loaded"
    return [Figure(work, bar, _late(found), enough, plot="steady-10000")]


def steady_200(extent: Extent) -> list[Figure]:
    """Three times each, in turn, and judged by the median: where the disk stands still for a third of a second more are
    late than one run may have. Told is every p99, and the run in the middle."""
    ways = ("before", "meanwhile")
    found: dict[str, list[dict[str, Any]]] = {submit: [] for submit in ways}
    for _ in range(int(extent.pick(3, 1))):
        for submit in ways:
            words = ("steady", "--rate", "200", "--seconds", extent.pick(30, 5), "--submit", submit)
            found[submit].append(plotted(f"steady-200-{submit}", *words))
    return [_steady_200(submit, runs) for submit, runs in found.items()]


def _steady_200(submit: str, runs: list[dict[str, Any]]) -> Figure:
    by_p99 = sorted(runs, key=lambda run: float(run["lateness_ms"]["p99"]))
    middle = by_p99[len(runs) // 2]
    each = ", ".join(f"{run['lateness_ms']['p99']:.1f}" for run in runs)
    enough = middle["lateness_ms"]["p99"] <= 5 and all(map(_whole, runs))
    work, plot = f"steady 200 due/s, submitted {submit}", f"steady-200-{submit}"
    return Figure(work, "p99 ≤ 5 ms", f"p99 of each {each}; {_late(middle)}", enough, plot=plot)


def steady_5000(extent: Extent) -> list[Figure]:
    words = ("steady", "--rate", "5000", "--seconds", extent.pick(30, 10), "--submit", "meanwhile")
    found = plotted("steady-5000", *words)
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found)
    return [Figure("steady 5,000/s submitted meanwhile", "p99 ≤ 100 ms", _late(found), enough, plot="steady-5000")]


def recurring(extent: Extent) -> list[Figure]:
    found = plotted("recurring", "recurring", "--rate", "5000", "--seconds", extent.pick(60, 10))
    kinds = f"{found['expressions']:,} expressions in {found['zones']} zones"
    alone = plotted("planner", "recurring", "--planner-only", "--jobs", extent.pick(60_000, 6_000))
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found) and not found["unexpected"]
    told = f"{_late(found)}, unexpected {found['unexpected']}"
    rate, cold = alone["jobs_per_second"], alone["cold_per_second"]
    each = f"{rate:,.0f}/s; {cold:,.0f}/s when it reads the expressions for the first time"
    return [
        Figure(f"recurring 5,000 occurrences/s, {kinds}", "p99 ≤ 100 ms", told, enough, plot="recurring"),
        Figure("recurring, planner alone", "≥ 20,000/s", each, rate >= 20_000, plot="planner"),
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
        enough = seconds <= limit and _whole(found)
        bar = f"{key} ≤ {limit:g} s"
        figures.append(Figure(f"burst {jobs:,} at one instant", bar, told, enough, plot=f"burst-{jobs}"))
    return figures


def immediate(extent: Extent) -> list[Figure]:
    found = plotted("immediate", "immediate", "--seconds", extent.pick(30, 5))
    start = found["sent_to_start_ms"]
    told = f"p50 {start['p50']:.1f}, p99 {start['p99']:.1f} ms"
    enough = start["p50"] <= 8 and start["p99"] <= 25 and _whole(found)
    work = "immediate, lightly loaded: sent → start"
    return [Figure(work, "p50 ≤ 8 ms, p99 ≤ 25 ms", told, enough, plot="immediate")]


def submit(extent: Extent) -> list[Figure]:
    seconds = float(extent.pick(15, 3))
    singles, gets = submit_ratio.measure_requests(extent.pairs, seconds)
    batches = submit_ratio.measure_batches(extent.pairs, seconds)
    for name, words in (("submit-single", ()), ("submit-batch", ("--mode", "batch"))):  # pictures of each
        plotted(name, "submit", *words, "--seconds", extent.pick(10, 3))
    plotted("read", "read", "--seconds", extent.pick(10, 3))
    return [
        _ratio("submit, single", 0.6, singles, submit_ratio.BARE, "bare ASGI", "submit-single"),
        _ratio("submit, batch", 0.6, batches, submit_ratio.FLOOR, "floor's submit", "submit-batch"),
        _ratio("get a job by id", 0.5, gets, submit_ratio.BARE, "bare ASGI", "read"),
    ]


def flight(extent: Extent) -> list[Figure]:
    figures = []
    for kind, full, quick in (("async", 10_000, 1000), ("http", 10_000, 500), ("process", 1000, 50)):
        jobs = int(extent.pick(full, quick))
        found = plotted(f"flight-{kind}", "flight", "--kind", kind, "--jobs", str(jobs))
        ended = found["ended"].get("succeeded", 0)
        told = f"{found['in_flight_max']:,} at once, executor {found['executor_mb']:,.0f} MB, with all it has started "
        told += f"{found['executor_tree_mb'] or 0:,.0f} MB; {ended:,} succeeded, lost {found['lost']}"
        stated = found["executor_tree_mb"] is not None
        enough = stated and found["in_flight_max"] >= jobs and ended == jobs and not (found["lost"] or found["doubled"])
        work = f"in flight on one executor, {kind}"
        figures.append(Figure(work, f"{jobs:,} at once", told, enough, plot=f"flight-{kind}"))
    return figures


def idle(extent: Extent) -> list[Figure]:
    words = ("--seconds", extent.pick(30, 5), "--windows", extent.pick(3, 1), "--rest", extent.pick(60, 5))
    found = plotted("idle", "idle", *words)
    windows = ", ".join(f"{percent:.2f}" for percent in found["windows_percent"])
    told = f"{found['core_percent']:.2f} % of a core ({windows}), {found['besides_postgres_mb']:.0f} MB"
    enough = found["core_percent"] < 1 and found["besides_postgres_mb"] < 250
    return [Figure("idle", "< 1 % of one core; < 250 MB PSS besides PostgreSQL", told, enough, plot="idle")]


def growth(extent: Extent) -> list[Figure]:
    stored, words = int(extent.pick(10_000_000, 100_000)), ("--pairs", str(extent.pairs))
    found = plotted("growth", "growth", "--stored", str(stored), "--seconds", extent.pick(30, 5), *words)
    costs = {name: part["cost_us"] for name, part in found["compared"].items()}
    each = ", ".join(f"{ratio:.2f}" for ratio in found["cost_ratios"])
    told = f"{found['cost_ratio']:.2f} × ({each}; {costs['base']:.0f} → {costs['grown']:.0f} µs)"
    work = f"growth: cost per job with {stored:,} jobs and runs stored"
    enough = found["cost_ratio"] <= 1.2 and _whole(found)
    return [Figure(work, "≤ 1.2 × that at 10,000", told, enough, plot="growth")]


def soak(extent: Extent) -> list[Figure]:
    minutes = extent.pick(30, 1)
    found = plotted("soak", "soak", "--minutes", minutes, "--compare", extent.pick(5, 0.25))
    first, last, compared = (found["compared"][name] for name in ("first", "last", "last_to_first"))
    worst = found["p99_worst_minute_ms"]
    told = f"{first['starts_per_second']:,.0f} → {last['starts_per_second']:,.0f} starts/s, typical p99 "
    told += f"{first['p99_typical_ms']:.1f} → {last['p99_typical_ms']:.1f} ms, cost {compared['cpu']:.2f} × the first"
    told += f"; p99 of all {first['p99_ms']:.1f} → {last['p99_ms']:.1f} ms, worst minute {worst:.0f} ms; "
    told += f"p99.9 {found['lateness_ms']['p99.9']:.0f}, max {found['lateness_ms']['max']:.0f} ms"
    told += f"; lost {found['lost']}, doubled {found['doubled']}"
    bar = "last 5 min within 10 % of the first 5; p99 ≤ 100 ms throughout"
    enough = not found["compared"]["worse"] and worst <= 100 and _whole(found)
    return [Figure(f"soak {minutes} min at 5,000/s", bar, told, enough, plot="soak")]


def day(extent: Extent) -> list[Figure]:
    """What a day leaves behind, beside what the note that the load is from counts."""
    words = ("--hours", "9-10", "--faster", "300") if extent.quick else ()
    found = plotted("day", "day", *words)
    room = found["storage"]
    kept, counted = room["metadata_mb"] + room["runs_mb"] + room["logs_mb"], room["note_mb"]
    told = f"{kept:.0f} MB a day (definitions {room['metadata_mb']:.0f}, counted {room['metadata_note_mb']:.0f}; runs "
    told += f"{room['runs_mb']:.0f}; logs {room['logs_mb']:.0f}, counted {room['logs_note_mb']:.0f}), "
    told += f"{room['month_gb']:.1f} GB a month, {room['year_gb']:.0f} a year; "
    told += f"p99 {found['lateness_ms']['p99']:.0f} ms; lost {found['lost']}, doubled {found['doubled']}"
    bar = f"≤ {counted:.0f} MB a day, {room['month_note_gb']:g} GB a month, {room['year_note_gb']:g} a year"
    work = f"day of 10,000 users, {found['faster']:g} times faster: {found['jobs']:,} submissions"
    return [Figure(work, bar, told, kept <= counted and _whole(found), plot="day")]


def overload(extent: Extent) -> list[Figure]:
    """More than can be carried, from many sides at once."""
    found = plotted("overload", "overload", "--seconds", extent.pick(15, 3), whole=True)
    rates = f"{found['calm_starts_per_second']:,.0f} → {found['more_starts_per_second']:,.0f}/s"
    told = f"{found['accepted']:,} requests accepted, {found['refused']:,} refused with Retry-After, "
    told += f"{found['broken']} otherwise; {found['kept_rate']:.2f} × the calm rate accepted, "
    alone = f"{found['alone_starts_per_second']:,.0f}/s when nobody calls"
    told += f"{found['kept_starts']:.2f} × started ({rates}; {alone}), "
    told += f"p99 {found['lateness_ms']['p99'] / 1000:.0f} s late; with three times the callers "
    sizes = {role: (found[f"{role}_mb"], found[f"{role}_more_mb"]) for role in ("api", "executor", "scheduler")}
    told += ", ".join(f"{role} {few:,.0f} → {many:,.0f}" for role, (few, many) in sizes.items()) + " MB; "
    told += f"lost {found['lost']}, doubled {found['doubled']}; "
    told += f"then answered in p50 {found['after_ms']['p50']:.1f} ms"
    bar = "all but the accepted refused by 503 or 429 with Retry-After; memory not by callers; nothing lost"
    return [Figure("overload", bar, told, found["sound"], plot="overload")]


ROWS: dict[str, Row] = {
    "lifecycle-immediate": lifecycle_immediate,
    "lifecycle-future": lifecycle_future,
    "steady-10000": steady_10000,
    "steady-200": steady_200,
    "steady-5000": steady_5000,
    "recurring": recurring,
    "burst": burst,
    "immediate": immediate,
    "submit": submit,
    "flight": flight,
    "idle": idle,
    "growth": growth,
    "soak": soak,
    "day": day,
    "overload": overload,
}
LONG = ("growth", "soak", "day", "overload")


# --- telling ----------------------------------------------------------------------------------------------


def machine() -> list[str]:
    """What the figures were taken on. Nothing that would tell whose machine it is."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = Path("/proc/meminfo").read_text().split()[1]
    if not pairs.noted_settings:
        bench("immediate", "--seconds", "1", "--rate", "10")
    postgres = pairs.noted_settings
    durable = ", ".join(f"{key} {postgres[key]}" for key in pairs.DURABLE)
    return [
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        *([f"code of {commit}"] if (commit := _commit()) else []),
        f"{os.cpu_count()} cores ({models[0].partition(':')[2].strip() if models else platform.machine()})",
        f"{int(memory) / 1024 / 1024:.0f} GiB",
        f"{pairs.interpreter()}, PostgreSQL {postgres['server_version']}",
        durable,
    ]


def _commit() -> str | None:
    """Which code it is, and whether it was changed since; None outside of a repository."""
    command = ["git", "-C", str(HERE), "describe", "--always", "--abbrev=7", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def markdown(figures: list[Figure], facts: list[str]) -> str:
    words = {True: "pass", False: "short", None: "not measured"}
    lines = ["; ".join(facts), "", "| work | bar | measured | | others, cores |", "| --- | --- | --- | --- | --- |"]
    for each in figures:
        others = "" if each.others is None else f"{each.others:.2f}"
        lines.append(f"| {each.work} | {each.bar} | {each.measured} | {words[each.enough]} | {others} |")
    drawn = dict.fromkeys(each.plot for each in figures if each.plot and (PLOTS / f"{each.plot}.png").exists())
    if drawn:
        lines += ["", *(f"![{name}](plots/{name}.png)" for name in drawn)]
    return "\n".join(lines) + "\n"


def measure(names: list[str], extent: Extent, known: dict[str, Row] = ROWS) -> list[Figure]:
    """A row that fails says why in its place; the others are still measured."""
    figures: list[Figure] = []
    for name in names:
        began = time.monotonic()
        pairs.noted_others.clear()
        try:
            rows = known[name](extent)
        except SystemExit as fault:
            print(fault, file=sys.stderr, flush=True)
            rows = [Figure(name, "", str(fault).splitlines()[-1][:200], None)]
        others = median(pairs.noted_others) if pairs.noted_others else None
        for row in rows:
            word = {True: "pass", False: "short", None: "-"}[row.enough]
            print(f"{word:5}  {row.work}: {row.measured}  (bar: {row.bar})", file=sys.stderr, flush=True)
        print(f"       {name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        figures += [replace(row, others=others) for row in rows]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form that shows that it works")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=[name for name in ROWS if name not in LONG])
    parser.add_argument("--pairs", type=int, help="alternating pairs of each ratio")
    parser.add_argument("--seconds", type=float, help="length of each side of a pair of whole lives")
    parser.add_argument("--output", type=Path, default=BUILD / "figures.md")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    extent = Extent(args.quick, args.pairs or (1 if args.quick else 5), args.seconds or (4 if args.quick else 30))
    began = time.monotonic()
    figures = measure(args.rows, extent)
    minutes = (time.monotonic() - began) / 60
    within = f"in {minutes:.1f} minutes"
    if not set(args.rows) & set(LONG):
        within += f" (at most {MINUTES_MAX})"
        if minutes > MINUTES_MAX:
            figures.append(Figure("this table", f"≤ {MINUTES_MAX} min", f"{minutes:.1f} min", False))
    text = markdown(figures, [*machine(), within, *([QUICK] if args.quick else [])])
    args.output.write_text(text)
    print(text)
    raise SystemExit(0 if are_good(figures, quick=args.quick) else 1)


def are_good(figures: list[Figure], *, quick: bool) -> bool:
    """Whether all is enough; of a short form, which shows that it works, whether all could be measured."""
    return all(each.enough is not None if quick else each.enough for each in figures)


if __name__ == "__main__":
    main()
