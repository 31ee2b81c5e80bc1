"""`hourhand run`: runs, their logs and their ends."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from hourhand.cli.job_read import page_size, shortened, show_runs
from hourhand.cli.lazy import Lazy, LazyGroup
from hourhand.cli.naming import find_job, run_id
from hourhand.cli.printing import counted, say, show
from hourhand.cli.session import connected, session_options
from hourhand.cli.watching import check_wait_options, grep_options, show_lines, show_logs, wait_options, watch_run
from hourhand.model.errors import HourhandError

if TYPE_CHECKING:
    from hourhand.client import Client, RunDetailView

_Command = TypeVar("_Command", bound=Callable[..., Any])
OTHER_WORDS = {
    "ls": "list",
    "show": "get",
    "log": "logs",
    "tail": "logs",
    "stop": "cancel",
    "kill": "cancel",
    "again": "retry",
    "rerun": "retry",
    "why": "explain",
}

FILES = Lazy("hourhand.cli.run_files", "files", "List the files that a run has left.")
DOWNLOAD = Lazy("hourhand.cli.run_files", "download", "Download files of a run, or its result.")
EXPLAIN = Lazy("hourhand.cli.explain", "explain", "Tell why a run waits, or ended as it did.")


PARTS = Lazy("hourhand.cli.run_parts", "parts", "List the parts of a run that goes to several executors.")
_LAZY = {"explain": EXPLAIN, "parts": PARTS, "files": FILES, "download": DOWNLOAD}


@click.group(cls=LazyGroup, lazy=_LAZY, other_words=OTHER_WORDS)
@session_options
def run() -> None:
    """See runs, their logs and results; wait for them, cancel them, run them again."""


def filter_options(example: str) -> Callable[[_Command], _Command]:
    """Which runs are meant."""

    def with_options(command: _Command) -> _Command:
        for option in _filters_with(example):
            command = option(command)
        return command

    return with_options


def _filters_with(example: str) -> Sequence[Callable[[_Command], _Command]]:
    return (
        click.option("--until", metavar="TIME", help="Only runs due before this time."),
        click.option("--since", metavar="TIME", help="Only runs due since then: 1h, 06:00, RFC 3339."),
        click.option("--job", metavar="JOB", help="Only runs of this job: its id or name."),
        click.option("--status", metavar="WORD[,WORD...]", help=f"For example {example}."),
    )


reason_option = click.option("--reason", metavar="WORD[,WORD...]", help="For example poison, or timeout,deadline.")


@run.command("list")
@filter_options("running or failed,timed_out")
@reason_option
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All that match, whatever the limit.")
@session_options
def list_(limit: int, everything: bool, **given: str | None) -> None:
    """List runs, newest first."""
    with connected() as client:
        found = client.list_runs(limit=page_size(limit, everything), **_filters(client, given))
        listed = list(found if everything else islice(found, limit + 1))
    show_runs(shortened(listed, limit, everything))


@run.command()
@click.argument("run", type=run_id)
@session_options
def get(run: UUID) -> None:
    """Show one run and its attempts."""
    with connected() as client:
        _show_run(client.get_run(run))


@run.command()
@click.argument("run", type=run_id)
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
@click.option("-t", "--times", is_flag=True, help="Begin each line with its time.")
@grep_options
@session_options
def logs(run: UUID, follow: bool, times: bool, grep: str | None, ignore_case: bool, no_color: bool) -> None:
    """Print the log of a run. As JSON it is one object per line."""
    if follow and grep is not None:
        raise click.UsageError("--grep cannot be combined with --follow", click.get_current_context())
    with connected() as client:
        wanted: dict[str, Any] = {"contains": grep, "ignore_case": ignore_case}
        lines = client.follow_logs(run) if follow else client.log_lines(run, **wanted)
        color = False if no_color else None
        show_logs(client, run, lines, lambda found: show_lines(found, times=times, color=color), **wanted)


@run.command()
@click.argument("run", type=run_id, required=False)
@filter_options("queued,running")
@click.option("--limit", type=click.IntRange(min=1), help="How many at most; 1000 by default.")
@click.option("--wait", is_flag=True, help="Wait until nothing of the run is left.")
@session_options
@click.pass_context
def cancel(ctx: click.Context, /, run: UUID | None, limit: int | None, wait: bool, **given: str | None) -> None:
    """Cancel a run, or all live ones that --job, --status, --since or --until name.

    It gets a moment to end by itself and is then stopped.
    """
    _check_meant(ctx, [run] if run else [], {**given, "limit": limit})
    if wait and run is None:
        raise click.UsageError("--wait needs one RUN", ctx)
    with connected() as client:
        if run is None:
            _cancel_many(client, given, limit)
            return
        found = client.cancel_run(run)
        if wait:
            found = client.wait_for_run(run)
        show(found, lambda: say(f"run {found.run_id} is {found.status}"))


@run.command()
@click.argument("runs", metavar="[RUN]...", type=run_id, nargs=-1)
@filter_options("failed,timed_out")
@reason_option
@click.option("--limit", type=click.IntRange(min=1), help="How many at most; 1000 by default.")
@click.option("--note", metavar="TEXT", help="Why; kept with the new runs.")
@click.option("--again", is_flag=True, help="Also those that a retry already repeats.")
@wait_options
@session_options
@click.pass_context
def retry(
    ctx: click.Context,
    /,
    runs: tuple[UUID, ...],
    limit: int | None,
    note: str | None,
    again: bool,
    wait: bool,
    follow: bool,
    **given: str | None,
) -> None:
    """Run finished runs again: these, or all that --job, --status, --reason, --since or --until name.

    \b
    hourhand run retry 01a1e1a7-d333-7efc-b4d6-560568a1bdff --note "the disk has room again"
    hourhand run retry --status failed --job backup --since 1h

    Prints the ids of the new runs. Each stands for the same time as the old one. Without --status, runs that failed,
    timed out or were lost are meant.
    """
    check_wait_options(wait, follow)
    _check_meant(ctx, runs, {**given, "limit": limit})
    if wait and len(runs) != 1:
        raise click.UsageError("--wait needs one RUN", ctx)
    with connected() as client:
        if not runs:
            _retry_many(client, given, limit, note, again)
            return
        made = _retry_each(client, runs, note, again)
        if wait:
            say(f"run {made[0]} is queued")
            watch_run(client, made[0], follow)
        else:
            show({"run_ids": made}, lambda: _print_ids(made))


@run.command()
@click.argument("run", type=run_id)
@click.option("--follow", is_flag=True, help="Print the log as it is written.")
@click.option("--timeout", metavar="LENGTH", help="Give up after this long: 90s, 10m.")
@session_options
def wait(run: UUID, follow: bool, timeout: str | None) -> None:
    """Wait for a run to end and print its result; exit 5 unless it succeeded."""
    seconds = None if timeout is None else _seconds(timeout)
    if follow and seconds is not None:
        raise click.UsageError("--timeout cannot be combined with --follow", click.get_current_context())
    with connected() as client:
        watch_run(client, run, follow, seconds)


def _check_meant(ctx: click.Context, runs: Sequence[UUID], given: Mapping[str, Any]) -> None:
    filtered = [name for name, value in given.items() if value is not None]
    if runs and filtered:
        raise click.UsageError(f"give either RUN or --{filtered[0]}", ctx)
    if not runs and not [name for name in filtered if name != "limit"]:
        names = ", ".join(f"--{name}" for name in given if name != "limit")
        raise click.UsageError(f"say which runs are meant: a RUN, or one of {names}", ctx)


def _cancel_many(client: "Client", given: Mapping[str, str | None], limit: int | None) -> None:
    done = client.cancel_runs(limit=limit, **_selection(client, given))
    show(done, lambda: say(f"{counted(done.cancelled, 'run')} cancelled, {done.cancelling} being stopped"))
    _say_if_more(done.more)


def _retry_each(client: "Client", runs: Sequence[UUID], note: str | None, again: bool) -> list[UUID]:
    """One after the other. Where one is refused the message names it, and those before it have been run again."""
    made: list[UUID] = []
    for run in runs:
        try:
            made.append(client.retry_run(run, note, again))
        except HourhandError as error:
            if made:
                show({"run_ids": made}, lambda: _print_ids(made))
            if len(runs) > 1:
                left = len(runs) - len(made) - 1
                error.add_note(
                    f"that is run {run}; {counted(len(made), 'run')} before it to run again, {left} not tried"
                )
            raise
    return made


def _retry_many(
    client: "Client", given: Mapping[str, str | None], limit: int | None, note: str | None, again: bool
) -> None:
    done = client.retry_runs(limit=limit, note=note, again=again or None, **_selection(client, given))
    show(done, lambda: _print_ids(done.run_ids))
    say(f"{counted(len(done.run_ids), 'run')} to run again")
    _say_if_more(done.more)


def _filters(client: "Client", given: Mapping[str, str | None]) -> dict[str, Any]:
    """The options as the API takes them in its address: words as they were written."""
    filters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if given.get("job") is not None:
        filters["job_id"] = find_job(client, filters.pop("job"))
    for name in ("since", "until"):
        if name in filters:
            filters[name] = _moment(filters[name], f"--{name}")
    return filters


def _selection(client: "Client", given: Mapping[str, str | None]) -> dict[str, Any]:
    """The options as the API takes them in a body: words as lists."""
    fields = _filters(client, given)
    for name in ("status", "reason"):
        if name in fields:
            fields[name] = [word.strip() for word in fields[name].split(",") if word.strip()]
    return fields


def _moment(text: str, option: str) -> datetime:
    from hourhand.cli.times import TimeFault, parse_past_time

    try:
        return parse_past_time(text, datetime.now(UTC))
    except TimeFault as fault:
        raise click.BadParameter(str(fault), param_hint=option) from None


def _print_ids(run_ids: Sequence[UUID]) -> None:
    for each in run_ids:
        click.echo(str(each))


def _say_if_more(more: bool) -> None:
    if more:
        say("there may be more; ask again, or say --limit N")


def _show_run(found: "RunDetailView") -> None:
    def table() -> None:
        from hourhand.cli.tables import run_details

        run_details(found)

    show(found, table)


def _seconds(text: str) -> float:
    from hourhand.model.durations import DurationFault, parse_duration

    try:
        return parse_duration(text).total_seconds()
    except DurationFault as fault:
        raise click.BadParameter(str(fault), param_hint="--timeout") from None
