"""Programs that would stay, for real: nothing of them outlives their attempt, launcher or executor (S11)."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from contained_programs import NEEDS, OK, groups_of, launcher_in, processes_of, python, shell, unharmed

from hourhand.job_kinds.cgroups import PREFIX, find_trees, remove_groups
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.outcome import Lost

pytestmark = NEEDS


# It forks twice, leaves its session, wipes its environment (by becoming another program) and ignores SIGTERM.
HIDDEN_DAEMON: Final = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.chdir("/")
        for fd in (0, 1, 2):
            os.close(fd)
        code = "import os,sys,time; open(sys.argv[1],'w').write(str(os.getpid())); time.sleep(1000)"
        os.execve(sys.executable, ["python3", "-c", code, sys.argv[1]], {})
    os._exit(0)
os.wait()
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
if sys.argv[2] == "stay":
    time.sleep(1000)
"""


async def test_a_daemon_that_hides_does_not_outlive_its_attempt(kind, make_task, alive, shared):
    """Complaint 15: children are left."""
    assert await kind.run(make_task(python(HIDDEN_DAEMON, shared / "pid", "leave")).task) == OK
    assert not alive(int((shared / "pid").read_text()))


async def test_a_daemon_that_hides_does_not_outlive_a_cancelled_run(kind, make_task, alive, until, shared):
    """Complaint 15, by cancel: gone when the kind says so, not some time later."""
    running = asyncio.create_task(kind.run(make_task(python(HIDDEN_DAEMON, shared / "pid", "stay")).task))
    await until(lambda: (shared / "pid").exists() and (shared / "pid").read_text())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(int((shared / "pid").read_text()))


# Programs that shall not be looked into by a debugger do this: whoever is their parent becomes one.
TRACED: Final = """
import ctypes, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("heard", flush=True))
assert ctypes.CDLL(None).ptrace(0, 0, 0, 0) == 0
print("traced", flush=True)
match sys.argv[1]:
    case "handled": os.kill(os.getpid(), signal.SIGUSR1)
    case "deadly": os.kill(os.getpid(), signal.SIGUSR2)
    case "execute": os.execvp("true", ["true"])
    case "stop": os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(("what", "error"), [("handled", ""), ("execute", ""), ("deadly", "killed by SIGUSR2")])
async def test_a_program_that_wants_to_be_traced_ends_as_any_other(kind, make_task, what, error):
    logged = make_task(python(TRACED, what))
    async with asyncio.timeout(30):
        outcome = await kind.run(logged.task)
    assert getattr(outcome, "error", "") == error
    assert logged.of("stdout") == ["traced", *(["heard"] if what == "handled" else [])]


async def test_a_program_that_wants_to_be_traced_and_stops_can_be_cancelled(kind, make_task, until):
    logged = make_task(python(TRACED, "stop"))
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    running.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await running
    assert processes_of(logged.task) == []


async def test_no_groups_and_folders_are_left(open_kind, make_task, shared):
    kind = await open_kind(work_root=str(shared / "work"))
    await kind.run(make_task(shell("echo x > file; sleep 100 &")).task)
    await kind.run(make_task({"argv": ["no-such-program"]}).task)
    [room] = (shared / "work").iterdir()
    assert list((room / ".stage").iterdir()) == []
    assert groups_of(room.name, inner=True) == []
    assert groups_of(room.name) != []
    await kind.close()
    assert groups_of(room.name) == []


async def test_groups_that_are_made_in_those_of_an_attempt_do_not_keep_it_from_ending(
    kind, make_task, alive, until, shared
):
    logged = make_task(shell(f"sleep 1000 & echo $!; while [ ! -e {shared}/go ]; do sleep 0.01; done"))
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    room = kind._programs._host.folders.room.name
    made = [group / "a" / "b" for group in groups_of(room, inner=True)]
    for group in made:  # as somebody who was handed his groups could: here nobody else can
        group.mkdir(parents=True)
        (group / "cgroup.procs").write_text(logged.of("stdout")[0])
    assert made
    (shared / "go").touch()
    async with asyncio.timeout(60):
        assert await running == OK
    assert not alive(int(logged.of("stdout")[0]))
    assert groups_of(room, inner=True) == []


# --- the launcher dies, the executor dies ---------------------------------------------------------------------


async def test_programs_of_a_launcher_that_is_killed_are_given_back_and_the_next_ones_run(
    kind, make_task, alive, until, shared
):
    running = asyncio.create_task(kind.run(make_task(python(HIDDEN_DAEMON, shared / "pid", "stay")).task))
    await until(lambda: (shared / "pid").exists() and (shared / "pid").read_text())
    launcher = kind._programs._host.launcher._process
    launcher.kill()
    assert await running == Lost()
    assert not alive(int((shared / "pid").read_text()))
    assert await unharmed(kind, make_task)
    assert kind._programs._host.launcher._process.pid != launcher.pid


EXECUTOR: Final = """
import asyncio, sys
from datetime import UTC, datetime
from uuid import uuid4
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.ports.job_kind import Task

