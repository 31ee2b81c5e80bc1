"""`hourhand run parts`: where the parts of a run went, and what became of each."""

from uuid import UUID

import click

from hourhand.cli.naming import run_id
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options


@click.command()
@click.argument("run", type=run_id)
@session_options
def parts(run: UUID) -> None:
    """List the parts of a run that goes to all executors, or to several."""
    with connected() as client:
        found = client.run_parts(run)

    def table() -> None:
        from hourhand.cli.tables import part_table

        part_table(found) if found else say("it has no parts")

    show(found, table)
