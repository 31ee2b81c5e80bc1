"""`hourhand bench`: measures what this machine does, on a cluster of its own or on a running one."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from hourhand.cli.bench_running import own_only, run_alone, run_on_target, settings_of, shared_options, take_shared

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Number(click.FloatRange):
    """A finite number within bounds. `nan` is within all of them, and `inf` within most."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number", param, ctx)
        return number


_stages = click.option("--stages", is_flag=True, help="Also print microseconds of processor time per job and stage.")


def _seconds(default: float, help_text: str) -> Callable[[_Command], _Command]:
    return click.option("--seconds", type=_Number(1, 86_400), default=default, show_default=True, help=help_text)


def _jobs(default: int, help_text: str) -> Callable[[_Command], _Command]:
    return click.option("--jobs", type=click.IntRange(1), default=default, show_default=True, help=help_text)


def _rate(default: float, help_text: str) -> Callable[[_Command], _Command]:
    return click.option(
        "--rate", type=_Number(min=0, min_open=True), default=default, show_default=True, help=help_text
    )


def _readers(default: float) -> Callable[[_Command], _Command]:
    text = "Lists and searches per second beside it."
    return click.option("--readers", type=_Number(0), default=default, show_default=True, help=text)


@click.group(short_help="Measure throughput and punctuality on this machine.")
def bench() -> None:
    """Measure throughput and punctuality on this machine.

    Each measurement starts a temporary cluster (embedded PostgreSQL and one process of each role), which is gone
    afterwards; most can measure a running one instead (--server). What happened is counted from lines that the
    handlers themselves append to a file: lateness is from the due time to the handler's start, `lost` are jobs that
    were acknowledged and never ran, `doubled` runs beyond one each, `early` starts before the due time.
    """


# --- punctuality and throughput ---------------------------------------------------------------------------


@bench.command()
@_seconds(30, "How long to submit.")
@click.option(
    "--mode",
    type=click.Choice(["immediate", "future"]),
    default="immediate",
    show_default=True,
    help="Due at once, or 2.2 s ahead and so through the timetable.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Jobs per request.")
@click.option(
    "--ahead", type=click.IntRange(1), default=4000, show_default=True, help="Due but unfinished jobs at most."
)
@_stages
@shared_options
def lifecycle(**given: Any) -> None:
    """Whole lives of no-op jobs: submitted over HTTP in batches, fallen due, run, recorded. Saturates the machine."""
    from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle

    shared = take_shared(given)
    run_on_target(
        shared, lambda target, progress: measure_lifecycle(target, Lifecycle(**given), progress), stages=given["stages"]
    )


@bench.command()
@_seconds(20, "How long to submit.")
@_rate(100, "Jobs per second.")
@shared_options
def immediate(**given: Any) -> None:
    """Lightly loaded: from sending a request with one immediate job until its handler starts."""
    from hourhand.bench.immediate import Immediate, measure_immediate

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_immediate(target, Immediate(**given), progress))


@bench.command()
@_rate(1000, "Jobs due per second, at evenly spread instants.")
@_seconds(30, "How long jobs fall due.")
@click.option(
    "--submit",
    type=click.Choice(["before", "meanwhile"]),
    default="before",
    show_default=True,
    help="All before the first is due, or each 0.5 to 3 s ahead of its time.",
)
@_readers(0)
@_stages
@shared_options
def steady(**given: Any) -> None:
    """So many jobs due every second for a while: how late does each start?"""
    from hourhand.bench.steady import Steady, measure_steady

    shared = take_shared(given)
    run_on_target(
        shared, lambda target, progress: measure_steady(target, Steady(**given), progress), stages=given["stages"]
    )


@bench.command()
@_rate(1000, "Cron occurrences per second.")
@_seconds(60, "How long occurrences fall due; with --planner-only how long they pile up, at most 50.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    help="Distinct expressions at least; each occurs at least once a minute.  [default: 10000, planner-only: 60000]",
)
@click.option(
    "--lead",
    "lead_seconds",
    type=_Number(1),
    help="Seconds from the beginning of the submission to the first due time; by the number of jobs if not given.",
)
@click.option(
    "--planner-only",
    is_flag=True,
    help="Instead: how many occurrences per second one scheduler makes into runs, with no executor there.",
)
@_stages
@shared_options
def recurring(planner_only: bool, **given: Any) -> None:
    """Cron occurrences of thousands of distinct expressions in many zones: how late does each start?

    Cron knows whole seconds only, so all occurrences of a second fall on one instant.
    """
    from hourhand.bench.recurring import Recurring, measure_recurring

    shared = take_shared(given)
    given["jobs"] = given["jobs"] or (60_000 if planner_only else 10_000)
    if not planner_only:
        run_on_target(
            shared,
            lambda target, progress: measure_recurring(target, Recurring(**given), progress),
            stages=given["stages"],
        )
        return
    from hourhand.bench.planner import PlannerOnly, measure_planner

    if shared["server"]:
        raise click.UsageError("--planner-only needs a cluster of its own, without --server")
    asked = PlannerOnly(given["jobs"], given["seconds"], given["stages"], settings_of(shared))
    run_alone(shared, lambda progress: measure_planner(asked, progress))


@bench.command()
@_jobs(5000, "Jobs due at that instant.")
@shared_options
def burst(**given: Any) -> None:
    """Many jobs due at one instant, submitted long before: when have half, 99 % and all of them started?"""
    from hourhand.bench.burst import Burst, measure_burst

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_burst(target, Burst(**given), progress))


