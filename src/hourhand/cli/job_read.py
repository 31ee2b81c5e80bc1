"""The verbs of `hourhand job` that only look."""

from itertools import islice
from typing import Any

import click

from hourhand.cli.job_fields import parse_labels
from hourhand.cli.naming import find_job
from hourhand.cli.printing import log_text, say, show
from hourhand.cli.session import connected, session_options
from hourhand.cli.watching import grep_options

PAGE_MAX = 500


@click.command("list")
@click.option("--status", metavar="WORD", help="scheduled, paused, completed or cancelled.")
@click.option("--name", metavar="NAME")
@click.option("--kind", metavar="KIND", help="command, http or python.")
@click.option("--queue", metavar="NAME")
@click.option("--owner", metavar="NAME")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="May be repeated; all must fit.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All that match, whatever the limit.")
@session_options
def list_(labels: tuple[str, ...], limit: int, everything: bool, **filters: Any) -> None:
    """List jobs, newest first."""
    with connected() as client:
        found = client.list_jobs(limit=page_size(limit, everything), label=parse_labels(labels) or None, **filters)
        jobs = list(found if everything else islice(found, limit + 1))
    jobs = shortened(jobs, limit, everything)

    def table() -> None:
        from hourhand.cli.tables import job_table

        job_table(jobs) if jobs else say("no jobs")

    show(jobs, table)


@click.command()
@click.argument("job")
@session_options
def get(job: str) -> None:
    """Show one job."""
    with connected() as client:
        found = client.get_job(find_job(client, job))
        remarks = client.job_advice(found.job_id).remarks if found.resources else []

    def table() -> None:
        from hourhand.cli.tables import job_details

        job_details(found, [f"{remark.resource}: {remark.text}" for remark in remarks])

    show(found, table)


@click.command()
@click.argument("job")
@session_options
def advice(job: str) -> None:
    """Compare what a job declares to take with what its last runs have taken."""
    with connected() as client:
        found = client.job_advice(find_job(client, job))

    def table() -> None:
        from hourhand.cli.tables import advice_details

        advice_details(found)

    show(found, table)


@click.command("next")
@click.argument("job")
@click.option("-n", "--count", type=click.IntRange(1, 500), default=10, show_default=True)
@session_options
def next_(job: str, count: int) -> None:
    """Show when a job is due next."""
    with connected() as client:
        found = client.get_job(find_job(client, job))
        times = client.next_times(found.job_id, count)

    def table() -> None:
        from hourhand.cli.tables import times_list

        if times:
            times_list(times, found.zone)
        else:
            say(f"{found.name} is {found.status}: no further due time")

    show(times, table)
    if times and found.pauses:
        from hourhand.cli.times import local_time

        ends = [pause.until for pause in found.pauses]
        held = "while that lasts" if None in ends else f"before {local_time(max(end for end in ends if end))}"
        say(f"{found.name} is paused: due times {held} make no runs")


@click.command()
@click.argument("job")
@click.option("--status", metavar="WORD[,WORD...]", help="For example failed,timed_out.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="All that match, whatever the limit.")
@session_options
def runs(job: str, status: str | None, limit: int, everything: bool) -> None:
    """List the runs of a job, newest first."""
    with connected() as client:
        found = client.job_runs(find_job(client, job), status=status, limit=page_size(limit, everything))
        listed = list(found if everything else islice(found, limit + 1))
    show_runs(shortened(listed, limit, everything))


@click.command()
@click.argument("job")
@grep_options
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True)
@session_options
def logs(job: str, grep: str | None, ignore_case: bool, no_color: bool, limit: int) -> None:
    """Search what the runs of a job wrote, newest run first.

    \b
    hourhand job logs backup --grep "no space"
    """
    if grep is None:
        raise click.UsageError("say what to look for: --grep TEXT", click.get_current_context())
    with connected() as client:
        found = list(islice(client.search_job_logs(find_job(client, job), grep, ignore_case=ignore_case), limit + 1))
    matches = shortened(found, limit, everything=False)

    def table() -> None:
        for match in matches:
            text = log_text(match.text, color=False if no_color else None)
            click.echo(f"{match.run_id} {match.attempt}:{match.number} {text}", color=True)
        if not matches:
            say("not found")

    show(matches, table)


def show_runs(listed: list[Any]) -> None:
    def table() -> None:
        from hourhand.cli.tables import run_table

        run_table(listed) if listed else say("no runs")

    show(listed, table)


def page_size(limit: int, everything: bool) -> int:
    """One more than wanted, so that it shows whether there is more."""
    return PAGE_MAX if everything else min(limit + 1, PAGE_MAX)


def shortened(found: list[Any], limit: int, everything: bool) -> list[Any]:
    if everything or len(found) <= limit:
        return found
    say("there are more; --limit N shows more, --all everything")
    return found[:limit]
