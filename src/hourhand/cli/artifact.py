"""`hourhand artifact`: code that was uploaded, for script jobs to run."""

from typing import TYPE_CHECKING

import click

from hourhand.cli.asking import make_sure
from hourhand.cli.lazy import LazyGroup
from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options

if TYPE_CHECKING:
    from hourhand.client.artifacts import ArtifactView

OTHER_WORDS = {"ls": "list", "get": "show", "put": "upload", "push": "upload", "pull": "download", "rm": "delete"}


@click.group(cls=LazyGroup, other_words=OTHER_WORDS)
@session_options
def artifact() -> None:
    """Upload code for script jobs, see what is there, delete it.

    An artifact is meant by its name (what was last uploaded under it), by sha256:… or by name@sha256:…
    """


@artifact.command()
@click.argument("file")
@click.option("--name", metavar="NAME", help="Another name than the file's.")
@click.option("--sign-with", metavar="KEYFILE", help="Vouch for it by this private key, which `make-key` has made.")
@session_options
def upload(file: str, name: str | None, sign_with: str | None) -> None:
    """Upload a file. One named .zip, .tar, .tar.gz or .tgz is unpacked before it runs. Prints NAME@DIGEST."""
    from hourhand.cli.exits import NoInput
    from hourhand.cli.script_files import artifact_name

    with connected() as client:
        try:
            kept = client.upload_artifact(name or artifact_name(file), file, sign_with=sign_with)
        except OSError as error:
            what = error.filename or file
            raise NoInput(f"{what} cannot be read ({(error.strerror or str(error)).lower()})") from None
    say(f"artifact {kept.name} is uploaded ({_size(kept)})")
    show(kept, lambda: click.echo(f"{kept.name}@{kept.digest}"))


@artifact.command("make-key")
@click.argument("file")
def make_key(file: str) -> None:
    """Make a key to sign artifacts by. The private half goes into a new FILE; the public one is printed, for
    kinds.artifact_keys."""
    from pathlib import Path

    from hourhand.runtime.signing import make_signing_key

    try:
        public = make_signing_key(Path(file))
    except OSError as error:
        raise click.UsageError(f"{file} cannot be made ({(error.strerror or str(error)).lower()})") from None
    say(f"{file} holds a new private key; who has it can sign code that executors trust")
    click.echo(public)


@artifact.command("list")
@click.option("--name", metavar="NAME", help="Only those of this name.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@session_options
def list_(name: str | None, limit: int) -> None:
    """List what was uploaded, newest first."""
    with connected() as client:
        found = client.list_artifacts_page(name=name, limit=limit).artifacts

    def table() -> None:
        from hourhand.cli.layout import Column, draw_table

        columns = [Column("NAME"), Column("FORM"), Column("SIZE", kind="number"), Column("DIGEST", 100)]
        columns += [Column("UPLOADED", 110, "time"), Column("BY", 120)]
        rows = [
            (each.name, each.form, each.size, each.digest[:19] + "…", each.uploaded_at, each.uploaded_by)
            for each in found
        ]
        draw_table(columns, rows) if found else say("no artifacts")

    show(found, table)


@artifact.command("show")
@click.argument("artifact")
@session_options
def show_(artifact: str) -> None:
    """Show one artifact."""
    with connected() as client:
        found = client.get_artifact(artifact)

    def table() -> None:
        from hourhand.cli.layout import draw_details
        from hourhand.cli.times import local_time

        when = local_time(found.uploaded_at) if found.uploaded_at is not None else ""
        draw_details(
            [
                ("artifact", found.name),
                ("digest", found.digest),
                ("form", found.form),
                ("size", _size(found)),
                ("uploaded", f"{when} by {found.uploaded_by}"),
                ("signed", f"by the key {found.signed_by}" if found.signed_by else "no"),
            ]
        )

    show(found, table)


@artifact.command()
@click.argument("artifact")
@click.option("--to", metavar="FILE", help="Where to write it; without it a file of the artifact's name here.")
@session_options
def download(artifact: str, to: str | None) -> None:
    """Download an artifact into a file, and compare its digest."""
    with connected() as client:
        target = to or client.get_artifact(artifact).name
        client.download_artifact(artifact, target)
    say(f"artifact {artifact} is in {target}")


@artifact.command()
@click.argument("artifact")
@click.option("--yes", is_flag=True, help="Do not ask.")
@session_options
def delete(artifact: str, yes: bool) -> None:
    """Delete an artifact that no job uses any more."""
    make_sure(f"Delete artifact {artifact}?", yes)
    with connected() as client:
        gone = client.delete_artifact(artifact)
    say(f"artifact {gone.name}@{gone.digest} is deleted")


def _size(found: "ArtifactView") -> str:
    if found.entries is None:
        return f"{found.size} bytes"
    entries = "1 entry" if found.entries == 1 else f"{found.entries} entries"
    return f"{found.size} bytes, {entries}, {found.unpacked_bytes} bytes unpacked"
