"""`hourhand run files` and `run download`: what runs have left."""

from pathlib import Path, PurePosixPath
from uuid import UUID

import click

from hourhand.cli.printing import say, show
from hourhand.cli.session import connected, session_options


@click.command()
@click.argument("run", type=click.UUID)
@click.option("--attempt", type=click.IntRange(1), help="What this attempt has left, instead of the last one.")
@session_options
def files(run: UUID, attempt: int | None) -> None:
    """List the files that a run has left."""
    with connected() as client:
        found = client.run_files(run, attempt=attempt)

    def table() -> None:
        from hourhand.cli.layout import Column, draw_table

        columns = [Column("NAME"), Column("SIZE", kind="number"), Column("DIGEST", 100)]
        rows = [(each.name, each.size, each.digest[:19] + "…") for each in found.files]
        draw_table(columns, rows) if rows else say("no files")

    show(found, table)


@click.command()
@click.argument("run", type=click.UUID)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--to", "folder", default=".", metavar="FOLDER", help="Where to write them; here by default.")
@click.option("--attempt", type=click.IntRange(1), help="What this attempt has left, instead of the last one.")
@click.option("--result", is_flag=True, help="The result instead, as RUN.json.")
@session_options
def download(run: UUID, names: tuple[str, ...], folder: str, attempt: int | None, result: bool) -> None:
    """Download files of a run, all of them without a name, and compare their digests."""
    if result and (names or attempt is not None):
        raise click.UsageError("--result goes without names and --attempt")
    with connected() as client:
        if result:
            target = _ready(Path(folder) / f"{run}.json")
            client.download_run_result(run, target)
            say(f"the result is in {target}")
            return
        wanted = names or tuple(each.name for each in client.run_files(run, attempt=attempt).files)
        if not wanted:
            say("no files")
        for name in wanted:
            target = _ready(_place(folder, name))
            client.download_run_file(run, name, target, attempt=attempt)
            say(f"{name} is in {target}")


def _place(folder: str, name: str) -> Path:
    """Below the folder, whatever a server says a file is called."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise click.UsageError(f"{name!r} is not the name of a file below a folder")
    return Path(folder, *parts)


def _ready(target: Path) -> Path:
    from hourhand.cli.exits import NoInput

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NoInput(f"{target.parent} cannot be made ({(error.strerror or str(error)).lower()})") from None
    return target
