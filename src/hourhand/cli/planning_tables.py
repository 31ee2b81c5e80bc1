"""Backfills, forecasts and versions drawn for people. Imported only when something is to be drawn."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from hourhand.cli.layout import Column, draw_details, draw_table
from hourhand.cli.times import length_text, local_time
from hourhand.client.planning import BackfillView


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
