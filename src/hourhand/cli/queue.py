"""`hourhand queue`: how full queues are; pause, resume, limits."""

from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.job_fields import whole_number
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.pausing import pause_options, resume_options, until_of, until_words
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client import QueueView

OTHER_WORDS = {"ls": "list", "show": "get", "stop": "pause", "start": "resume", "update": "set", "limit": "set"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def queue() -> None:
    """See queues, pause and resume them, limit them."""


@queue.command("list")
@session_options
def list_() -> None:
    """List the queues of the namespace."""
    with connected() as client:
        found = client.queues()

    def table() -> None:
        from hourhand.cli.tables import queue_table

        queue_table(found) if found else say("no queues")

    show(found, table)


@queue.command()
@click.argument("queue")
@session_options
def get(queue: str) -> None:
    """Show one queue."""
    with connected() as client:
        _show_queue(client.get_queue(queue))


@queue.command("set")
@click.argument("queue")
@click.option("--max-concurrency", metavar="N", help="How many of its runs may run at once; none: any number.")
@click.option("--rate-limit", metavar="RATE", help="How many may start: 100/m, 5/s, 10/30s; none: any number.")
@session_options
@click.pass_context
def set_(ctx: click.Context, queue: str, max_concurrency: str | None, rate_limit: str | None) -> None:
    """Limit a queue; only what is given changes. What is running already counts."""
    fields: dict[str, Any] = {}
    if max_concurrency is not None:
        fields["max_concurrency"] = whole_number(max_concurrency, "--max-concurrency")
    if rate_limit is not None:
        fields["rate_limit"] = None if rate_limit == "none" else rate_limit
    if not fields:
        raise click.UsageError("nothing to change is given", ctx)
    with connected() as client:
        _show_queue(client.set_queue(queue, **fields))


@queue.command()
@click.argument("queue")
@pause_options
@session_options
def pause(queue: str, reason: str | None, until: str | None) -> None:
    """Start nothing of a queue until it is resumed; what runs goes on. May be repeated."""
    end = until_of(until)
    with connected() as client:
        found = client.pause_queue(queue, reason, end)
    counts = f"{found.waiting} waiting, {found.running} running"
    show(found, lambda: say(f"queue {found.name} is paused{until_words(end)}; {counts}"))
    for run_id in found.too_late:
        say(f"too late for run {run_id}: an executor already has it")


@queue.command()
@click.argument("queue")
@resume_options
@session_options
def resume(queue: str, catch_up: str | None) -> None:
    """Start the runs of a queue again. May be repeated."""
    with connected() as client:
        found = client.resume_queue(queue, catch_up)
    show(found, lambda: say(f"queue {found.name} goes on; {found.waiting} waiting, {found.running} running"))


def _show_queue(found: "QueueView") -> None:
    def table() -> None:
        from hourhand.cli.tables import queue_details

        queue_details(found)

    show(found, table)
