"""`hourhand cron`: what an expression means, without a server."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from hourhand.cli.lazy import LazyGroup
from hourhand.cli.printing import say, show
from hourhand.cli.session import session_options

if TYPE_CHECKING:
    from hourhand.model.errors import Fault
    from hourhand.model.preview import Preview

TIMES_DEFAULT: Final = 10
TIMES_MAX: Final = 1_000_000
"""Of a window; more would not be read by anybody."""


def _count(ctx: click.Context, _: click.Parameter, count: int | None) -> int | None:
    """The same limit as the API's, in the same words."""
    from hourhand.model.preview import COUNT_MAX

    if count is not None and not 1 <= count <= COUNT_MAX:
        raise click.BadParameter(f"count is 1 to {COUNT_MAX}, not '{count}'", ctx)
    return count


@click.group(cls=LazyGroup, other_words={"preview": "explain", "next": "explain", "show": "explain"})
@session_options
def cron() -> None:
    """See what a cron expression means; needs no server."""


@cron.command()
@click.argument("expression")
@click.option("--tz", "--zone", "tz", metavar="ZONE", help="By whose clock: Europe/Berlin. UTC by default.")
@click.option("--from", "since", metavar="TIME", help="Times from here on, included; now by default.")
@click.option("--to", "until", metavar="TIME", help="All times up to here, included.")
@click.option("--count", "-n", type=int, callback=_count, help="How many at most: 1 to 500; 10 without --to.")
@click.option("--gap", type=click.Choice(["fire_after", "skip"]), help="A fixed time that the clock jumps over.")
@click.option("--overlap", type=click.Choice(["auto", "first", "last", "both"]), help="A time that comes twice.")
@click.option("--job-id", metavar="ID", help="Of the job, by which H is fixed.")
@session_options
@click.pass_context
def explain(
    ctx: click.Context,
    expression: str,
    tz: str | None,
    since: str | None,
    until: str | None,
    count: int | None,
    gap: str | None,
    overlap: str | None,
    job_id: str | None,
) -> None:
    """Say in words what an expression means, and when it falls due: '0 2 * * *', '@daily', 'H 3 * * *'.

    Days on which the clock changes are marked, with what becomes of the times in them.
    """
    from hourhand.model.errors import InvalidFields
    from hourhand.model.preview import preview
    from hourhand.model.schedule_form import parse_timing

    now = datetime.now(UTC)
    seed = _seed(ctx, job_id)
    try:
        parse_timing(
            {"cron": expression}, tz, gap=gap, overlap=overlap, now=now, seed=seed
        )  # before times use its zone
    except InvalidFields as wrong:
        raise InvalidFields([_as_word(fault) for fault in wrong.faults]) from None
    start = _time(ctx, "--from", since, now, tz) or now
    end = _time(ctx, "--to", until, now, tz)
    if end is not None and end < start:
        raise click.BadParameter("it is earlier than --from", ctx, param_hint="--to")
    timing = parse_timing({"cron": expression}, tz, gap=gap, overlap=overlap, now=min(now, start), seed=seed)
    found = preview(timing, start, end, count or (TIMES_DEFAULT if end is None else TIMES_MAX))
    show(_data(found), lambda: _print(found, timing.zone))


def _as_word(fault: "Fault") -> "Fault":
    """There is no body here for a pointer to point into: named is what was written on the command line."""
    word = {"/schedule/cron": "EXPRESSION", "/zone": "--tz"}.get(fault.pointer, fault.pointer)
    return type(fault)(word, fault.code, fault.message, fault.hint, fault.allowed)


def _data(found: "Preview") -> dict[str, Any]:
    from hourhand.model.local_time import format_instant

    return {
        "times": [format_instant(time) for time in found.times],
        "words": found.words,
        "notes": found.notes,
    }


def _print(found: "Preview", zone_name: str) -> None:
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(zone_name)
    click.echo(found.words)
    for note in found.notes:
        click.echo(f"  note: {note}")
    if not found.times:
        say("no due times there")
    for time in found.times:
        here = time.astimezone(zone)
        utc = "" if zone_name == "UTC" else f"   {time:%Y-%m-%dT%H:%M:%SZ}"
        mark = "   <- the clock changes" if here.date() in found.dst_days else ""
        click.echo(f"{here:%a %Y-%m-%d %H:%M:%S %Z}{utc}{mark}")


def _time(ctx: click.Context, option: str, text: str | None, now: datetime, zone: str | None) -> datetime | None:
    """A day alone is its beginning."""
    from hourhand.cli.times import TimeFault, parse_day, parse_time

    if text is None:
        return None
    try:
        return parse_day(text, zone or "UTC") or parse_time(text, now, zone or "UTC")
    except TimeFault as fault:
        raise click.BadParameter(str(fault), ctx, param_hint=option) from None


def _seed(ctx: click.Context, job_id: str | None) -> int:
    from uuid import UUID

    from hourhand.model.schedule_form import seed_of

    if job_id is None:
        return 0
    try:
        return seed_of(UUID(job_id))
    except ValueError:
        raise click.BadParameter(f"{job_id!r} is not an id", ctx, param_hint="--job-id") from None
