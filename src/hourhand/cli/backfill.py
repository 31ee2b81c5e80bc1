"""`hourhand backfill`: running the due times of a past range; how far that has come; pause, resume, cancel."""

import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from hourhand.cli.exits import RunFailed
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.naming import as_uuid, find_job
from hourhand.cli.printing import counted, say, show
from hourhand.cli.session import connected, output_format, session_options

if TYPE_CHECKING:
    from hourhand.client import BackfillView, Client

OTHER_WORDS = {"create": "start", "new": "start", "run": "start", "ls": "list", "get": "show", "stop": "cancel"}


def backfill_id(word: str) -> UUID:
    """The type of the argument BACKFILL."""
    found = as_uuid(word)
    if found is None:
        raise click.BadParameter(f"{word!r} is not the id of a backfill; 'hourhand backfill list' shows ids")
    return found


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def backfill() -> None:
    """Run the due times of a past range, a few at a time."""


@backfill.command()
@click.argument("job")
@click.option("--from", "start", metavar="TIME", required=True, help="The first due time that counts: 7d, 2026-10-01.")
@click.option("--to", "end", metavar="TIME", help="Due times before this one; now by default.")
@click.option("--tz", metavar="ZONE", help="Where times without an offset are meant; the job's zone by default.")
@click.option("--existing", metavar="WORD", help="Due times that have a run: skip (default), retry_failed or repeat.")
@click.option("--parallelism", type=click.IntRange(min=1), help="How many may be unfinished at once; 1 by default.")
@click.option("--rate", metavar="RATE", help="How many may be released: 10/m, 1/s.")
@click.option("--overlap", metavar="WORD", help="allow sets the job's overlap policy aside; needs --reason.")
@click.option("--reason", metavar="TEXT", help="Why the overlap policy is set aside.")
@click.option("--note", metavar="TEXT", help="Kept with the runs.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are, when, and how long they would take.")
@click.option("--wait", is_flag=True, help="Stay until it is over; exit 5 unless every run succeeded.")
@session_options
@click.pass_context
def start(
    ctx: click.Context,
    /,
    job: str,
    start: str,
    end: str | None,
    tz: str | None,
    dry_run: bool,
    wait: bool,
    **given: Any,
) -> None:
    """Run the due times of a job between --from and --to.

    \b
    hourhand backfill start report --from 2026-10-01 --to 2026-11-01 --dry-run
    hourhand backfill start report --from 30d --parallelism 4 --overlap allow --reason "days are independent" --wait

    {{scheduled_time}} in the job's parameters stands for the due time. Prints the id of the backfill.
    """
    if wait and dry_run:
        raise click.UsageError("--wait cannot be combined with --dry-run", ctx)
    with connected() as client:
        found = client.get_job(find_job(client, job))
        zone, now = tz or found.zone, datetime.now(UTC)
        made = client.start_backfill(
            found.job_id,
            start=_moment(start, "--from", now, zone),
            end=now if end is None else _moment(end, "--to", now, zone),
            dry_run=dry_run or None,
            **given,
        )
        if dry_run:
            _show(made)
            return
        assert made.backfill_id is not None
        if wait:
            _watch(client, made.backfill_id)
            return
        show(made, lambda: click.echo(str(made.backfill_id)))
        say(f"{counted(made.total, 'due time')} of {made.job_name}; hourhand backfill show {made.backfill_id}")


@backfill.command("list")
@click.option("--status", metavar="WORD[,WORD...]", help="running, paused, completed or cancelled.")
@click.option("--job", metavar="JOB", help="Only those of this job: its id or name.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@session_options
def list_(status: str | None, job: str | None, limit: int) -> None:
    """List backfills, newest first."""
    with connected() as client:
        job_id = None if job is None else find_job(client, job)
        found = list(islice(client.list_backfills(status=status, job_id=job_id, limit=min(limit, 500)), limit))

    def table() -> None:
        from hourhand.cli.planning_tables import backfill_table

        backfill_table(found) if found else say("no backfills")

    show(found, table)


@backfill.command("show")
@click.argument("backfill", type=backfill_id)
@click.option("--wait", is_flag=True, help="Stay until it is over; exit 5 unless every run succeeded.")
@session_options
def show_(backfill: UUID, wait: bool) -> None:
    """Show one backfill and how far it has come."""
    with connected() as client:
        if wait:
            _watch(client, backfill)
        else:
            _show(client.get_backfill(backfill))


@backfill.command()
@click.argument("backfill", type=backfill_id)
@click.option("--reason", metavar="TEXT", help="Shown to whoever looks at it.")
@session_options
def pause(backfill: UUID, reason: str | None) -> None:
    """Release nothing more; what is released goes on."""
    with connected() as client:
        _told(client.pause_backfill(backfill, reason), "is paused")


@backfill.command()
@click.argument("backfill", type=backfill_id)
@session_options
def resume(backfill: UUID) -> None:
    """Go on where it stopped."""
    with connected() as client:
        _told(client.resume_backfill(backfill), "goes on")


@backfill.command()
@click.argument("backfill", type=backfill_id)
@click.option("--reason", metavar="TEXT", help="Shown to whoever looks at it.")
@session_options
def cancel(backfill: UUID, reason: str | None) -> None:
    """End it: nothing more is released, its unfinished runs are stopped."""
    with connected() as client:
        _told(client.cancel_backfill(backfill, reason), "is cancelled")


def _moment(text: str, option: str, now: datetime, zone: str) -> datetime:
    from hourhand.cli.times import TimeFault, parse_day, parse_past_time, parse_time
    from hourhand.model.durations import DurationFault, parse_duration

    try:
        parse_duration(text)
    except DurationFault:
        try:
            return parse_day(text, zone) or parse_time(text, now, zone)
        except TimeFault as fault:
            raise click.BadParameter(str(fault), param_hint=option) from None
    return parse_past_time(text, now)


def _watch(client: "Client", identity: UUID) -> None:
    """Stays with it until it is over, with a bar where somebody looks."""
    try:
        with _bar() as bar:
            for last in client.follow_backfill(identity):
                bar(last)
    except KeyboardInterrupt:
        say(f"backfill {identity} goes on; stop it with: hourhand backfill cancel {identity}")
        raise
    _show(last)
    if last.status != "completed" or last.failed or last.cancelled or last.skipped:
        raise RunFailed(f"backfill {identity} is {last.status}: {_counts(last)}")


def _bar() -> Any:
    if sys.stderr.isatty() and output_format() == "table":
        from hourhand.cli.planning_tables import progress_bar

        return progress_bar()
    return nullcontext(lambda _: None)


def _show(found: "BackfillView") -> None:
    def table() -> None:
        from hourhand.cli.planning_tables import backfill_details

        backfill_details(found)

    show(found, table)


def _told(found: "BackfillView", what: str) -> None:
    show(found, lambda: say(f"backfill {found.backfill_id} of {found.job_name} {what}: {_counts(found)}"))


def _counts(found: "BackfillView") -> str:
    words = ("succeeded", "failed", "cancelled", "skipped", "live", "left_out", "remaining")
    told = [f"{getattr(found, word)} {word.replace('_', ' ')}" for word in words if getattr(found, word)]
    return ", ".join(told) or "nothing done yet"
