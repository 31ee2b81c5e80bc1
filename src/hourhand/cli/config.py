"""`hourhand config`: whether the configuration is right, and where each value comes from."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hourhand.cli.session import FORMATS, output_format

if TYPE_CHECKING:
    from hourhand.config import Config, Setting


@click.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML).")
@click.option("--home", type=click.Path(file_okay=False), help="Data folder; .hourhand by default (HOURHAND_HOME).")
def check(config_file: str | None, home: str | None) -> None:
    """Tell every fault of file and environment; exit with 78 if there is one."""
    _load(config_file, home)
    click.echo("configuration is right")


@config.command("show")
@click.option("--origin", is_flag=True, help="Also show where each value comes from.")
@click.option("--config", "config_file", type=click.Path(dir_okay=False), help="Configuration file (TOML).")
@click.option("--home", type=click.Path(file_okay=False), help="Data folder; .hourhand by default (HOURHAND_HOME).")
@click.option("-o", "--output", type=click.Choice(FORMATS), help="How data is printed; table by default.")
def show_(origin: bool, config_file: str | None, home: str | None, output: str | None) -> None:
    """Show every key and its value; passwords are masked."""
    from hourhand.config import origins

    settings = origins(_load(config_file, home))
    match output or output_format():
        case "json":
            click.echo(json.dumps(_data(settings, origin), indent=2, ensure_ascii=False))
        case "yaml":
            from hourhand.cli.yaml_text import yaml_text

            click.echo(yaml_text(_data(settings, origin)), nl=False)
        case _:
            _print_table(settings, origin)


def _load(config_file: str | None, home: str | None) -> "Config":
    from hourhand.config import load_config

    return load_config(Path(config_file) if config_file else None, flags={"home": home})


def _data(settings: "list[Setting]", origin: bool) -> dict[str, Any]:
    """By key: the value, or value and origin."""
    values = {each.key: str(each.value) if isinstance(each.value, Path) else each.value for each in settings}
    values = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    return {
        each.key: {"value": values[each.key], "origin": each.origin} if origin else values[each.key]
        for each in settings
    }


def _print_table(settings: "list[Setting]", origin: bool) -> None:
    """Plain columns: they can be cut by other programs, and nothing is left out on a narrow terminal."""
    from hourhand.cli.exits import printable

    rows = [("KEY", "VALUE", "ORIGIN"), *((each.key, _text(each.value), each.origin) for each in settings)]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for key, value, place in rows:
        line = f"{key:<{widths[0]}}  {value:<{widths[1]}}  {place}" if origin else f"{key:<{widths[0]}}  {value}"
        click.echo(printable(line.rstrip()))


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
