"""`hourhand forecast`: what falls due in the hours to come, against slots and durations; and where it crowds."""

import click

from hourhand.cli.printing import show
from hourhand.cli.session import connected, session_options


@click.command()
@click.option("--hours", type=click.IntRange(1, 24), default=24, show_default=True, help="How far it looks.")
@session_options
def forecast(hours: int) -> None:
    """Show what falls due in the hours to come, and where it crowds.

    Each bar is a stretch of time; what would not fit into the slots is marked. For a crowd it offers the same
    schedule with H, which spreads jobs over the minutes by their ids.
    """
    with connected() as client:
        found = client.forecast(hours)

    def table() -> None:
        from hourhand.cli.planning_tables import forecast_chart

        forecast_chart(found)

    show(found, table)
