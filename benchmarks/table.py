"""The table of figures: each row's work, its bar, what was measured, and whether that is enough.

Ratios are medians of alternating rounds in one sitting. Prints Markdown and writes it, with date and machine, to
`build/figures.md`, and the plots of the rows beside it; `publish.py` puts both into the documentation. Ends with 1 when
a row is short or could not be measured; a short form (`--quick`), which says so, only when one could not be measured.

The rows of `make bench` must not take more than 40 minutes. Five rounds of whole lives take 13 of them: 30 s for each
side and mode, and PgQueuer's 100,000 jobs in the same rounds. Five rounds of submissions and gets take 9: 15 s for each
side, 30 s a pair. The 120 s of 10,000 due a second take 4 with their submission; the rest, each once, 11. What it took
is told with the table. Rows that take longer are left out unless they are named.

So that other work on the machine, or its host, does not decide:
- A figure with an absolute bar that is short while others took more than 0.05 cores is measured again after all the
  rest, since theft comes in spells; up to three times, as long as the 40 minutes allow it.
- The measurement beside which others took least counts, whatever it says: one that passes beside more than another fell
  short beside was lucky. What no neighbour can cause is not measured away: runs that are lost, doubled or early.
- Rounds of ratios are set aside as `pairs.py` says; those of the whole table together may take 150 s.
- All of it is told in the row: measurements that do not count, with what others took, and rounds that were set aside.

Neither short forms nor tables with rows that take longer measure a figure again; short forms set nothing aside.

    python benchmarks/table.py --quick
    python benchmarks/table.py --rows lifecycle-immediate steady-10000 burst-5000
    python benchmarks/table.py --rows growth soak day --output build/figures-long.md
"""

import argparse
import importlib.util
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pairs
import submit_ratio
from pairs import HERE, OURS, Round, Spare, bench, floor, median, rounds, run, shares_of, told_share

BUILD = HERE.parent / "build"
PLOTS = BUILD / "plots"
MINUTES_MAX = 40
MARGIN_SECONDS = 60.0
"""Of these minutes nothing that is measured again may count on the last: it may take longer than the first time."""
OTHERS_CORES_MAX = 0.05
AGAIN_MAX = 3
ASIDE_SECONDS_MAX = 150.0
"""Rounds that are set aside may take so much of the whole table: twice each, they would take nine minutes, and the rows
leave three."""
QUICK = "**a short form, which shows that it works: its values are no figures**"


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    quick: bool
    pairs: int
    seconds: float
    spare: Spare = field(default_factory=Spare)
    """For rounds that are set aside."""

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
    """Cores that others took meanwhile, or the host; None if that is not known. Of several runs the median."""
    plot: str | None = None
    """Name of the picture of its course."""
    ratio: bool = False
    """It has been measured in rounds, which have their own way with what others take."""
    own_fault: bool = False
    """Something is wrong with it that no neighbour on the machine can cause."""
    others_most: float | None = None
    """The same as `others`, of the run beside which it was most."""
    picture: bytes | None = field(default=None, repr=False)
    """What was drawn of it: one that is measured again is drawn over it."""


Row = Callable[[Extent], list[Figure]]


def plotted(name: str, *words: str, whole: bool = False) -> dict[str, Any]:
    """A measurement whose course is drawn, where that is possible."""
    PLOTS.mkdir(parents=True, exist_ok=True)
    if importlib.util.find_spec("matplotlib") is not None:
        words = (*words, "--plot", str(PLOTS / f"{name}.png"))
    return bench(*words, whole=whole)


def plotted_once(name: str, *, whole: bool = False) -> Callable[..., dict[str, Any]]:
    """For what is measured several times. The first is drawn, even if it is set aside later: one picture is enough, and
    each takes two seconds."""
    names = iter([name])

    def measure_one(*words: str) -> dict[str, Any]:
        drawn = next(names, None)
        return plotted(drawn, *words, whole=whole) if drawn else bench(*words, whole=whole)

    return measure_one


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
    found = rounds("immediate", extent.pairs, sides, extent.spare)
    figures = [_ratio("lifecycle, saturated, immediate", 0.75, found, "floor", "floor", "lifecycle-immediate")]
    if failure:
        return [*figures, Figure("lifecycle, immediate", "≥ 1.2 × PgQueuer", failure, None)]
    beside = _ratio("lifecycle, immediate", 1.2, found, "peer", version)
    produced = median([rate for rate, each in zip(enqueued, found, strict=True) if each.counts])
    return [*figures, replace(beside, measured=f"{beside.measured}; its producer {produced:,.0f}/s")]


