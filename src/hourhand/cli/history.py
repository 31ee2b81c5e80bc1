"""`hourhand job history`: what became of every due time, and why; and pauses as a table."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from hourhand.cli.naming import find_job
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, output_format, session_options

if TYPE_CHECKING:
    from hourhand.client import HistoryEntryView, JobView, PauseView

PAGE_MAX = 1000


@click.command()
@click.argument("job")
@click.option("--from", "since", metavar="TIME", default="24h", show_default=True, help="18:00, 2d (ago), 2030-01-31.")
@click.option("--to", "until", metavar="TIME", help="Now, unless said otherwise.")
@click.option("--each", is_flag=True, help="Every due time on its own; else a stretch without runs is one line.")
@click.option("--compact", is_flag=True, help="A stretch without runs as one entry, also with -o json.")
@click.option("--limit", type=click.IntRange(min=1), default=500, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All there are, whatever the limit.")
@session_options
def history(job: str, since: str, until: str | None, each: bool, compact: bool, limit: int, everything: bool) -> None:
    """Show what became of every due time of a job, and why: for when it did not run last night."""
    now = datetime.now(UTC)
    begin, end = _past(since, now, "--from"), None if until is None else _past(until, now, "--to")
    stretches = compact or (output_format() == "table" and not each)
    size = PAGE_MAX if everything else min(limit + 1, PAGE_MAX)
    with connected() as client:
        found = client.get_job(find_job(client, job))
        entries = client.job_history(found.job_id, since=begin, until=end, limit=size, compact=stretches or None)
        listed = list(entries if everything else islice(entries, limit + 1))
    if not everything and len(listed) > limit:
        say("there is more; --limit N shows more, --all everything")
        listed = listed[:limit]

    def table() -> None:
        _table(listed) if listed else say(f"no due time of {found.name} lies in that time; {_next(found)}")

    show(listed, table)
    if listed:
        say(_summary(found.name, listed))


def _next(job: "JobView") -> str:
    from hourhand.cli.times import local_time

    return f"it is {job.status}" if job.next_due is None else f"it is due next at {local_time(job.next_due)}"


def _past(text: str, now: datetime, option: str) -> datetime:
    from hourhand.cli.times import TimeFault, parse_past_time

    try:
        return parse_past_time(text, now)
    except TimeFault as fault:
        raise click.BadParameter(str(fault), param_hint=option) from None


def _summary(name: str, entries: "Sequence[HistoryEntryView]") -> str:
    counts: Counter[str] = Counter()
    for entry in entries:
        counts[entry.status] += entry.count
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    total = sum(counts.values())
    return f"{name}: {total} due {'time' if total == 1 else 'times'}: {told}"


def _table(entries: "Sequence[HistoryEntryView]") -> None:
    from hourhand.cli.layout import Column, draw_table

    columns = [
        Column("DUE", kind="time"),
        Column("UP TO", 110, "time"),
        Column("COUNT", kind="number"),
        Column("STATUS", kind="status"),
        Column("WHY"),
        Column("RUN ID", 170, "id"),
    ]
    rows = [
        (
            entry.due_at,
            entry.last_due,
            entry.count,
            entry.status,
            entry.why,
            entry.run_id,
        )
        for entry in entries
    ]
    draw_table(columns, rows)


def pause_table(pauses: "Sequence[PauseView]") -> None:
    from hourhand.cli.layout import Column, draw_table

    columns = [
        Column("WHAT"),
        Column("SINCE", kind="time"),
        Column("BY"),
        Column("UNTIL", kind="time"),
        Column("ENDED", 110, "time"),
        Column("REASON"),
    ]
    rows = [(f"{p.scope} {p.name}".strip(), p.paused_at, p.paused_by, p.until, p.ended_at, p.reason) for p in pauses]
    draw_table(columns, rows)