# --- requests ---------------------------------------------------------------------------------------------


@bench.command()
@click.option(
    "--mode",
    type=click.Choice(["single", "batch"]),
    default="single",
    show_default=True,
    help="One job per request, or many.",
)
@_seconds(20, "How long to submit.")
@click.option(
    "--connections", type=click.IntRange(1), help="Connections, one request at a time on each.  [default: 64, batch: 3]"
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Jobs per batch.")
@shared_options
def submit(**given: Any) -> None:
    """Submissions a second that are acknowledged, of jobs that are due much later: nothing runs meanwhile."""
    from hourhand.bench.submit import Submit, measure_submit

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_submit(target, Submit(**given), progress))


@bench.command()
@_seconds(20, "How long to get jobs by id; and then to list and search.")
@click.option(
    "--connections", type=click.IntRange(1), default=32, show_default=True, help="One request at a time on each."
)
@click.option("--stored", type=click.IntRange(1), default=10_000, show_default=True, help="Jobs to submit first.")
@_readers(50)
@shared_options
def read(**given: Any) -> None:
    """Jobs a second that can be got by id; then how long lists and searches take."""
    from hourhand.bench.read import Read, measure_read

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_read(target, Read(**given), progress))


# --- limits and endurance ---------------------------------------------------------------------------------


@bench.command()
@_jobs(1000, "Runs in flight at once.")
@click.option(
    "--kind",
    type=click.Choice(["async", "http", "process"]),
    default="async",
    show_default=True,
    help="Handlers that wait, calls of a slow server, or processes.",
)
@click.option("--hold", "hold_seconds", type=_Number(1), help="How long each run lasts; by their number if not given.")
@own_only
def flight(**given: Any) -> None:
    """So many runs in flight on one executor at once: are they all, what memory does it take, do all end?"""
    from hourhand.bench.flight import Flight, allow_files, measure_flight, settings_for

    shared = take_shared(given)
    asked = Flight(**given)
    allow_files(asked)
    run_on_target(shared, lambda target, progress: measure_flight(target, asked, progress), settings_for(asked))


@bench.command()
@click.option("--stored", type=click.IntRange(1), default=10_000_000, show_default=True, help="Jobs and runs, each.")
@click.option("--base", type=click.IntRange(1), default=10_000, show_default=True, help="The same for comparison.")
@_seconds(30, "How long whole lives are measured each time.")
@click.option(
    "--mode",
    type=click.Choice(["immediate", "future"]),
    default="immediate",
    show_default=True,
    help="As for lifecycle.",
)
@click.option(
    "--pairs", type=click.IntRange(1), default=1, show_default=True, help="How often, by turns; the median counts."
)
@own_only
def growth(**given: Any) -> None:
    """What a job costs, and how many a second there are, with little and with much stored."""
    from hourhand.bench.growth import Growth, measure_growth

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_growth(target, Growth(**given), progress))


@bench.command()
@_seconds(60, "Length of a window.")
@click.option("--windows", type=click.IntRange(1), default=3, show_default=True, help="How many; the median counts.")
@click.option(
    "--rest",
    "rest_seconds",
    type=_Number(0),
    default=60,
    show_default=True,
    help="Seconds to come to rest before the first window.",
)
@own_only
def idle(**given: Any) -> None:
    """What a cluster costs while nothing is to be done: processor time of all its processes, and memory."""
    from hourhand.bench.idle import Idle, measure_idle

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_idle(target, Idle(**given), progress))


@bench.command()
@click.option("--minutes", type=_Number(min=0, min_open=True), default=30, show_default=True, help="How long.")
@_rate(5000, "Jobs due per second, submitted meanwhile.")
@click.option(
    "--compare",
    "compare_minutes",
    type=_Number(min=0, min_open=True),
    default=5,
    show_default=True,
    help="Minutes at the beginning and the end to compare.",
)
@_readers(0)
@shared_options
def soak(**given: Any) -> None:
    """A steady load for long: are the last minutes as good as the first?"""
    from hourhand.bench.soak import Soak, measure_soak

    shared = take_shared(given)
    run_on_target(shared, lambda target, progress: measure_soak(target, Soak(**given), progress))


@bench.command()
@_seconds(10, "Length of each of the three stretches.")
@click.option(
    "--connections",
    type=click.IntRange(1, 1000),
    default=64,
    show_default=True,
    help="Callers at once in the second stretch; three times as many in the third.",
)
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="Jobs per request.")
@own_only
def overload(**given: Any) -> None:
    """More than can be carried, from many sides: is it refused at the door, is the rest served, is memory bounded?"""
    from hourhand.bench.overload import Overload, measure_overload, settings_for

    shared = take_shared(given)
    asked = Overload(**given)
    run_on_target(shared, lambda target, progress: measure_overload(target, asked, progress), settings_for())


@bench.command()
@click.option(
    "--hours", default="0-24", show_default=True, metavar="FROM-TO", help="The part of the day to live through."
)
@click.option("--faster", type=_Number(1), default=60, show_default=True, help="How many times faster.")
@shared_options
def day(**given: Any) -> None:
    """A day of 10,000 users, sixty times faster: 50,000 submissions, their updates, status checks, history and logs."""
    from hourhand.bench.day import Day, hours_of, measure_day

    shared = take_shared(given)
    asked = Day(*hours_of(given["hours"]), given["faster"])
    run_on_target(shared, lambda target, progress: measure_day(target, asked, progress))