def lifecycle_future(extent: Extent) -> list[Figure]:
    found = rounds("future", extent.pairs, _sides("future", extent), extent.spare)
    return [_ratio("lifecycle, saturated, future", 0.75, found, "floor", "floor", "lifecycle-future")]


def _sides(mode: str, extent: Extent) -> dict[str, Callable[[], float]]:
    words = ("lifecycle", "--seconds", str(extent.seconds), "--mode", mode)
    ours = plotted_once(f"lifecycle-{mode}", whole=True)
    return {
        "floor": lambda: float(floor(mode, extent.seconds)["jobs_per_second"]),
        OURS: lambda: float(ours(*words)["jobs_per_second"]),
    }


def _ratio(work: str, bar: float, found: list[Round], other: str, name: str, plot: str | None = None) -> Figure:
    enough = median(shares_of(found, other)) >= bar
    return Figure(work, f"≥ {bar:g} × {name}", told_share(found, other), enough, plot=plot, ratio=True)


def _late(found: dict[str, Any]) -> str:
    late = found["lateness_ms"]
    counts = f"lost {found['lost']}, doubled {found['doubled']}, early {found['early']}"
    counts += f", misdated {found['misdated']}" if found.get("misdated") else ""
    return (
        f"p50 {late['p50']:.1f}, p99 {late['p99']:.1f}, p99.9 {late['p99.9']:.1f}, max {late['max']:.0f} ms; {counts}"
    )


def _whole(found: dict[str, Any]) -> bool:
    return not _broken(found) and not found.get("misdated")


def _broken(found: dict[str, Any], *, meanwhile: bool = False) -> bool:
    """Wrong whoever else is there. Of runs for another time that is not certain where jobs are submitted meanwhile: one
    whose submission was held up is due when it arrives."""
    misdated = not meanwhile and found.get("misdated")
    return bool(misdated) or any(found[key] for key in ("lost", "doubled", "early"))


def steady_10000(extent: Extent) -> list[Figure]:
    found = plotted("steady-10000", "steady", "--rate", "10000", "--seconds", extent.pick(120, 10))
    late = found["lateness_ms"]
    enough = late["p50"] <= 20 and late["p99"] <= 100 and late["p99.9"] <= 500 and _whole(found)
    bar = "p50 ≤ 20 ms, p99 ≤ 100 ms, p99.9 ≤ 500 ms; lost 0, doubled 0"
    work = f"steady 10,000 due/s for {extent.pick(120, 10)} s, pre-loaded"
    return [Figure(work, bar, _late(found), enough, plot="steady-10000", own_fault=_broken(found))]


def steady_200_before(extent: Extent) -> list[Figure]:
    return [_steady_200("before", extent)]


def steady_200_meanwhile(extent: Extent) -> list[Figure]:
    return [_steady_200("meanwhile", extent)]


def _steady_200(submit: str, extent: Extent) -> Figure:
    """Judged by the median of three: where the disk stands still for a third of a second more are late than one run may
    have. Where two say the same the third decides nothing, and is left out. Told is every p99, and the run in the
    middle, of two the worse."""
    plot = f"steady-200-{submit}"
    words = ("steady", "--rate", "200", "--seconds", extent.pick(30, 5), "--submit", submit)
    measure_one = plotted_once(plot)
    runs = [measure_one(*words) for _ in range(int(extent.pick(2, 1)))]
    if len({run["lateness_ms"]["p99"] <= 5 for run in runs}) > 1:
        runs.append(measure_one(*words))
    middle = sorted(runs, key=lambda run: float(run["lateness_ms"]["p99"]))[len(runs) // 2]
    each = ", ".join(f"{run['lateness_ms']['p99']:.1f}" for run in runs)
    enough = middle["lateness_ms"]["p99"] <= 5 and all(map(_whole, runs))
    work, told = f"steady 200 due/s, submitted {submit}", f"p99 of each {each}; {_late(middle)}"
    own_fault = any(_broken(run, meanwhile=submit == "meanwhile") for run in runs)
    return Figure(work, "p99 ≤ 5 ms", told, enough, plot=plot, own_fault=own_fault)


def steady_5000(extent: Extent) -> list[Figure]:
    words = ("steady", "--rate", "5000", "--seconds", extent.pick(30, 10), "--submit", "meanwhile")
    found = plotted("steady-5000", *words)
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found)
    work, broken = "steady 5,000/s submitted meanwhile", _broken(found, meanwhile=True)
    return [Figure(work, "p99 ≤ 100 ms", _late(found), enough, plot="steady-5000", own_fault=broken)]


