"""What a contained program can see and reach: its own, and nothing of others (security test S11)."""

import asyncio
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from contained_programs import MB, NEEDS, OK, processes_of, python, shell, unharmed

from hourhand.job_kinds.user_ids import COUNT, FIRST
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason

pytestmark = NEEDS


async def test_a_program_cannot_see_the_home_of_the_executor(kind, make_task, home):
    for what in ("token", "postgres.password", "hourhand.toml"):
        logged = make_task(shell(f"cat {home}/{what}"))
        outcome = await kind.run(logged.task)
        assert outcome.reason is Reason.EXIT_CODE
        assert logged.of("stdout") == []
        assert "No such file" in outcome.error
    assert (home / "token").read_text() == "hush"


async def test_a_program_cannot_reach_the_socket_of_the_database(kind, make_task, home):
    connect = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1]); print('in')"
    logged = make_task(python(connect, home / "socket" / "s"))
    outcome = await kind.run(logged.task)
    assert outcome.reason is Reason.EXIT_CODE
    assert "FileNotFoundError" in outcome.error
    assert logged.of("stdout") == []


async def test_even_root_cannot_see_them_contained(open_kind, make_task, home):
    kind = await open_kind(run_as=None)
    logged = make_task(shell(f"id -u; cat {home}/token"))
    outcome = await kind.run(logged.task)
    assert outcome.reason is Reason.EXIT_CODE
    assert logged.of("stdout") == ["0"]


async def test_a_program_cannot_see_the_folder_of_another_run(kind, make_task, until):
    other = make_task(shell("echo hush > secret; pwd; sleep 1000"))
    running = asyncio.create_task(kind.run(other.task))
    await until(lambda: other.of("stdout"))
    folder = other.of("stdout")[0]
    logged = make_task(
        shell(f"cat {folder}/secret; ls {folder}; ls $HOME; touch mine; echo $(ls $HOME) > mine; cat mine")
    )
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["mine"]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_shared_memory_is_the_attempts_own_and_goes_with_it(kind, make_task, until):
    name = f"/dev/shm/hourhand-test-{os.getpid()}"
    first = make_task(shell(f"echo hush > {name}; cat {name}; sleep 1000"))
    running = asyncio.create_task(kind.run(first.task))
    await until(lambda: first.of("stdout"))
    second = make_task(shell(f"cat {name}; ls -A /dev/shm"))
    await kind.run(second.task)
    assert second.of("stdout") == []
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not os.path.exists(name)


# Makes a segment, a set of semaphores, a queue of each sort, or says which of them it finds by their names.
SYSTEM_V: Final = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
key, create = int(sys.argv[1]), 0o1000 * (sys.argv[2] == "make")
found = [libc.shmget(key, 4096, create | 0o666), libc.semget(key, 1, create | 0o666), libc.msgget(key, create | 0o666)]
queue = b"/hourhand-%d" % key
found.append(libc.mq_open(queue, 0o100 * bool(create) | 2, 0o666, None))
print(*[int(each >= 0) for each in found], len(open("/proc/sysvipc/shm").readlines()) - 1, flush=True)
if create:
    time.sleep(1000)
"""


async def test_system_v_objects_and_message_queues_are_the_attempts_own_and_go_with_it(kind, make_task, until):
    if "ipc" not in kind._programs._host.launcher.abilities:
        pytest.skip("this kernel has no namespaces for them")
    key = 0x48000000 + os.getpid()
    first = make_task(python(SYSTEM_V, key, "make"))
    running = asyncio.create_task(kind.run(first.task))
    await until(lambda: first.of("stdout"))
    assert first.of("stdout")[0] == "1 1 1 1 1"
    namespaces = {os.readlink(f"/proc/{pid}/ns/ipc") for pid in processes_of(first.task)}
    assert namespaces
    assert os.readlink("/proc/self/ns/ipc") not in namespaces
    assert await found_by_another(kind, make_task, key) == "0 0 0 0 0"
    assert str(key) not in Path("/proc/sysvipc/shm").read_text()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await found_by_another(kind, make_task, key) == "0 0 0 0 0"
    assert str(key) not in Path("/proc/sysvipc/shm").read_text()


async def found_by_another(kind, make_task, key):
    second = make_task(python(SYSTEM_V, key, "look"))
    assert await kind.run(second.task) == OK
    return second.of("stdout")[0]


@pytest.mark.skipif(not os.path.ismount("/dev/mqueue"), reason="this machine does not show message queues as files")
async def test_message_queues_of_others_are_not_seen_as_files_either(kind, make_task):
    if "ipc" not in kind._programs._host.launcher.abilities:
        pytest.skip("this kernel has no namespaces for them")
    ours = Path(f"/dev/mqueue/hourhand-test-{os.getpid()}")
    ours.touch(0o666)
    try:
        logged = make_task(shell("ls /dev/mqueue; touch /dev/mqueue/theirs; ls /dev/mqueue"))
        assert await kind.run(logged.task) == OK
        assert logged.of("stdout") == ["theirs"]
        assert not Path("/dev/mqueue/theirs").exists()
    finally:
        ours.unlink()


# An executor that was given a session keyring, as by a login, and has a key in it. Its programs add one, and seek both:
# by name in all that they possess, by number, and in the keyrings of their session and of their user.
KEYED_EXECUTOR: Final = """
import asyncio, ctypes, sys
from datetime import UTC, datetime
from uuid import uuid4
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.ports.job_kind import Task

