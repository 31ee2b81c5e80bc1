"""Puts data on stdout in the format asked for, and messages on stderr."""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from hourhand.cli.session import output_format

_STEERING: Final = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Colours, and everything else that steers a terminal."""


def show(data: Any, table: Callable[[], object]) -> None:
    """Prints `data` (views, lists and dicts of them) as JSON or YAML, or calls `table` to print it for people."""
    match output_format():
        case "json":
            click.echo(json.dumps(plain(data), indent=2, ensure_ascii=False))
        case "yaml":
            from hourhand.cli.yaml_text import yaml_text

            click.echo(yaml_text(plain(data)), nl=False)
        case _:
            table()


def plain(data: Any) -> Any:
    """Dicts, lists, strings and numbers only; times as RFC 3339 in UTC."""
    import msgspec

    return msgspec.to_builtins(data)


def say(message: str) -> None:
    """A message for the person at the terminal; never data."""
    from hourhand.cli.exits import printable

    click.echo(printable(message), err=True)


def log_text(text: str) -> str:
    """A line of a log. To a terminal, colours may pass but nothing that moves, clears or reports."""
    if not sys.stdout.isatty():
        return text
    return _STEERING.sub(lambda found: found[0] if found[0].endswith("m") and len(found[0]) > 1 else "", text)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
