"""Which languages an executor can run: interpreters that are there, and that the user of jobs may start.

Looked for once, when the executor opens. One that only root can reach (in a home folder, say) does not count: it would
be offered and then fail every run.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from hourhand.job_kinds.work_folders import Account

USUAL: Final[Mapping[str, Sequence[str]]] = {
    "bash": ("bash",),
    "sh": ("sh",),
    "python": ("python3", "-u"),  # without -u its lines reach the log only when it ends
    "node": ("node",),
    "perl": ("perl",),
    "ruby": ("ruby",),
    "php": ("php",),
    "r": ("Rscript",),
}
SUFFIXES: Final[Mapping[str, str]] = {
    "bash": ".sh",
    "sh": ".sh",
    "python": ".py",
    "node": ".js",
    "perl": ".pl",
    "ruby": ".rb",
    "php": ".php",
    "r": ".R",
}
"""What the file of a source is called, for the sake of error messages that name it."""


def find_interpreters(
    further: Mapping[str, Sequence[str]], path: str, account: Account | None
) -> dict[str, tuple[str, ...]]:
    """For each language that can be run, the words that its command begins with; the program by its full path."""
    found = {}
    for language, words in {**USUAL, **further}.items():
        program = find_program(words[0], path, account)
        if program is not None:
            found[language] = (program, *words[1:])
    return found


def find_program(name: str, path: str, account: Account | None) -> str | None:
    """The full path of a program that the account may start; None when there is none."""
    places = [Path(name)] if "/" in name else [Path(folder) / name for folder in path.split(os.pathsep) if folder]
    return next((str(place.absolute()) for place in places if _may_start(place, account)), None)


def _may_start(place: Path, account: Account | None) -> bool:
    try:
        real = place.resolve(strict=True)
        if not real.is_file():
            return False
        if account is None:
            return os.access(place, os.X_OK)
        ways = [real, *real.parents, *place.absolute().parents]
        return all(_may_enter(way.stat(), account) for way in ways)
    except (OSError, RuntimeError):  # not there, not readable, or links that lead in a circle
        return False


def _may_enter(facts: os.stat_result, account: Account) -> bool:
    """Whether the account has the right x, by the modes alone: it has no further groups."""
    if facts.st_uid == account.user_id:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid == account.group_id:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
