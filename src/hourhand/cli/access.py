"""`hourhand token` and `hourhand namespace`: who may use the API, and in which namespaces. They work on the database
itself, so that the first token of a cluster can be made before anybody could log in."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from hourhand.cli.lazy import Lazy, LazyGroup

if TYPE_CHECKING:
    from hourhand.wiring import Store

_Result = TypeVar("_Result")

_OPTIONS = [
    click.option("--home", type=click.Path(file_okay=False), help="Data folder of a running `hourhand up`."),
    click.option("--database", metavar="URL", help="The PostgreSQL in use, when it is not the embedded one."),
    click.option("--schema", metavar="NAME", help="Schema that holds the tables."),
]


def _database_options(command: Any) -> Any:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group(short_help="Make, list and revoke API tokens.")
def token() -> None:
    """Make, list and revoke API tokens."""


@token.command("create")
@click.argument("name")
@click.option("--only-namespace", metavar="NAME", help="The token works in this namespace only.")
@click.option("--expires", metavar="DURATION", help="How long it works, such as 90d; for ever by default.")
@_database_options
def create_token(name: str, only_namespace: str | None, expires: str | None, **where: Any) -> None:
    """Make a token and print it. It cannot be shown again: only its digest is kept."""
    from hourhand.model.durations import DurationFault, parse_duration
    from hourhand.operations.access import Access

    try:
        seconds = None if expires is None else parse_duration(expires).total_seconds()
    except DurationFault as fault:
        raise click.UsageError(f"--expires: {fault}") from None

    async def create(store: "Store") -> str:
        return await Access(store.tokens, store.names).create_token(name, seconds, only_namespace)

    click.echo(_on_database(create, where))


@token.command("list")
@_database_options
def list_tokens(**where: Any) -> None:
    """List tokens that work, without the tokens themselves."""
    rows = _on_database(lambda store: store.tokens.list_tokens(), where)
    for row in rows:
        expires = f"until {row['expires_at']:%Y-%m-%d %H:%M} UTC" if row["expires_at"] else "for ever"
        click.echo(f"{row['token_id']}  {row['name']:<20} {row['namespace'] or 'all namespaces':<20} {expires}")


@token.command("revoke")
@click.argument("token_id", type=click.UUID)
@_database_options
def revoke_token(token_id: UUID, **where: Any) -> None:
    """End a token; every node refuses it within five seconds."""
    from hourhand.model.errors import NotFound

    if not _on_database(lambda store: store.tokens.revoke_token(token_id), where):
        raise NotFound("token", token_id)


@click.group(
    cls=LazyGroup,
    lazy={
        "get": Lazy("hourhand.cli.namespace", "get", "Show a namespace's limit and share."),
        "set": Lazy("hourhand.cli.namespace", "set_", "Limit a namespace, or change its share."),
        "pause": Lazy("hourhand.cli.namespace", "pause", "Make no new runs of a namespace's jobs."),
        "resume": Lazy("hourhand.cli.namespace", "resume", "Make runs of a namespace's jobs again."),
    },
    short_help="Make, list and limit namespaces.",
)
def namespace() -> None:
    """Make, list and limit namespaces."""


@namespace.command("create")
@click.argument("name")
@_database_options
def create_namespace(name: str, **where: Any) -> None:
    """Make a namespace. Doing it twice changes nothing."""
    import re

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", name):
        raise click.UsageError("a namespace has 1 to 63 small letters, digits, dots, dashes or underscores")
    _on_database(lambda store: store.names.create_namespace(name), where)


@namespace.command("list")
@_database_options
def list_namespaces(**where: Any) -> None:
    """List namespaces."""
    for name in sorted(_on_database(lambda store: store.names.learn_namespaces(), where).values()):
        click.echo(name)


def _on_database(work: Callable[["Store"], Awaitable[_Result]], where: dict[str, Any]) -> _Result:
    from dataclasses import replace

    from hourhand.cli.supervisor import running_database_url
    from hourhand.config import load_config
    from hourhand.wiring import open_store, require_migrated

    home = where["home"] and Path(where["home"])
    flags = {"home": home, "database.url": where["database"], "database.schema": where["schema"]}
    config = load_config(flags={key: value for key, value in flags.items() if value is not None})

    async def run() -> _Result:
        url = await running_database_url(config)
        chosen = replace(config, database=replace(config.database, url=url))
        await require_migrated(chosen)
        async with open_store(chosen, "access") as store:
            return await work(store)

    return asyncio.run(run())
