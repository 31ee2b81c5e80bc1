"""`hourhand node`: who is there, and orders to them."""

import sys
from typing import TYPE_CHECKING

import click

from hourhand.cli.lazy import LazyGroup
from hourhand.cli.naming import find_node
from hourhand.cli.printing import counted, say, show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client import NodeDetailView

OTHER_WORDS = {"ls": "list", "show": "get", "uncordon": "resume", "undrain": "resume", "kill": "mark-lost"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def node() -> None:
    """See nodes, take them out of work and back, declare them lost.

    NODE is a node's number or its name.
    """


@node.command("list")
@session_options
def list_() -> None:
    """List nodes: those that are there, and those that ended within the last hour."""
    with connected() as client:
        found = client.nodes()

    def table() -> None:
        from hourhand.cli.tables import node_table

        node_table(found) if found else say("no nodes")

    show(found, table)


@node.command()
@click.argument("node")
@session_options
def get(node: str) -> None:
    """Show one node and what it says of itself."""
    with connected() as client:
        found = client.get_node(find_node(client, node))

    def table() -> None:
        from hourhand.cli.tables import node_details

        node_details(found)

    show(found, table)


@node.command()
@click.argument("node")
@session_options
def cordon(node: str) -> None:
    """Let a node take nothing new; what it has goes on. May be repeated."""
    with connected() as client:
        _show_order(client.cordon_node(find_node(client, node)), "takes nothing new")


@node.command()
@click.argument("node")
@click.option("--wait", is_flag=True, help="Wait until it has nothing left.")
@session_options
@click.pass_context
def drain(ctx: click.Context, node: str, wait: bool) -> None:
    """Let a node take nothing new, and give back what does not end in time. May be repeated."""
    with connected() as client:
        found = client.drain_node(find_node(client, node))
        if wait:
            found = client.wait_until_drained(found.node_id)
        _show_order(found, _drained_words(found) if wait else "takes nothing new and gets rid of what it has")
    if wait and found.is_present and found.shards:
        ctx.exit(1)


@node.command()
@click.argument("node")
@session_options
def resume(node: str) -> None:
    """Let a node work again. May be repeated."""
    with connected() as client:
        _show_order(client.resume_node(find_node(client, node)), "works again")


@node.command("mark-lost")
@click.argument("node")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session_options
@click.pass_context
def mark_lost(ctx: click.Context, node: str, yes: bool) -> None:
    """Hold a node for dead without waiting for its lease: its runs and shards go to others at once.

    For a machine that is known to be gone. If it is alive after all, what it has in hand may run twice.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("nobody is there to confirm; say --yes to do it without being asked", ctx)
    with connected() as client:
        found = client.get_node(find_node(client, node))
        warning = f"Hold {found.role} {found.name} for dead? What it has in hand is started elsewhere."
        if not yes and not click.confirm(warning, err=True):
            say("nothing was changed")
            ctx.exit(1)
        _show_order(client.mark_node_lost(found.node_id), "is held for dead")


def _drained_words(found: "NodeDetailView") -> str:
    if not found.is_present:
        return "has ended"
    if found.shards:
        return f"keeps {counted(found.shards, 'shard')}, because no other scheduler is there to take them"
    return "has nothing left" if found.state == "drained" else "was told something else meanwhile"


def _show_order(found: "NodeDetailView", what: str) -> None:
    show(found, lambda: say(f"{found.role} {found.name} ({found.node_id}) {what}; it is {found.state}"))