async def main():
    shared = (sys.argv[5],)
    kind = CommandKind(ProgramRunner(ProgramSettings(work_root=sys.argv[1], containment=sys.argv[2], shared=shared)))
    await kind.open()
    payload = {"argv": ["/usr/bin/env", "python3", "-c", sys.argv[3], sys.argv[4], "stay"]}
    task = Task(uuid4(), uuid4(), "default", "x", "command", payload, 1, 1, datetime.now(UTC), lambda *_: None)
    print("launcher", kind._programs._host.launcher._process.pid, flush=True)
    await kind.run(task)

asyncio.run(main())
"""


@pytest.mark.parametrize("containment", ["full", "none"])
async def test_everything_ends_with_an_executor_that_is_killed(shared, alive, until, make_task, containment):
    pid_file = shared / "pid"
    arguments = [str(shared / "work"), containment, HIDDEN_DAEMON, str(pid_file), str(shared)]
    with subprocess.Popen([sys.executable, "-c", EXECUTOR, *arguments], stdout=subprocess.PIPE) as executor:
        launcher = await asyncio.to_thread(launcher_in, executor.stdout)
        await until(lambda: pid_file.exists() and pid_file.read_text())
        executor.kill()
    await until(lambda: not alive(int(pid_file.read_text())))
    await until(lambda: not alive(launcher))
    [room] = (shared / "work").iterdir()
    assert groups_of(room.name, inner=True) == []
    next_one = CommandKind(ProgramRunner(ProgramSettings(work_root=str(shared / "work"))))
    await next_one.open()
    assert not room.exists()
    assert groups_of(room.name) == [], "the next executor clears away what the dead one has left"
    await next_one.close()


async def test_groups_of_a_dead_executor_are_removed_also_when_its_room_is_gone(shared, until, alive):
    arguments = [str(shared / "work"), "full", HIDDEN_DAEMON, str(shared / "pid"), str(shared)]
    with subprocess.Popen([sys.executable, "-c", EXECUTOR, *arguments], stdout=subprocess.PIPE) as executor:
        launcher = await asyncio.to_thread(launcher_in, executor.stdout)
        await until(lambda: (shared / "pid").exists() and (shared / "pid").read_text())
        executor.kill()
    await until(lambda: not alive(launcher))
    [room] = (shared / "work").iterdir()
    assert groups_of(room.name) != []
    shutil.rmtree(room)
    next_one = CommandKind(ProgramRunner(ProgramSettings(work_root=str(shared / "other"))))
    await next_one.open()
    assert groups_of(room.name) == []
    await next_one.close()


async def test_groups_of_a_living_executor_are_left_alone_although_they_are_empty(open_kind, make_task):
    first = await open_kind()
    room = first._programs._host.folders.room
    before = groups_of(room.name)
    await open_kind()
    assert groups_of(room.name) == before != []
    assert await unharmed(first, make_task)


async def test_a_group_in_which_somebody_lives_is_left_alone(open_kind):
    bases = [Path(root, f"{PREFIX}test{os.getpid()}") for root in find_trees().roots]
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        for base in bases:
            base.mkdir()
            (base / "inner").mkdir()
            (base / "inner" / "cgroup.procs").write_text(str(stranger.pid))
        await open_kind()
        assert stranger.poll() is None
        assert all(base.exists() for base in bases)
        stranger.kill()
        stranger.wait()
        await open_kind()
        assert [base for base in bases if base.exists()] == []
    finally:
        stranger.kill()
        stranger.wait()
        remove_groups(map(str, bases))
