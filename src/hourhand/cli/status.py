"""`hourhand status`: the cluster at a glance."""

import click

from hourhand.cli.printing import plain, show
from hourhand.cli.session import connected, server_address, session_options


@click.command()
@session_options
def status() -> None:
    """Show the cluster: nodes, what runs, what is due next."""
    address = server_address()
    with connected() as client:
        cluster = client.cluster()
        pauses = list(client.pauses())

    def table() -> None:
        from hourhand.cli.tables import cluster_details

        cluster_details(address, cluster)
        if pauses:  # told only when there is something to tell
            from hourhand.cli.history import pause_table
            from hourhand.cli.layout import console_here

            console_here().print()
            pause_table(pauses)

    show({"address": address, **plain(cluster), "pauses": plain(pauses)}, table)
