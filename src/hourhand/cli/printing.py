"""Puts data on stdout in the format asked for, and messages on stderr."""

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, Final

import click

from hourhand.cli.session import output_format

_STEERS: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What JSON leaves as it is, and a terminal obeys."""


def show(data: Any, table: Callable[[], object]) -> None:
    """Prints `data` (views, lists and dicts of them) as JSON or YAML, or calls `table` to print it for people."""
    match output_format():
        case "json":
            click.echo(json_text(plain(data)))
        case "yaml":
            from hourhand.cli.yaml_text import yaml_text

            click.echo(yaml_text(plain(data)), nl=False)
        case _:
            table()


def json_text(data: Any, indent: int | None = 2) -> str:
    """JSON with its letters as they are; those that would steer a terminal are escaped, also beyond what JSON asks."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return _STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def plain(data: Any) -> Any:
    """Dicts, lists, strings and numbers only; times as RFC 3339 in UTC."""
    import msgspec

    return msgspec.to_builtins(data)


def say(message: str) -> None:
    """A message for the person at the terminal; never data."""
    from hourhand.cli.exits import printable

    click.echo(printable(message), err=True)


def log_text(text: str, *, err: bool = False, color: bool | None = None) -> str:
    """A line of a log. To a terminal, colours may pass but nothing that moves, clears or reports; not even colours when
    `color` is False or the person has set NO_COLOR. What goes elsewhere is left as it was written, unless told so."""
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    if color is None:
        if not is_terminal:
            return text
        color = not os.environ.get("NO_COLOR")
    from hourhand.model.log import without_steering

    return without_steering(text, colours=color)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
