"""`--script FILE`: what a file on this machine becomes in the payload of a script job."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

_SHEBANG: Final = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?([A-Za-z]+)")
_PROGRAMS: Final = {"python": "python", "rscript": "r", "nodejs": "node", "dash": "sh"}


def script_values(path: str, language: str | None, words: Sequence[str] | None) -> dict[str, Any]:
    """The payload: source, language, and the words after -- as arguments."""
    from hourhand.cli.job_fields import read_text
    from hourhand.model.templates import literally

    source = read_text(path)
    spoken = language or guess_language(path, source)
    if spoken is None:
        message = f"{path} says neither by its suffix nor by a first line #!… what it is written in; say --language"
        raise click.UsageError(message)
    values: dict[str, Any] = {"source": literally(source), "language": spoken}
    return values | ({"args": list(words)} if words else {})


def guess_language(path: str, source: str) -> str | None:
    """By the suffix, else by the program that the first line names."""
    from hourhand.job_kinds.script_payload import LANGUAGE_BY_SUFFIX

    by_suffix = LANGUAGE_BY_SUFFIX.get(Path(path).suffix.lower())
    first = _SHEBANG.match(source.partition("\n")[0])
    if by_suffix is not None or first is None:
        return by_suffix
    program = first[1].lower()
    return _PROGRAMS.get(program, program)
