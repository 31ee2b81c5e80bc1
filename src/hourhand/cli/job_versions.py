"""The verbs of `hourhand job` that look back: who changed what, what differs, and the way back."""

import click

from hourhand.cli.job_change import show_change
from hourhand.cli.naming import find_job
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options


@click.command()
@click.argument("job")
@click.option("--limit", type=click.IntRange(1, 500), default=20, show_default=True)
@session_options
def versions(job: str, limit: int) -> None:
    """Show who changed a job, when, and what."""
    with connected() as client:
        found = client.versions(find_job(client, job), limit)

    def table() -> None:
        from hourhand.cli.planning_tables import version_table

        version_table(found) if found else say("no versions")

    show(found, table)


@click.command()
@click.argument("job")
@click.argument("start", metavar="[FROM]", type=click.IntRange(min=1), required=False)
@click.argument("end", metavar="[TO]", type=click.IntRange(min=1), required=False)
@session_options
def diff(job: str, start: int | None, end: int | None) -> None:
    """Show what differs between two versions of a job; without them, what the last change changed."""
    with connected() as client:
        found = client.diff_job(find_job(client, job), start, end)

    def table() -> None:
        from hourhand.cli.planning_tables import diff_lines

        if found.changes:
            diff_lines(found)
        else:
            say(f"versions {found.start} and {found.end} are the same")

    show(found, table)


@click.command()
@click.argument("job")
@click.argument("version", metavar="[VERSION]", type=click.IntRange(min=1), required=False)
@click.option("--if-version", type=click.IntRange(min=1), help="Only if the job still has this version.")
@session_options
def rollback(job: str, version: int | None, if_version: int | None) -> None:
    """Make an earlier version of a job the newest; without VERSION, the one before the current."""
    with connected() as client:
        change = client.roll_back_job(find_job(client, job), version, if_version=if_version)
        back_to = "the version before" if version is None else f"version {version}"
        show_change(change, f"is as in {back_to} again, now version {change.job.version}")
