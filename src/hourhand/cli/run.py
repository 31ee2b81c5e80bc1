"""`hourhand run`: runs, their logs and their ends."""

import json
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

import click

from hourhand.cli.job_read import page_size, shortened, show_runs
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.naming import find_job, run_id
from hourhand.cli.printing import plain, say, show
from hourhand.cli.session import connected, output_format, session_options
from hourhand.cli.watching import print_lines, watch_run

if TYPE_CHECKING:
    from hourhand.client import RunDetailView

OTHER_WORDS = {"ls": "list", "show": "get", "log": "logs", "tail": "logs", "stop": "cancel", "kill": "cancel"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def run() -> None:
    """See runs, their logs and results; wait for them, cancel them."""


@run.command("list")
@click.option("--status", metavar="WORD[,WORD...]", help="For example running or failed,timed_out.")
@click.option("--job", metavar="JOB", help="Only runs of this job: its id or name.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All that match, whatever the limit.")
@session_options
def list_(status: str | None, job: str | None, limit: int, everything: bool) -> None:
    """List runs, newest first."""
    with connected() as client:
        job_id = None if job is None else find_job(client, job)
        found = client.list_runs(status=status, job_id=job_id, limit=page_size(limit, everything))
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
@session_options
def logs(run: UUID, follow: bool, times: bool) -> None:
    """Print the log of a run. As JSON it is one object per line."""
    with connected() as client:
        lines = client.follow_logs(run) if follow else client.log_lines(run)
        match output_format():
            case "json":
                for line in lines:
                    click.echo(json.dumps(plain(line), ensure_ascii=False))
            case "yaml":
                show(list(lines), lambda: None)
            case _:
                print_lines(lines, times=times)


@run.command()
@click.argument("run", type=run_id)
@click.option("--wait", is_flag=True, help="Wait until nothing of the run is left.")
@session_options
def cancel(run: UUID, wait: bool) -> None:
    """Cancel a run: it gets a moment to end by itself and is then stopped."""
    with connected() as client:
        found = client.cancel_run(run)
        if wait:
            found = client.wait_for_run(run)
        show(found, lambda: say(f"run {found.run_id} is {found.status}"))


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
