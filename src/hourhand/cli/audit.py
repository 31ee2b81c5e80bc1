"""`hourhand audit`: who has done what."""

import click

from hourhand.cli.lazy import LazyGroup
from hourhand.cli.session import connected, session_options


@click.group(cls=LazyGroup, other_words={"ls": "list", "show": "list"})
@session_options
def audit() -> None:
    """See who has done what."""


@audit.command("list")
@click.option("--subject", metavar="WHAT", help="What was acted on: secret/NAME.")
@click.option("--action", metavar="WORD", help="secret.use, secret.write, secret.change, secret.delete.")
@click.option("--actor", metavar="WHO", help="The name of a token, or 'executor NAME'.")
@click.option("--run", "run_id", metavar="RUN", help="The run that a secret was used for.")
@click.option("--since", metavar="TIME", help="Not older than that: 06:00, 2030-01-31T09:00:00Z.")
@click.option("--before", type=int, metavar="ID", help="Older than this entry.")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many at most.")
@session_options
@click.pass_context
def list_(ctx: click.Context, /, since: str | None, **filters: str | int | None) -> None:
    """List what was done, the newest first."""
    from datetime import UTC, datetime

    from hourhand.cli.secret import show_audit
    from hourhand.cli.times import TimeFault, parse_time

    try:
        after = None if since is None else parse_time(since, datetime.now(UTC), None)
    except TimeFault as fault:
        raise click.BadParameter(str(fault), ctx, param_hint="--since") from None
    with connected() as client:
        show_audit(client.audit(since=after, **filters))