ADD = "print(libc.syscall(248, b'user', name, b'hush', 4, -3)); print(libc.syscall(249, b'user', name, None, 0) > 0)"
SEEK = (
    "found = [libc.syscall(249, b'user', name, None, 0), libc.syscall(250, 11, int(sys.argv[2]), bytes(99), 99)]; "
    "found += [libc.syscall(250, 10, ring, b'user', name, 0) for ring in (-3, -4, -5)]; print([n > 0 for n in found])"
)

async def main(run_as):
    kind = CommandKind(ProgramRunner(ProgramSettings(run_as=run_as)))
    await kind.open()

    async def run(what, name, number=0):
        said = []
        code = "import ctypes, sys; libc = ctypes.CDLL(None); name = sys.argv[1].encode(); " + what
        payload = {"argv": ["/usr/bin/env", "python3", "-c", code, name, str(number)]}
        log = lambda _, line: said.append(line)
        await kind.run(Task(uuid4(), uuid4(), "default", "x", "command", payload, 1, 1, datetime.now(UTC), log))
        return said

    number, is_found = await run(ADD, "first")
    print("keyring" in kind._programs._host.launcher.abilities, int(number) > 0, is_found)
    print(*await run(SEEK, "first", number))
    print(*await run(SEEK, "own", own))
    await kind.close()

libc = ctypes.CDLL(None)
libc.syscall(250, 1, None)
own = libc.syscall(248, b"user", b"own", b"hush", 4, -3)
if own > 0:
    asyncio.run(main(None if sys.argv[1] == "root" else sys.argv[1]))
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the calls of the test have their numbers there")
@pytest.mark.parametrize("run_as", ["nobody", "root"])
def test_keys_of_other_attempts_and_of_the_executor_are_not_found(run_as):
    command = [sys.executable, "-c", KEYED_EXECUTOR, run_as]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    if not said:
        pytest.skip("this kernel has no keyrings, or does not let us have them")
    assert said[-3:] == ["True True True", str([False] * 5), str([False] * 5)]


async def test_a_program_cannot_see_signal_or_look_into_processes_outside(kind, make_task):
    ours = os.getpid()
    script = (
        f"cat /proc/{ours}/environ; kill -0 {ours} && echo reached; ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline"
    )
    logged = make_task(shell(script))
    await kind.run(logged.task)
    [seen] = logged.of("stdout")
    assert 1 <= int(seen) <= 5, "itself, and the shell that started it"


async def test_neighbours_cannot_signal_each_other(kind, make_task, until):
    first = make_task(shell("echo $$; sleep 1000"))
    running = asyncio.create_task(kind.run(first.task))
    await until(lambda: first.of("stdout"))
    pid = first.of("stdout")[0]
    second = make_task(shell(f"kill -9 {pid} && echo killed; kill -9 -1; echo here"))
    await kind.run(second.task)
    assert "killed" not in second.of("stdout")
    assert not running.done(), "also not by a signal to everybody"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_set_user_id_program_gives_no_rights(kind, make_task, shared):
    probe = shared / "probe"
    shutil.copy("/usr/bin/id", probe)
    probe.chmod(0o4755)
    assert probe.stat().st_mode & stat.S_ISUID
    logged = make_task({"argv": [str(probe), "-u"]})
    assert await kind.run(logged.task) == OK
    [user] = map(int, logged.of("stdout"))
    assert user in range(FIRST, FIRST + COUNT)
    logged = make_task(shell("grep NoNewPrivs /proc/self/status; grep CapEff /proc/self/status"))
    assert await kind.run(logged.task) == OK
    assert [line.split()[1] for line in logged.of("stdout")] == ["1", "0000000000000000"]


async def test_a_program_inherits_no_descriptors_and_default_signals(kind, make_task):
    logged = make_task(shell("ls /proc/self/fd | wc -l; grep -E '^Sig(Blk|Ign)' /proc/self/status; umask"))
    assert await kind.run(logged.task) == OK
    count, blocked, ignored, mask = logged.of("stdout")
    assert int(count) == 4, "three, and the one of ls itself"
    reserved = 0b11 << 31  # the C library keeps these two to itself: nobody can reset them
    assert (int(blocked.split()[1], 16), int(ignored.split()[1], 16) & ~reserved) == (0, 0)
    assert mask == "0077"


async def test_a_limit_that_the_kernel_refuses_fails_the_attempt_and_no_other(kind, make_task):
    tiny = make_task({"argv": ["true"]})
    tiny.task.resources = Resources(memory=1 * MB)
    outcome = await kind.run(tiny.task)
    assert isinstance(outcome, Succeeded | Failed)
    assert await unharmed(kind, make_task)


TERMINALS: Final = """
import os
before = os.listdir("/dev/pts")
opened = []
try:
    while len(opened) < 2000:
        opened.append(os.openpty())
except OSError:
    pass
print(before, 10 <= len(opened) <= 64, os.ttyname(opened[0][1]))
"""


async def test_terminals_are_the_attempts_own_and_few(kind, make_task):
    """A machine has a few thousand for everybody: one attempt could keep people from logging in."""
    before = Path("/proc/sys/kernel/pty/nr").read_text()
    logged = make_task(python(TERMINALS))
    assert await kind.run(logged.task) == OK, logged.lines
    assert logged.of("stdout") == ["['ptmx'] True /dev/pts/0"]
    assert int(Path("/proc/sys/kernel/pty/nr").read_text()) <= int(before) + 10, "and they go with it"
    assert await unharmed(kind, make_task)
