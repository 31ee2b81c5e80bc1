"""Limits by control groups of version 2, for real, each on machines where that tree has the controller."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from hourhand.job_kinds import program_host
from hourhand.job_kinds.cgroups import CONTROLLERS, Trees, _delegated, _own_groups
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.model.usage import Level

OK = Succeeded({"exit_code": 0})
MB = 10**6
BOMB = """
import os
refused = 0
while refused < 500:
    try:
        os.fork()
    except OSError:
        refused += 1
os._exit(3)
"""


def offered():
    """The controllers that groups of version 2 can have below ours, and where."""
    if os.geteuid() != 0:
        return None, set()
    own = dict(_own_groups(Path("/proc/self"))).get("unified")
    if own is None:
        return None, set()
    for base in (own, os.path.dirname(own)):
        try:
            has = set(Path(base, "cgroup.controllers").read_text().split()) & set(CONTROLLERS)
            if has and _delegated(own, has) == base:
                return base, has
        except OSError:
            continue
    return None, set()


BASE, HAS = offered()


@pytest.fixture
async def kind(monkeypatch):
    trees = Trees(Level.CGROUP2, BASE, dict.fromkeys(sorted(HAS), BASE))
    monkeypatch.setattr(program_host, "find_trees", lambda: trees)
    kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.3)))
    await kind.open()
    yield kind
    bases = kind._programs._host.groups.bases
    await kind.close()
    assert [base for base in bases if os.path.exists(base)] == []


def needs(controller):
    lacking = {controller, "pids"} - HAS
    reason = f"the tree of version 2 has no controller {' and '.join(sorted(lacking))} for us here"
    return pytest.mark.skipif(bool(lacking), reason=reason)


def python(script):
    return {"argv": ["/usr/bin/env", "python3", "-c", script]}


@needs("pids")
async def test_processes_are_limited_and_all_are_killed_at_once(kind, make_task, alive):
    bomb = make_task(python(BOMB))
    bomb.task.resources = Resources(pids=40)
    outcome = await kind.run(bomb.task)
    assert isinstance(outcome, Failed)
    assert "resources.pids" in outcome.error
    assert bomb.task.usage.level is Level.CGROUP2
    daemon = make_task({"argv": ["sh", "-c", "setsid env -i sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"]})
    assert await kind.run(daemon.task) == OK
    assert not alive(int(daemon.of("stdout")[0]))


@needs("cpu")
async def test_processor_time_is_limited(kind, make_task):
    spin = make_task(python("import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"))
    spin.task.resources = Resources(cpu=0.1)
    began = time.monotonic()
    assert await kind.run(spin.task) == OK
    assert spin.task.usage.cpu_seconds < 0.1 * (time.monotonic() - began) + 0.3


@needs("cpu")
async def test_processor_time_is_not_limited_for_the_next_attempt_in_the_same_group(kind, make_task, until):
    limits, groups = set(), []
    for at in range(12):  # folders, and with them groups, come again after a while
        logged = make_task({"argv": ["sh", "-c", "cat /proc/self/cgroup; sleep 0.2"]})
        logged.task.resources = Resources(cpu=0.5) if at % 2 else None
        running = asyncio.create_task(kind.run(logged.task))
        await until(lambda logged=logged: logged.of("stdout"))
        [group] = [line[len("0::") :] for line in logged.of("stdout") if line.startswith("0::")]
        limits.add((at % 2, Path(f"{BASE}/{'/'.join(group.split('/')[-2:])}/cpu.max").read_text().strip()))
        groups.append(group)
        assert await running == OK
    assert limits == {(0, "max 100000"), (1, "50000 100000")}
    assert len(set(groups)) < len(groups)


@needs("memory")
async def test_memory_is_limited_for_all_processes_together(kind, make_task):
    script = "import os,time\nfor _ in range(4): os.fork()\nx = bytearray(20_000_000); time.sleep(20)"
    hog = make_task(python(script))
    hog.task.resources = Resources(memory=64 * MB)
    outcome = await kind.run(hog.task)
    assert outcome.reason is Reason.MEMORY_LIMIT
    assert hog.task.usage.memory_bytes_peak <= 65 * MB
