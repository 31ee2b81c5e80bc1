"""Backfills, forecasts and versions drawn for people. Imported only when something is to be drawn."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from rich.text import Text

from hourhand.cli.exits import printable
from hourhand.cli.layout import Column, console_here, draw_details, draw_table
from hourhand.cli.printing import counted
from hourhand.cli.times import length_text, local_time
from hourhand.client.planning import BackfillView, CrowdView, DiffView, ForecastView, MinuteView
from hourhand.client.views import FieldChangeView, VersionView


def backfill_table(backfills: Sequence[BackfillView]) -> None:
    columns = [
        Column("BACKFILL", kind="id"),
        Column("JOB"),
        Column("STATUS", kind="status"),
        Column("DONE", kind="number"),
        Column("DUE TIMES", kind="number"),
        Column("FAILED", kind="number"),
        Column("FIRST", 110, "time"),
        Column("LAST", 110, "time"),
        Column("BY", 130),
    ]
    rows = [
        (
            b.backfill_id,
            b.job_name,
            b.status,
            f"{b.percent:g} %",
            b.total,
            b.failed,
            b.first_due,
            b.last_due,
            b.created_by,
        )
        for b in backfills
    ]
    draw_table(columns, rows)


def backfill_details(found: BackfillView) -> None:
    why = f" ({found.status_reason})" if found.status_reason else ""
    draw_details(
        [
            ("backfill", found.backfill_id or "a dry run: nothing was stored"),
            ("job", f"{found.job_name} ({found.job_id})"),
            ("status", found.status + why),
            ("range", f"{local_time(found.start)} to {local_time(found.end)}"),
            (
                "due times",
                f"{found.total}, the first {local_time(found.first_due)}, the last {local_time(found.last_due)}",
            ),
            ("existing", found.existing),
            ("left out", found.left_out or None),
            ("to run", found.remaining or None),
            ("under way", found.live or None),
            ("succeeded", found.succeeded or None),
            ("failed", found.failed or None),
            ("cancelled", found.cancelled or None),
            ("skipped", found.skipped or None),
            ("done", None if found.backfill_id is None else f"{found.percent:g} %"),
            ("at once", found.parallelism),
            ("rate", found.rate),
            ("overlap", found.overlap and f"{found.overlap}: {found.reason}"),
            ("takes about", None if found.estimate_seconds is None else length_text(found.estimate_seconds * 1000)),
            ("note", found.note),
            ("asked for", found.created_at and f"{local_time(found.created_at)} by {found.created_by}"),
            ("ended", found.ended_at and local_time(found.ended_at)),
            ("notes", "\n".join(found.notes)),
        ]
    )


def version_table(versions: Sequence[VersionView]) -> None:
    columns = [Column("VERSION", kind="number"), Column("CHANGED", kind="time"), Column("BY"), Column("WHAT CHANGED")]
    draw_table(columns, [(v.version, v.changed_at, v.changed_by, _changed(v)) for v in versions])


def _changed(version: VersionView) -> str:
    if version.changes is None:
        return "created" if version.version == 1 else "-"
    return ", ".join(_field(change) for change in version.changes) or "nothing"


def diff_lines(found: DiffView) -> None:
    """One line for what was there, one for what is there instead."""
    console = console_here()
    console.print(Text(f"version {found.start} to {found.end}", style="bold"))
    for change in found.changes:
        console.print(Text(_field(change), style="bold"))
        for sign, value, colour in (("-", change.before, "red"), ("+", change.after, "green")):
            if value is not None:
                console.print(Text(f"  {sign} {printable(json.dumps(value, ensure_ascii=False))}", style=colour))


def _field(change: FieldChangeView) -> str:
    """As people write it: payload.argv."""
    names = change.field.removeprefix("/").split("/")
    return printable(".".join(name.replace("~1", "/").replace("~0", "~") for name in names))


@contextmanager
def progress_bar() -> Iterator[Callable[[BackfillView], None]]:
    """A bar on stderr that is moved on by being told how a backfill stands."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, told="")

        def tell(found: BackfillView) -> None:
            told = f"{found.live} under way" + (f", {found.failed} failed" if found.failed else "")
            told += ", paused" if found.status == "paused" else ""
            done = found.total - found.remaining - found.live
            progress.update(task, description=found.job_name, total=found.total, completed=done, told=told)

        yield tell


_BARS = 24
_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def forecast_chart(found: ForecastView) -> None:
    """A bar for each stretch of time, then the crowds and what can be done about them."""
    console = console_here()
    slots = ", ".join(f"{count} {room}" for room, count in found.slots.items() if count) or "none"
    took = "" if found.run_seconds is None else f"; a run takes {length_text(found.run_seconds * 1000)}"
    console.print(Text(f"{found.due:,.0f} runs fall due; slots: {slots}{took}"))
    stretches = _stretches(found)
    most = max((due for _, due, _, _ in stretches), default=0.0)
    for at, due, busiest, load in stretches:
        line = Text(f"{at.astimezone():%H:%M} ")
        line.append(_bar(due / most if most else 0.0), style="red" if load > 1 else "cyan")
        line.append(f" {due:,.0f}")
        if busiest is not None and busiest.due > 0:
            line.append(f"  most at {busiest.at.astimezone():%H:%M}: {busiest.due:,.0f}", style="dim")
        if load > 1:
            line.append(f"  {load:.1f} times the slots", style="red")
        console.print(line)
    for crowd in found.crowds:
        _crowd_lines(crowd)
    for note in [found.words, *found.notes]:
        console.print(Text(printable(note), style="dim"))


def _stretches(found: ForecastView) -> list[tuple[datetime, float, MinuteView | None, float]]:
    """So many as fit on a page: where each begins, what falls due in it, its busiest minute, and that one's load."""
    length = (found.end - found.start) / _BARS
    stretches = []
    for number in range(_BARS):
        begin = found.start + number * length
        inside = [minute for minute in found.minutes if begin <= minute.at < begin + length]
        busiest = max(inside, key=lambda minute: minute.due, default=None)
        load = max((minute.load for minute in inside), default=0.0)
        stretches.append((begin, sum(minute.due for minute in inside), busiest, load))
    return stretches


def _bar(share: float) -> str:
    eighths = round(share * _BAR_WIDTH * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(_BAR_WIDTH)


def _crowd_lines(crowd: CrowdView) -> None:
    console = console_here()
    here = f"{crowd.at.astimezone():%H:%M %Z}"
    console.print(Text(f"crowd  {printable(crowd.words)} (here {here})", style="bold"))
    for schedule in crowd.schedules:
        some = ", ".join(schedule.examples[:3]) + (", ..." if schedule.jobs > 3 else "")
        line = f"       {counted(schedule.jobs, 'job')} with cron {schedule.cron!r} in {schedule.zone}: {some}"
        console.print(Text(printable(line)))
        if schedule.spread is not None:
            console.print(
                Text(f"       spread them: hourhand job update JOB --cron {schedule.spread!r}", style="green")
            )