def recurring(extent: Extent) -> list[Figure]:
    found = plotted("recurring", "recurring", "--rate", "5000", "--seconds", extent.pick(60, 10))
    broken = _broken(found) or bool(found["unexpected"])
    enough = found["lateness_ms"]["p99"] <= 100 and _whole(found) and not found["unexpected"]
    told = f"{_late(found)}, unexpected {found['unexpected']}"
    work = f"recurring 5,000 occurrences/s, {found['expressions']:,} expressions in {found['zones']} zones"
    return [Figure(work, "p99 ≤ 100 ms", told, enough, plot="recurring", own_fault=broken)]


def planner(extent: Extent) -> list[Figure]:
    found = plotted("planner", "recurring", "--planner-only", "--jobs", extent.pick(60_000, 6_000))
    rate, cold = found["jobs_per_second"], found["cold_per_second"]
    told = f"{rate:,.0f}/s; {cold:,.0f}/s when it reads the expressions for the first time"
    lost = bool(found["lost"])
    told += f"; lost {found['lost']}" if lost else ""
    enough = rate >= 20_000 and not lost
    return [Figure("recurring, planner alone", "≥ 20,000/s", told, enough, plot="planner", own_fault=lost)]


def burst_5000(_: Extent) -> list[Figure]:
    return [_burst(5_000, 0.3, "p99")]


def burst_10000(_: Extent) -> list[Figure]:
    return [_burst(10_000, 1.0, "all")]


def burst_100000(extent: Extent) -> list[Figure]:
    return [] if extent.quick else [_burst(100_000, 10.0, "all")]


def _burst(jobs: int, limit: float, key: str) -> Figure:
    found = plotted(f"burst-{jobs}", "burst", "--jobs", str(jobs))
    seconds = found["lateness_ms"]["p99"] / 1000 if key == "p99" else found["all_started_seconds"]
    told = f"p50 {found['lateness_ms']['p50']:.0f} ms, p99 {found['lateness_ms']['p99']:.0f} ms, "
    told += f"all after {found['all_started_seconds']:.2f} s; lost {found['lost']}, doubled {found['doubled']}"
    enough = seconds <= limit and _whole(found)
    work, bar = f"burst {jobs:,} at one instant", f"{key} ≤ {limit:g} s"
    return Figure(work, bar, told, enough, plot=f"burst-{jobs}", own_fault=_broken(found))


def immediate(extent: Extent) -> list[Figure]:
    found = plotted("immediate", "immediate", "--seconds", extent.pick(30, 5))
    start = found["sent_to_start_ms"]
    told = f"p50 {start['p50']:.1f}, p99 {start['p99']:.1f} ms"
    enough = start["p50"] <= 8 and start["p99"] <= 25 and _whole(found)
    work = "immediate, lightly loaded: sent → start"
    return [Figure(work, "p50 ≤ 8 ms, p99 ≤ 25 ms", told, enough, plot="immediate", own_fault=_broken(found))]


def submit(extent: Extent) -> list[Figure]:
    seconds, batch = float(extent.pick(15, 3)), plotted_once("submit-batch", whole=True)
    singles, gets = submit_ratio.measure_requests(extent.pairs, seconds, extent.spare)
    batches = submit_ratio.measure_batches(extent.pairs, seconds, extent.spare, batch)
    # Those who drive both sides of single requests draw nothing: short runs of their own, for the pictures only.
    plotted("submit-single", "submit", "--seconds", extent.pick(5, 3))
    plotted("read", "read", "--seconds", extent.pick(5, 3), "--readers", "0")
    return [
        _ratio("submit, single", 0.6, singles, submit_ratio.BARE, "bare ASGI", "submit-single"),
        _ratio("submit, batch", 0.6, batches, submit_ratio.FLOOR, "floor's submit", "submit-batch"),
        _ratio("get a job by id", 0.5, gets, submit_ratio.BARE, "bare ASGI", "read"),
    ]


