"""`hourhand calendar`: times that jobs leave out."""

from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.asking import make_sure
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client.views import CalendarView

OTHER_WORDS = {"ls": "list", "show": "get", "create": "set", "update": "set", "put": "set", "rm": "delete"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def calendar() -> None:
    """Keep calendars of times that jobs leave out: dates, weekly windows, blackouts."""


@calendar.command("list")
@session_options
def list_() -> None:
    """List the calendars of the namespace."""
    with connected() as client:
        found = client.calendars()

    def table() -> None:
        from hourhand.cli.layout import Column, draw_table

        columns = [Column("NAME"), Column("LEAVES OUT"), Column("ZONE", 100), Column("JOBS", kind="number")]
        columns.append(Column("CHANGED", 110, "time"))
        rows = [(each.name, _summary(each), each.zone, each.jobs, each.updated_at) for each in found]
        draw_table(columns, rows) if found else say("no calendars")

    show(found, table)


@calendar.command()
@click.argument("name")
@session_options
def get(name: str) -> None:
    """Show one calendar."""
    with connected() as client:
        _show(client.get_calendar(name))


@calendar.command("set")
@click.argument("name")
@click.option("--date", "dates", metavar="DAY", multiple=True, help="2030-12-24, or 12-24 for every year.")
@click.option("--weekly", metavar="DAYS[ FROM-TO]", multiple=True, help="'SAT-SUN', 'MON-FRI 22:00-06:00'.")
@click.option("--blackout", "blackouts", metavar="FROM/TO", multiple=True, help="Two times, with an offset or in --tz.")
@click.option("--tz", metavar="ZONE", help="By whose clock; without it by that of each job.")
@click.option("--description", metavar="TEXT")
@click.option("--from-file", metavar="FILE", help="All of it as a JSON object, - for stdin.")
@session_options
@click.pass_context
def set_(
    ctx: click.Context,
    name: str,
    dates: tuple[str, ...],
    weekly: tuple[str, ...],
    blackouts: tuple[str, ...],
    tz: str | None,
    description: str | None,
    from_file: str | None,
) -> None:
    """Make a calendar, or replace all of it. Jobs that use it go by it at once."""
    fields = _from_file(from_file) if from_file is not None else {}
    given = {
        "zone": tz,
        "dates": list(dates) or None,
        "weekly": [_weekly(ctx, text) for text in weekly] or None,
        "blackouts": [_blackout(ctx, text, tz) for text in blackouts] or None,
        "description": description,
    }
    fields |= {key: value for key, value in given.items() if value is not None}
    if not fields:
        raise click.UsageError("nothing is given that the calendar could leave out", ctx)
    with connected() as client:
        _show(client.put_calendar(name, **fields))


@calendar.command("import")
@click.argument("name")
@click.argument("file")
@click.option("--tz", metavar="ZONE", help="By whose clock times without a zone go.")
@session_options
def import_(name: str, file: str, tz: str | None) -> None:
    """Make a calendar of the events of an iCalendar file, - for stdin. Weekly windows of one that exists stay."""
    from hourhand.cli.job_fields import read_text

    text = read_text(file)
    with connected() as client:
        imported = client.import_calendar(name, text, tz)
    for note in imported.notes:
        say(f"note: {note}")
    _show(imported)


@calendar.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session_options
def delete(name: str, yes: bool) -> None:
    """Delete a calendar that no job uses."""
    make_sure(f"Delete calendar {name}?", yes)
    with connected() as client:
        client.delete_calendar(name)
    say(f"calendar {name} is deleted")


def _from_file(path: str) -> dict[str, Any]:
    from hourhand.cli.job_fields import read_fields

    return read_fields(path)


def _weekly(ctx: click.Context, text: str) -> dict[str, str]:
    days, _, clock = text.strip().partition(" ")
    begin, dash, end = clock.strip().partition("-")
    if clock and not dash:
        raise click.BadParameter(f"{text!r} has no FROM-TO after the days", ctx, param_hint="--weekly")
    return {"day": days, "from": begin.strip(), "to": end.strip()} if clock else {"day": days}


def _blackout(ctx: click.Context, text: str, zone: str | None) -> dict[str, str]:
    from datetime import UTC, datetime

    from hourhand.cli.times import TimeFault, parse_time
    from hourhand.model.local_time import ZoneFault, format_instant

    begin, slash, end = text.partition("/")
    if not slash:
        raise click.BadParameter(f"{text!r} has no slash; write FROM/TO", ctx, param_hint="--blackout")
    now = datetime.now(UTC)
    try:
        return {
            "from": format_instant(parse_time(begin, now, zone)),
            "to": format_instant(parse_time(end, now, zone)),
        }
    except (TimeFault, ZoneFault) as fault:
        raise click.BadParameter(str(fault), ctx, param_hint="--blackout") from None


def _summary(found: "CalendarView") -> str:
    from hourhand.cli.printing import counted

    counts = {"date": len(found.dates), "weekly window": len(found.weekly), "blackout": len(found.blackouts)}
    return ", ".join(counted(count, noun) for noun, count in counts.items() if count)


def _show(found: "CalendarView") -> None:
    def table() -> None:
        from hourhand.cli.layout import draw_details
        from hourhand.cli.times import local_time

        draw_details(
            [
                ("calendar", found.name),
                ("description", found.description),
                ("zone", found.zone or "that of each job"),
                ("dates", "\n".join(found.dates)),
                ("weekly", "\n".join(f"{each['day']} {each['from']}-{each['to']}" for each in found.weekly)),
                ("blackouts", "\n".join(_blackout_text(each) for each in found.blackouts)),
                ("used by", f"{found.jobs} job{'' if found.jobs == 1 else 's'}"),
                ("version", f"{found.version}, changed {local_time(found.updated_at)} by {found.updated_by}"),
            ]
        )

    show(found, table)


def _blackout_text(each: dict[str, Any]) -> str:
    return f"{each['from']} to {each['to']}" + (f" ({each['reason']})" if each.get("reason") else "")
