"""Programs for the tests of containment, and looks at what is left of them."""

import os
from pathlib import Path
from typing import Final

import pytest

from hourhand.job_kinds.cgroups import PREFIX, find_trees
from hourhand.model.outcome import Succeeded
from hourhand.model.usage import Level

OK: Final = Succeeded({"exit_code": 0})
MB: Final = 10**6
NEEDS: Final = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user, namespaces, control groups"),
    pytest.mark.skipif(find_trees().level is Level.RLIMITS, reason="needs control groups"),
]


def shell(script):
    return {"argv": ["sh", "-c", script]}


def python(script, *arguments):
    return {"argv": ["/usr/bin/env", "python3", "-c", script, *map(str, arguments)]}


async def unharmed(kind, make_task):
    """Whether a neighbour runs as ever."""
    return await kind.run(make_task({"argv": ["true"]}).task) == OK


def launcher_in(lines):
    return next(int(line.split()[1]) for line in lines if line.startswith(b"launcher"))


def processes_of(task):
    mark = f"HOURHAND_RUN_ID={task.run_id}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def groups_of(room, inner=False):
    own = PREFIX + room.rpartition("-")[2]
    pattern = f"{own}/*/" if inner else own
    return [path for root in find_trees().roots for path in Path(root).glob(pattern) if path.is_dir()]


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
