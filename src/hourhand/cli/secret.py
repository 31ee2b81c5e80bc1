"""`hourhand secret`: values that jobs use and nobody sees again. A value is typed or piped in, never an argument."""

import sys
from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.asking import make_sure
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client.secrets import AuditView, GrantView, SecretView

OTHER_WORDS = {"ls": "list", "get": "show", "create": "set", "put": "set", "rm": "delete", "audit": "uses"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def secret() -> None:
    """Keep values that jobs use and nobody sees again: passwords, tokens, keys."""


@secret.command("list")
@session_options
def list_() -> None:
    """List the secrets of the namespace; never their values."""
    with connected() as client:
        found = client.secrets()

    def table() -> None:
        from hourhand.cli.layout import Column, draw_table

        columns = [Column("NAME"), Column("VERSION", kind="number"), Column("JOBS", kind="number"), Column("FOR", 100)]
        columns += [Column("WRITTEN", 110, "time"), Column("LAST USED", 120, "time")]
        rows = [
            (each.name, each.version, each.jobs, _grant_text(each.grant), each.updated_at, each.last_used_at)
            for each in found
        ]
        draw_table(columns, rows) if found else say("no secrets")

    show(found, table)


@secret.command("show")
@click.argument("name")
@session_options
def show_(name: str) -> None:
    """Show what is known of a secret; never its value."""
    with connected() as client:
        _show(client.get_secret(name))


@secret.command("set")
@click.argument("name")
@click.option("--description", metavar="TEXT")
@click.option("--binary", is_flag=True, help="Take what is piped in as it is, byte by byte, with its last line end.")
@click.option("--job", "jobs", metavar="NAME", multiple=True, help="Only jobs of this name or id may use it.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Only jobs of this kind may use it.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only jobs with this label may use it.")
@session_options
@click.pass_context
def set_(
    ctx: click.Context,
    name: str,
    description: str | None,
    binary: bool,
    jobs: tuple[str, ...],
    kinds: tuple[str, ...],
    labels: tuple[str, ...],
) -> None:
    """Write a value: typed without echo, or piped in (one line end at its end is taken off)."""
    from msgspec import UNSET

    grant: Any = _grant(ctx, jobs, kinds, labels) or UNSET
    value = _value(ctx, name, binary)
    with connected() as client:
        written = client.put_secret(name, value, description=description, grant=grant)
    for warning in written.warnings:
        say(f"warning: {warning}")
    say(f"secret {name} has version {written.version}")


@secret.command()
@click.argument("name")
@click.option("--job", "jobs", metavar="NAME", multiple=True, help="Jobs of this name or id.")
@click.option("--kind", "kinds", metavar="KIND", multiple=True, help="Jobs of this kind.")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True, help="Jobs with this label.")
@click.option("--everybody", is_flag=True, help="Every job of the namespace.")
@session_options
@click.pass_context
def grant(
    ctx: click.Context,
    name: str,
    jobs: tuple[str, ...],
    kinds: tuple[str, ...],
    labels: tuple[str, ...],
    everybody: bool,
) -> None:
    """Say which jobs may use a secret: those that fit all that is given, and from then on no others."""
    given = _grant(ctx, jobs, kinds, labels)
    if everybody == bool(given):
        raise click.UsageError("say --job, --kind, --label, or --everybody alone", ctx)
    with connected() as client:
        _show(client.change_secret(name, grant=given))


@secret.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also while jobs refer to it; their runs fail from then on.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session_options
def delete(name: str, force: bool, yes: bool) -> None:
    """Delete a secret that no job refers to."""
    make_sure(f"Delete secret {name}? Nobody can bring its value back.", yes)
    with connected() as client:
        client.delete_secret(name, force=force)
    say(f"secret {name} is deleted")


@secret.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 500), default=100, show_default=True, help="How many at most.")
@session_options
def uses(name: str, limit: int) -> None:
    """Show who has used and written a secret, the newest first."""
    with connected() as client:
        show_audit(client.audit(subject=f"secret/{name}", limit=limit))


@secret.command("make-key")
@click.argument("file", type=click.Path(dir_okay=False))
def make_key(file: str) -> None:
    """Make a new key file for secrets.key_file: the same one for every API and executor."""
    from pathlib import Path

    from hourhand.model.errors import BadConfiguration
    from hourhand.runtime.keyring import make_key_file

    try:
        make_key_file(Path(file))
    except FileExistsError:
        raise BadConfiguration([f"{file} is there already, and is not touched"]) from None
    say(f"{file} holds a new key; without it no secret can be read again, so keep a copy of it")


