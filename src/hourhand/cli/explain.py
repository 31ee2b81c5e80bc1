"""`hourhand run explain`: why a run waits, where it is, why it ended so."""

from uuid import UUID

import click

from hourhand.cli.naming import run_id
from hourhand.cli.printing import show
from hourhand.cli.session import connected, session_options


@click.command()
@click.argument("run", type=run_id)
@session_options
def explain(run: UUID) -> None:
    """Tell why a run waits: every gate on its way, in order, with what is known of it now."""
    with connected() as client:
        found = client.explain_run(run)

    def table() -> None:
        from hourhand.cli.tables import explanation

        explanation(found)

    show(found, table)
