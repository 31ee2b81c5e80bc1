"""Hands the values of secrets to a program: in its environment, or as files in its private folder.

Neither is seen in a list of processes, and both end with the attempt.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hourhand.job_kinds.programs import Program
from hourhand.model.secret_refs import SECRET_FILES_FIELD, file_variables, filled, secret_files
from hourhand.ports.job_kind import Task


def environment_of(task: Task) -> Mapping[str, str]:
    """The variables that the payload asks for, with the values of its secrets."""
    env: Mapping[str, str] = filled(task.payload, task.secrets).get("env", {})
    return env


def with_secret_files(program: Program, task: Task) -> Program:
    """The program with the files that the payload asks for, and a variable for each that says where it is."""
    if not task.secrets or SECRET_FILES_FIELD not in task.payload:
        return program
    files = secret_files(task.payload, task.secrets)
    variables = file_variables(task.payload)
    env = dict(program.env)

    def prepare(folder: Path) -> None:
        # First of all: what is put there later may hold links, and nothing must be written through one.
        for path, content in files.items():
            _write_private(folder, path, content)
        env.update({name: str(folder / path) for name, path in variables.items()})
        if program.prepare is not None:
            program.prepare(folder)

    return replace(program, env=env, prepare=prepare)


def _write_private(folder: Path, path: str, content: bytes) -> None:
    """For the owner of the folder alone, as the folders on the way to it."""
    owner = folder.stat()
    place = folder
    for part in Path(path).parts[:-1]:
        place = place / part
        if not place.exists():
            place.mkdir(mode=0o700)
            os.chown(place, owner.st_uid, owner.st_gid)
    descriptor = os.open(folder / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
