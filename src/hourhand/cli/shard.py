"""`hourhand shard`: which scheduler owns which part of all jobs."""

import click

from hourhand.cli.lazy import LazyGroup
from hourhand.cli.printing import show
from hourhand.cli.session import connected, session_options


@click.group(cls=LazyGroup, other_words={"ls": "list"})
@session_options
def shard() -> None:
    """See which scheduler owns which shards."""


@shard.command("list")
@click.option("--all", "each", is_flag=True, help="One line per shard.")
@session_options
def list_(each: bool) -> None:
    """List the owners of shards: how many, which, and since which epoch."""
    with connected() as client:
        found = client.shards(each=each)

    def table() -> None:
        from hourhand.cli.tables import owner_table, shard_table

        shard_table(found.shards) if each else owner_table(found.owners)

    show(found, table)
