"""`hourhand label`, `hourhand cluster` and `hourhand pause`: pauses of many jobs at once."""

import click

from hourhand.cli.lazy import LazyGroup
from hourhand.cli.pausing import pause_options, resume_options, show_paused, show_resumed, until_of
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options

_WORDS = {"stop": "pause", "hold": "pause", "start": "resume", "unpause": "resume", "continue": "resume"}


@click.group(cls=LazyGroup, other_words=_WORDS)
@session_options
def label() -> None:
    """Pause and resume all jobs with a label."""


@label.command("pause")
@click.argument("label", metavar="KEY=VALUE")
@pause_options
@session_options
def pause_label(label: str, reason: str | None, until: str | None) -> None:
    """Make no new runs of jobs with a label, also of such as get it later. May be repeated."""
    with connected() as client:
        show_paused(client.pause_label(label, reason, until_of(until)), f"label {label}")


@label.command("resume")
@click.argument("label", metavar="KEY=VALUE")
@resume_options
@session_options
def resume_label(label: str, catch_up: str | None) -> None:
    """Make runs of jobs with a label again. May be repeated."""
    with connected() as client:
        show_resumed(client.resume_label(label, catch_up), f"label {label}")


@click.group(cls=LazyGroup, other_words={**_WORDS, "status": "status"})
@session_options
def cluster() -> None:
    """Pause and resume all jobs there are."""


@cluster.command("pause")
@pause_options
@session_options
def pause_cluster(reason: str | None, until: str | None) -> None:
    """Make no new runs of any job. Needs a token of all namespaces. May be repeated."""
    with connected() as client:
        show_paused(client.pause_cluster(reason, until_of(until)), "the cluster")


@cluster.command("resume")
@resume_options
@session_options
def resume_cluster(catch_up: str | None) -> None:
    """Make runs again. Needs a token of all namespaces. May be repeated."""
    with connected() as client:
        show_resumed(client.resume_cluster(catch_up), "the cluster")


@click.group(cls=LazyGroup, other_words={"ls": "list", "show": "list"})
@session_options
def pause() -> None:
    """See which labels, queues and namespaces are paused."""


@pause.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that are over.")
@session_options
def list_(everything: bool) -> None:
    """List the pauses that concern the namespace, newest first."""
    with connected() as client:
        found = list(client.pauses(all=everything or None))

    def table() -> None:
        from hourhand.cli.history import pause_table

        pause_table(found) if found else say("nothing is paused")

    show(found, table)
