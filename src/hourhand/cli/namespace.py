"""The verbs of `hourhand namespace` that ask the server: a namespace's limit and its share among the others."""

from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.job_fields import whole_number
from hourhand.cli.pausing import pause_options, resume_options, show_paused, show_resumed, until_of
from hourhand.cli.printing import show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client import NamespaceView


@click.command()
@click.argument("name")
@session_options
def get(name: str) -> None:
    """Show a namespace's limit and share."""
    with connected() as client:
        _show_namespace(client.get_namespace(name))


@click.command("set")
@click.argument("name")
@click.option("--max-concurrency", metavar="N", help="How many of its runs may run at once; none: any number.")
@click.option("--weight", type=click.IntRange(1, 1000), help="Its share when there is not room for all; 1 by default.")
@session_options
@click.pass_context
def set_(ctx: click.Context, name: str, max_concurrency: str | None, weight: int | None) -> None:
    """Limit a namespace or change its share; only what is given changes. Needs a token of all namespaces."""
    fields: dict[str, Any] = {}
    if max_concurrency is not None:
        fields["max_concurrency"] = whole_number(max_concurrency, "--max-concurrency")
    if weight is not None:
        fields["weight"] = weight
    if not fields:
        raise click.UsageError("nothing to change is given", ctx)
    with connected() as client:
        _show_namespace(client.set_namespace(name, **fields))


@click.command()
@click.argument("name")
@pause_options
@session_options
def pause(name: str, reason: str | None, until: str | None) -> None:
    """Make no new runs of a namespace's jobs; running ones go on. May be repeated."""
    with connected() as client:
        show_paused(client.pause_namespace(name, reason, until_of(until)), f"namespace {name}")


@click.command()
@click.argument("name")
@resume_options
@session_options
def resume(name: str, catch_up: str | None) -> None:
    """Make runs of a namespace's jobs again. May be repeated."""
    with connected() as client:
        show_resumed(client.resume_namespace(name, catch_up), f"namespace {name}")


def _show_namespace(found: "NamespaceView") -> None:
    def table() -> None:
        from hourhand.cli.tables import namespace_details

        namespace_details(found)

    show(found, table)
