"""The verbs of `hourhand job` that change what a job does next."""

import sys
from typing import TYPE_CHECKING

import click

from hourhand.cli.job_fields import parse_object
from hourhand.cli.naming import find_job
from hourhand.cli.pausing import pause_options, resume_options, until_of, until_words
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options
from hourhand.cli.watching import check_wait_options, wait_options, watch_run

if TYPE_CHECKING:
    from hourhand.client import ChangeView


@click.command()
@click.argument("job")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session_options
@click.pass_context
def delete(ctx: click.Context, job: str, yes: bool) -> None:
    """Cancel a job for good; its history stays. Waiting runs end at once, running ones are stopped."""
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody is there to confirm; say --yes to delete without being asked", ctx)
    with connected() as client:
        found = client.get_job(find_job(client, job))
        if not yes and not click.confirm(f"Cancel job {found.name!r} ({found.job_id}) for good?", err=True):
            say("nothing was changed")
            ctx.exit(1)
        show_change(client.cancel_job(found.job_id), "is cancelled")


@click.command()
@click.argument("job")
@pause_options
@session_options
def pause(job: str, reason: str | None, until: str | None) -> None:
    """Make no new runs; running ones go on. A paused job can still be run by hand. May be repeated."""
    end = until_of(until)
    with connected() as client:
        show_change(client.pause_job(find_job(client, job), reason, end), f"is paused{until_words(end)}")


@click.command()
@click.argument("job")
@resume_options
@session_options
def resume(job: str, catch_up: str | None) -> None:
    """Make runs again, from now on. May be repeated."""
    with connected() as client:
        show_change(client.resume_job(find_job(client, job), catch_up), "goes on")


@click.command()
@click.argument("job")
@click.option("--payload", metavar="JSON", help="Instead of the job's own, for this run.")
@click.option("--note", metavar="TEXT", help="Why; kept with the run.")
@click.option("--overlap", metavar="WORD", help="Instead of the job's own: allow runs it beside an unfinished one.")
@wait_options
@session_options
def run(job: str, payload: str | None, note: str | None, overlap: str | None, wait: bool, follow: bool) -> None:
    """Run a job now. Prints the id of the run, or with --wait its result."""
    check_wait_options(wait, follow)
    given = None if payload is None else parse_object(payload, "--payload")
    with connected() as client:
        run_id = client.run_job(find_job(client, job), given, note, overlap)
        if wait:
            say(f"run {run_id} is queued")
            watch_run(client, run_id, follow)
        else:
            show({"run_id": run_id}, lambda: click.echo(str(run_id)))


def show_change(change: "ChangeView", what: str) -> None:
    from hourhand.cli.times import local_time

    due = f"; next due {local_time(change.job.next_due)}" if change.job.next_due and not change.job.is_final else ""
    show(change, lambda: say(f"job {change.job.name!r} ({change.job.job_id}) {what}{due}"))
    for run_id in change.too_late:
        if change.job.status == "cancelled":
            say(f"run {run_id} is being stopped")
        else:
            say(f"too late for run {run_id}: an executor already has it")