def flight_async(extent: Extent) -> list[Figure]:
    return [_flight("async", int(extent.pick(10_000, 1000)))]


def flight_http(extent: Extent) -> list[Figure]:
    return [_flight("http", int(extent.pick(10_000, 500)))]


def flight_process(extent: Extent) -> list[Figure]:
    return [_flight("process", int(extent.pick(1000, 50)))]


def _flight(kind: str, jobs: int) -> Figure:
    found = plotted(f"flight-{kind}", "flight", "--kind", kind, "--jobs", str(jobs))
    ended = found["ended"].get("succeeded", 0)
    broken = bool(found["lost"] or found["doubled"] or sum(found["ended"].values()) > ended)
    told = f"{found['in_flight_max']:,} at once, executor {found['executor_mb']:,.0f} MB, with all it has started "
    told += f"{found['executor_tree_mb'] or 0:,.0f} MB; {ended:,} succeeded, lost {found['lost']}"
    stated = found["executor_tree_mb"] is not None
    enough = stated and found["in_flight_max"] >= jobs and ended == jobs and not broken
    work, bar = f"in flight on one executor, {kind}", f"{jobs:,} at once"
    return Figure(work, bar, told, enough, plot=f"flight-{kind}", own_fault=broken)


def idle(extent: Extent) -> list[Figure]:
    words = ("--seconds", extent.pick(30, 5), "--windows", extent.pick(3, 1), "--rest", extent.pick(60, 5))
    found = plotted("idle", "idle", *words)
    windows = ", ".join(f"{percent:.2f}" for percent in found["windows_percent"])
    told = f"{found['core_percent']:.2f} % of a core ({windows}), {found['besides_postgres_mb']:.0f} MB"
    small = found["besides_postgres_mb"] < 250
    bar, enough = "< 1 % of one core; < 250 MB PSS besides PostgreSQL", found["core_percent"] < 1 and small
    return [Figure("idle", bar, told, enough, plot="idle", own_fault=not small)]


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
    "steady-200-before": steady_200_before,
    "steady-200-meanwhile": steady_200_meanwhile,
    "steady-5000": steady_5000,
    "recurring": recurring,
    "planner": planner,
    "burst-5000": burst_5000,
    "burst-10000": burst_10000,
    "burst-100000": burst_100000,
    "immediate": immediate,
    "submit": submit,
    "flight-async": flight_async,
    "flight-http": flight_http,
    "flight-process": flight_process,
    "idle": idle,
    "growth": growth,
    "soak": soak,
    "day": day,
    "overload": overload,
}
LONG = ("growth", "soak", "day", "overload")
USUAL = [name for name in ROWS if name not in LONG]


# --- measuring --------------------------------------------------------------------------------------------


@dataclass
class Taken:
    """A row that has been measured, perhaps several times."""

    name: str
    seconds: float
    """That it took the first time."""
    tries: list[list[Figure]]
    """All measurements of each of its figures, the first one first."""

    def is_open(self) -> bool:
        return any(map(is_open, self.tries))

    def add(self, again: list[Figure]) -> None:
        """Measured again. What is settled is left as it is, or luck could be tried until all is well."""
        if len(again) != len(self.tries):
            again = again[:1] * len(self.tries)  # it could not be measured, and says why only once
        for tries, figure in zip(self.tries, again, strict=True):
            if is_open(tries):
                tries.append(figure)