@secret.command("rotate-key")
@click.option("--no-new", is_flag=True, help="Make no new key: seal everything by the one that is first in the file.")
@click.option("--forget-old", is_flag=True, help="Afterwards take keys out of the file that nothing needs any more.")
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML).")
@click.option("--home", type=click.Path(file_okay=False), help="Data folder; .hourhand by default (HOURHAND_HOME).")
@click.option("--database", metavar="URL", help="The PostgreSQL in use, when it is not the embedded one.")
def rotate_key(no_new: bool, forget_old: bool, **given: str | None) -> None:
    """Make a new key and seal every secret by it. For who has the key file and the database; nodes need no restart."""
    import asyncio

    from hourhand.cli.secret_keys import rotate_keys

    asyncio.run(rotate_keys(given, not no_new, forget_old, say))


def show_audit(found: "list[AuditView]") -> None:
    def table() -> None:
        from hourhand.cli.layout import Column, draw_table

        columns = [Column("ID", 110, "number"), Column("AT", kind="time"), Column("ACTOR"), Column("ACTION")]
        columns += [Column("SUBJECT"), Column("DETAILS", 100)]
        rows = [(each.id, each.at, each.actor, each.action, each.subject, _details(each.details)) for each in found]
        draw_table(columns, rows) if found else say("nothing was noted")

    show(found, table)


def _details(details: dict[str, Any]) -> str:
    told = {name: value for name, value in details.items() if value is not None}
    if "grant" in details:
        import msgspec

        from hourhand.client.secrets import GrantView

        told["for"] = _grant_text(msgspec.convert(told.pop("grant", None), GrantView | None))
    return ", ".join(f"{name} {value}" for name, value in told.items())


def _value(ctx: click.Context, name: str, binary: bool) -> str | bytes:
    """What is typed or piped in. It goes nowhere but into the request."""
    if sys.stdin.isatty():
        if binary:
            raise click.UsageError("--binary reads what is piped in: hourhand secret set NAME --binary < FILE", ctx)
        typed: str = click.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    piped = sys.stdin.buffer.read(1 << 20)
    if not piped:
        raise click.UsageError("nothing was piped in: hourhand secret set NAME < FILE", ctx)
    if binary:
        return piped
    try:
        text = piped.decode()
    except UnicodeDecodeError:
        raise click.UsageError("what was piped in is no text in UTF-8; say --binary", ctx) from None
    if "\0" in text:
        raise click.UsageError("what was piped in holds a NUL character; say --binary", ctx)
    return text.removesuffix("\n").removesuffix("\r")


def _grant(
    ctx: click.Context, jobs: tuple[str, ...], kinds: tuple[str, ...], labels: tuple[str, ...]
) -> dict[str, Any] | None:
    given: dict[str, Any] = {}
    if jobs:
        given["jobs"] = list(jobs)
    if kinds:
        given["kinds"] = list(kinds)
    for text in labels:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} has no '='; write KEY=VALUE", ctx, param_hint="--label")
        given.setdefault("labels", {})[key] = value
    return given or None


def _grant_text(grant: "GrantView | None") -> str:
    if grant is None:
        return "every job"
    labels = [f"{key}={value}" for key, value in (grant.labels or {}).items()]
    parts = {"jobs": grant.jobs, "kinds": grant.kinds, "labels": labels or None}
    return "; ".join(f"{noun} {', '.join(words)}" for noun, words in parts.items() if words is not None)


def _show(found: "SecretView") -> None:
    def table() -> None:
        from hourhand.cli.layout import draw_details
        from hourhand.cli.times import local_time

        written = f"{found.version}, written {local_time(found.updated_at)} by {found.updated_by}"
        used = f"{local_time(found.last_used_at)}, run {found.last_used_run}" if found.last_used_at else "never"
        draw_details(
            [
                ("secret", found.name),
                ("description", found.description),
                ("for", _grant_text(found.grant)),
                ("referred to by", f"{found.jobs} job{'' if found.jobs == 1 else 's'}"),
                ("version", written if found.updated_at else str(found.version)),
                ("last used", used),
            ]
        )

    show(found, table)
