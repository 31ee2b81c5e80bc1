"""The entry of the `hourhand` command: its table of commands, and the way every one of them ends."""

import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from hourhand.cli.exits import ExitCode, report
from hourhand.cli.lazy import Lazy, LazyGroup
from hourhand.cli.session import session_options

COMMANDS: Final = {
    "up": Lazy("hourhand.cli.up", "up", "Start everything on this machine, with a database of its own."),
    "demo": Lazy("hourhand.cli.up", "demo", "Add a handful of telling sample jobs to a running Hourhand."),
    "job": Lazy("hourhand.cli.job", "job", "Create jobs, see them, change them, run them."),
    "run": Lazy("hourhand.cli.run", "run", "See runs, their logs and results; wait for them, cancel them."),
    "cron": Lazy("hourhand.cli.cron", "cron", "See what a cron expression means; needs no server."),
    "calendar": Lazy("hourhand.cli.calendar", "calendar", "Keep calendars of times that jobs leave out."),
    "backfill": Lazy("hourhand.cli.backfill", "backfill", "Run the due times of a past range, a few at a time."),
    "artifact": Lazy("hourhand.cli.artifact", "artifact", "Upload code for script jobs, see it, delete it."),
    "secret": Lazy("hourhand.cli.secret", "secret", "Keep values that jobs use and nobody sees again."),
    "audit": Lazy("hourhand.cli.audit", "audit", "See who has done what."),
    "queue": Lazy("hourhand.cli.queue", "queue", "See queues, pause and resume them, limit them."),
    "node": Lazy("hourhand.cli.node", "node", "See nodes, take them out of work and back, declare them lost."),
    "shard": Lazy("hourhand.cli.shard", "shard", "See which scheduler owns which shards."),
    "label": Lazy("hourhand.cli.pause", "label", "Pause and resume all jobs with a label."),
    "cluster": Lazy("hourhand.cli.pause", "cluster", "Pause and resume all jobs there are."),
    "pause": Lazy("hourhand.cli.pause", "pause", "See which labels, queues and namespaces are paused."),
    "forecast": Lazy(
        "hourhand.cli.forecast", "forecast", "Show what falls due in the hours to come, and where it crowds."
    ),
    "status": Lazy("hourhand.cli.status", "status", "Show the cluster: nodes, what runs, what is due next."),
    "login-link": Lazy("hourhand.cli.up", "login_link", "Print a one-time link that opens the browser page."),
    "token": Lazy("hourhand.cli.access", "token", "Make, list and revoke API tokens."),
    "namespace": Lazy("hourhand.cli.access", "namespace", "Make, list and limit namespaces."),
    "api": Lazy("hourhand.cli.roles", "api", "Run an API node."),
    "scheduler": Lazy("hourhand.cli.roles", "scheduler", "Run a scheduler node."),
    "executor": Lazy("hourhand.cli.roles", "executor", "Run an executor node."),
    "db": Lazy("hourhand.cli.db", "db", "Prepare and check the database."),
    "config": Lazy("hourhand.cli.config", "config", "Check and show the configuration."),
    "bench": Lazy("hourhand.cli.bench", "bench", "Measure this installation."),
}
OTHER_WORDS: Final = {
    "jobs": "job",
    "runs": "run",
    "backfills": "backfill",
    "queues": "queue",
    "calendars": "calendar",
    "artifacts": "artifact",
    "upload": "artifact upload",
    "secrets": "secret",
    "preview": "cron explain",
    "nodes": "node",
    "shards": "shard",
    "explain": "run explain",
    "start": "up",
    "serve": "up",
    "worker": "executor",
    "logs": "run logs",
    "list": "job list",
    "create": "job create",
    "login": "login-link",
    "migrate": "db",
}


def show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("hourhand")
    except PackageNotFoundError:
        number = "(not installed, run from its source)"
    click.echo(f"hourhand {number}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    lazy=COMMANDS,
    other_words=OTHER_WORDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Data goes to stdout, messages to stderr. "
    "Exit codes: 0 ok, 1 error, 2 usage, 3 not found, 4 conflict, 5 the run failed (--wait), 66 no input, "
    "69 unreachable, 77 no permission, 78 configuration, 130 interrupted.",
)
@click.option("--version", is_flag=True, expose_value=False, is_eager=True, callback=show_version, help="Show it.")
@session_options
def cli() -> None:
    """Says what to run and when, runs it on time, never loses it, says what happened."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and gives its exit code. Nothing but that leaves this function."""
    try:
        ended: Any = cli.main(args=arguments, prog_name="hourhand", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:
        return report(error)
    return ended if isinstance(ended, int) else ExitCode.OK


if __name__ == "__main__":
    main()