def measure(
    names: list[str],
    extent: Extent,
    known: dict[str, Row] = ROWS,
    until: float = -math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> list[Figure]:
    """A row that fails says why in its place; the others are still measured. Those that say too little are measured
    again after that, in turn, as far as they will have ended at `until`."""
    taken = [_measure_first(name, extent, known, clock) for name in names]
    for _ in range(AGAIN_MAX):
        for row in taken:
            if row.is_open() and clock() + row.seconds <= until:
                print(f"again  {row.name}", file=sys.stderr, flush=True)
                row.add(_measure_row(row.name, extent, known, clock))
    figures = [counted(tries) for row in taken for tries in row.tries]
    for figure in figures:
        _put_picture_back(figure)
    return figures


def _measure_first(name: str, extent: Extent, known: dict[str, Row], clock: Callable[[], float]) -> Taken:
    began = clock()
    figures = _measure_row(name, extent, known, clock)
    return Taken(name, clock() - began, [[figure] for figure in figures])


def _measure_row(name: str, extent: Extent, known: dict[str, Row], clock: Callable[[], float]) -> list[Figure]:
    began = clock()
    pairs.noted_others.clear()
    try:
        rows = known[name](extent)
    except SystemExit as fault:
        print(fault, file=sys.stderr, flush=True)
        rows = [Figure(name, "", str(fault).splitlines()[-1][:200], None)]
    noted = pairs.noted_others
    others, most = (median(noted), max(noted)) if noted else (None, None)
    for row in rows:
        word = {True: "pass", False: "short", None: "-"}[row.enough]
        print(f"{word:5}  {row.work}: {row.measured}  (bar: {row.bar})", file=sys.stderr, flush=True)
    beside = "" if most is None else f", beside {most:.2f} cores of others"
    print(f"       {name} took {clock() - began:.0f} s{beside}", file=sys.stderr, flush=True)
    return [replace(row, others=others, others_most=most, picture=_picture(row)) for row in rows]


def says_too_little(figure: Figure) -> bool:
    """Short, and perhaps only because others took so much meanwhile."""
    excused = not figure.ratio and not figure.own_fault and (figure.others_most or 0.0) > OTHERS_CORES_MAX
    return figure.enough is False and excused


def is_open(tries: list[Figure]) -> bool:
    """Whether another measurement of a figure could count. One that could not be measured in the first place is not
    tried again: why it broke may be what the row is there to tell."""
    return says_too_little(tries[_chosen(tries)])


def counted(tries: list[Figure]) -> Figure:
    """The measurement that counts. It also tells those that do not."""
    chosen = _chosen(tries)
    before = [_told_beside("before", each) for each in tries[:chosen]]
    after = [_told_beside("after", each) for each in tries[chosen + 1 :]]
    return replace(tries[chosen], measured="; ".join([tries[chosen].measured, *before, *after]))


def _chosen(tries: list[Figure]) -> int:
    """The place of the first at fault itself, or else of the one beside which others took least."""
    at_fault = [place for place, each in enumerate(tries) if each.own_fault and each.enough is False]
    measured = [place for place, each in enumerate(tries) if each.enough is not None] or [0]
    return at_fault[0] if at_fault else min(measured, key=lambda place: tries[place].others_most or 0.0)


def _told_beside(when: str, figure: Figure) -> str:
    if figure.enough is None:
        return f"{when}, not measured: {figure.measured}"
    return f"{when}, beside {figure.others_most or 0.0:.2f} cores of others: {figure.measured}"


def _picture(figure: Figure) -> bytes | None:
    drawn = PLOTS / f"{figure.plot}.png"
    return drawn.read_bytes() if figure.plot and drawn.exists() else None


def _put_picture_back(figure: Figure) -> None:
    """The picture is of the measurement that counts, whichever was drawn last."""
    if figure.picture is not None:
        (PLOTS / f"{figure.plot}.png").write_bytes(figure.picture)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form that shows that it works")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=USUAL)
    parser.add_argument("--pairs", type=int, help="alternating pairs of each ratio")
    parser.add_argument("--seconds", type=float, help="length of each side of a pair of whole lives")
    parser.add_argument("--output", type=Path, default=BUILD / "figures.md")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    pairs_asked, seconds_asked = args.pairs or (1 if args.quick else 5), args.seconds or (4 if args.quick else 30)
    extent = Extent(args.quick, pairs_asked, seconds_asked, Spare(aside_seconds(args.rows, quick=args.quick)))
    began = time.monotonic()
    figures = measure(args.rows, extent, until=began + seconds_for_all(args.rows, quick=args.quick))
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


def seconds_for_all(names: list[str], *, quick: bool) -> float:
    """Until when something may be measured again, counted from the beginning; where nothing may, that is long past."""
    return -math.inf if quick or set(names) & set(LONG) else MINUTES_MAX * 60 - MARGIN_SECONDS


def aside_seconds(names: list[str], *, quick: bool) -> float:
    """What rounds that are set aside may take. Where few rows are asked for there is time enough."""
    if quick:
        return 0.0
    return ASIDE_SECONDS_MAX if len(names) > len(USUAL) / 2 else math.inf


def are_good(figures: list[Figure], *, quick: bool) -> bool:
    """Whether all is enough; of a short form, which shows that it works, whether all could be measured."""
    return all(each.enough is not None if quick else each.enough for each in figures)


if __name__ == "__main__":
    main()
