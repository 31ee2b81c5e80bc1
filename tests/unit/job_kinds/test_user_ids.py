"""Attempts that are strangers to each other, for real: as users, by what one could do to another."""

import asyncio
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from hourhand.job_kinds import user_ids
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.script import ScriptKind
from hourhand.job_kinds.user_ids import COUNT, COUNT_MIN, FIRST, SLICE, open_user_ids
from hourhand.job_kinds.work_folders import Account
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Succeeded

OK: Final = Succeeded({"exit_code": 0})
NOBODY: Final = Account("nobody", 65534, 65534)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
needs_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls the kernel by the numbers of x86_64")


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Opens users in a folder of the test's own."""
    monkeypatch.setattr(user_ids, "_are_known", lambda wanted: True)
    held = []

    def open_one(first=FIRST, count=None, account=NOBODY):
        users = open_user_ids(account, first, count, tmp_path / "users")
        held.append(users)
        return users

    yield open_one
    for users in held:
        if users is not None:
            try:
                users.close()
            except OSError:  # by the test
                continue


def number(user):
    return user.account.user_id


def test_numbers_go_round_and_are_never_anybodys_who_lives(opened):
    users = opened(count=COUNT_MIN)
    long = users.take()
    assert number(long) == FIRST
    seen = []
    for _ in range(2 * COUNT_MIN):
        user = users.take()
        seen.append(user)
        users.give_back(user)
    assert FIRST not in map(number, seen)
    assert [number(user) for user in seen[: COUNT_MIN - 1]] == list(range(FIRST + 1, FIRST + COUNT_MIN))


@pytest.fixture
def key_users(monkeypatch, tmp_path):
    """The kernel's list of who has keys."""
    path = tmp_path / "key-users"
    path.write_text("    0:    14 13/13 7/1000000 507316/25000000\n")
    monkeypatch.setattr("hourhand.job_kinds.user_ids._KEY_USERS", str(path))
    return path


def taken_and_given_back(users, count):
    found = []
    for _ in range(count):
        found.append(users.take())
        users.give_back(found[-1])
    return found


def test_only_whom_the_kernel_keeps_keys_for_may_have_been_left_some(opened, key_users):
    users = opened(count=COUNT_MIN)
    assert not any(user.may_have_keys for user in taken_and_given_back(users, COUNT_MIN)), "nobody was them before"
    with key_users.open("a") as file:
        file.write(f"{FIRST + 5}:     3 3/3 2/200 36/20000\n")
    second = taken_and_given_back(users, COUNT_MIN)
    assert [number(user) for user in second if user.may_have_keys] == [FIRST + 5]
    key_users.unlink()
    assert all(user.may_have_keys for user in taken_and_given_back(users, COUNT_MIN)), "nobody knows"


def test_who_ended_after_the_last_look_may_have_left_keys(opened, key_users):
    users = opened(count=COUNT_MIN + 500)
    long = users.take()
    taken_and_given_back(users, COUNT_MIN + 400)
    users.give_back(long)
    again = taken_and_given_back(users, 101)
    assert [number(user) for user in again if user.may_have_keys] == [FIRST]
    assert again[-2] == long._replace(may_have_keys=True)


def test_when_all_are_taken_that_is_said(opened):
    users = opened(count=COUNT_MIN)
    for _ in range(COUNT_MIN):
        users.take()
    with pytest.raises(OSError, match=r"kinds\.uid_count"):
        users.take()


def test_executors_have_slices_of_their_own_whatever_their_settings(opened):
    first, second, third = opened(), opened(), opened(first=FIRST + 100, count=3 * SLICE)
    slices = {number(users.take()) // SLICE for users in (first, second, third)}
    assert len(slices) == 3
    with pytest.raises(BadConfiguration, match="other executors"):
        opened(count=COUNT_MIN)


def test_a_slice_is_free_when_all_who_hold_it_are_gone_and_goes_on_where_it_was(opened):
    first = opened()
    last = [number(first.take()) for _ in range(10)][-1]
    launcher = os.dup(first.lock)
    os.close(first.lock)  # as when it is killed: nothing is written any more
    assert number(opened().take()) // SLICE != last // SLICE
    os.close(launcher)
    again = opened().take()
    assert number(again) // SLICE == last // SLICE
    assert number(again) > last


def test_after_other_settings_or_a_torn_file_every_number_may_have_been_used(opened, tmp_path, key_users):
    key_users.unlink()
    opened().close()
    assert opened(first=FIRST + 10, count=COUNT_MIN).take().may_have_keys
    (tmp_path / "users" / str((FIRST + SLICE) // SLICE)).write_text("1 2")
    assert opened().take().may_have_keys


def test_who_was_chosen_by_name_stays_that_user_unless_numbers_are_asked_for(opened):
    backup = Account("backup", 34, 34)
    assert opened(account=backup) is None
    assert opened(count=0) is None
    assert opened(account=None) is None
    assert opened(account=backup, count=COUNT_MIN).take().account.group_id == 34


def test_what_was_asked_for_and_cannot_be_had_is_a_fault(opened, monkeypatch):
    with pytest.raises(BadConfiguration, match="at least 1024"):
        opened(count=5)
    with pytest.raises(BadConfiguration, match="there are no users"):
        opened(first=2**31 - 1000, count=COUNT_MIN)
    with pytest.raises(BadConfiguration, match="nobody is one of"):
        opened(first=65000, count=COUNT_MIN)
    monkeypatch.setattr(user_ids, "_are_known", lambda wanted: False)  # as in a container with a few users
    assert opened() is None
    with pytest.raises(BadConfiguration, match="there are no users"):
        opened(count=COUNT_MIN)


@pytest.fixture
async def kind():
    kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.3)))
    await kind.open()
    if kind._programs._host.users is None:
        await kind.close()
        pytest.skip("this machine has no users for attempts")
    yield kind
    await kind.close()


def shell(script):
    return {"argv": ["sh", "-c", script]}


def python(source, *args):
    return {"argv": ["/usr/bin/env", "python3", "-c", source, *map(str, args)]}


async def said(kind, logged):
    assert await kind.run(logged.task) == OK
    return logged.of("stdout")


HARM: Final = """
import os, resource, sys
pid = int(sys.argv[1])
for harm in (
    lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
    lambda: resource.prlimit(pid, resource.RLIMIT_CPU),
    lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    lambda: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    lambda: os.kill(pid, 0),
):
    try:
        harm()
        print("done")
    except PermissionError:
        print("refused")
"""


@needs_root
async def test_no_attempt_can_do_anything_to_another(kind, make_task, until):
    victim = make_task(shell("echo $$; id -u; sleep 1000"))
    running = asyncio.create_task(kind.run(victim.task))
    await until(lambda: len(victim.of("stdout")) == 2)
    pid, user = victim.of("stdout")
    assert await said(kind, make_task(python(HARM, pid))) == ["refused"] * 5
    [other] = await said(kind, make_task(shell("id -u")))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert int(user) != int(other)
    assert {int(user), int(other)} <= set(range(FIRST, FIRST + COUNT))


@needs_root
async def test_no_two_attempts_have_the_same_user_also_when_folders_are_given_on(kind, make_task):
    users = []
    for _ in range(5):
        alike = [make_task(shell("id -u; id -g; id -G; stat -c %u:%a . /tmp; sleep 0.1")) for _ in range(4)]
        for lines in await asyncio.gather(*(said(kind, each) for each in alike)):
            user, group, groups, *owned = lines
            assert group == groups == str(kind._programs._host.account.group_id)
            assert owned == [f"{user}:700"] * 2
            users.append(user)
    assert len(set(users)) == len(users)


@needs_root
async def test_all_that_an_attempt_finds_is_its_own(kind, make_task):
    async def keep(folder):
        kept.append((await asyncio.to_thread(os.stat, folder / "x")).st_uid)

    kept = []
    script = ScriptKind(kind._programs)
    await script.open()
    try:
        strange = 'find "$HOME" -path "*/.hourhand-tmp/*" -prune -o ! -user $(id -u) -print'
        source = f'id -u; echo x > "$HOURHAND_OUTPUT_DIR/x"; touch /tmp/y; {strange}; cat'
        logged = make_task({"language": "bash", "source": source, "cwd": "a/b", "stdin": "given"}, kind="script")
        logged.task.keep_outputs = keep
        room = kind._programs._host.folders.room
        before = set(os.listdir(room))
        user, *rest = await said(script, logged)
        assert kept == [int(user)]
        assert rest == ["given"]
        left = [path for path in room.rglob("*") if path.name in ("x", "y", "script.sh")]
        assert left == []
        spare = [name for name in set(os.listdir(room)) - before if not name.startswith(".")]
        assert all(stat.S_IMODE((room / name).stat().st_mode) == 0o700 for name in spare)
        assert int(user) not in {(room / name).stat().st_uid for name in spare}
    finally:
        await script.close()


# Puts a key into the keyrings that the kernel keeps for a user, or looks for it there.
KEYS: Final = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
rings = [-4, -5]
persistent = libc.syscall(250, 22, -1, -2)
if persistent > 0:
    rings.append(persistent)
name = b"hourhand-own-user"
if sys.argv[1] == "add":
    print(all([libc.syscall(248, b"user", name, b"hush", 4, ring) > 0 for ring in rings]))
print(any([libc.syscall(250, 10, ring, b"user", name, 0) > 0 for ring in rings]))
"""


@needs_root
@needs_x86
async def test_keys_that_are_left_to_a_user_are_never_read_by_another_attempt(kind, make_task):
    host = kind._programs._host
    if "keyring" not in host.launcher.abilities:
        pytest.skip("this kernel has no keyrings, or forbids them")
    numbers = host.users._numbers

    async def run_as_next(what):
        """The attempt's user, and what it said."""
        host.spares._spare.clear()
        at = host.users._given
        told = await said(kind, make_task(python(KEYS, what)))
        return at, told

    at, told = await run_as_next("add")
    assert told == ["True", "True"]
    assert (await run_as_next("look"))[1] == ["False"], "another user does not have them"
    host.users._given = at
    host.users._taken.clear()
    if at < len(numbers):
        assert (await run_as_next("look"))[1] == ["True"], "they would still be there"
    host.users._given = at % len(numbers) + len(numbers)
    host.users._taken.clear()
    assert (await run_as_next("look"))[1] == ["False"], "who is that user again does not have them either"


@needs_root
async def test_the_launcher_holds_the_numbers_too_and_programs_do_not(kind, make_task):
    host = kind._programs._host
    lock = os.readlink(f"/proc/self/fd/{host.users.lock}")
    handles = Path(f"/proc/{host.launcher._process.pid}/fd")
    assert lock in [os.readlink(handle) for handle in handles.iterdir()]
    listing = await said(kind, make_task(shell("ls -l /proc/self/fd")))
    assert listing
    assert not any(lock in line for line in listing)


EXECUTOR: Final = """
import asyncio, os
from datetime import UTC, datetime
from uuid import uuid4
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.ports.job_kind import Task

async def main():
    kind = CommandKind(ProgramRunner(ProgramSettings()))
    await kind.open()
    print(os.readlink(f"/proc/self/fd/{kind._programs._host.users.lock}"), flush=True)
    program = {"argv": ["sh", "-c", "trap '' TERM; id -u; setsid sleep 1000 & sleep 1000"]}
    identity = (uuid4(), uuid4(), "default", "x", "command", program)
    await kind.run(Task(*identity, 1, 1, datetime.now(UTC), lambda _, line: print(line, flush=True)))

asyncio.run(main())
"""


@needs_root
async def test_numbers_of_an_executor_that_was_killed_are_free_when_its_attempts_are_gone_and_not_before(kind, until):
    """The kind is another executor, so that there is a second slice in any case."""
    executor = subprocess.Popen([sys.executable, "-c", EXECUTOR], stdout=subprocess.PIPE, text=True)
    try:
        lines = [line for _ in range(3) if (line := executor.stdout.readline().strip()) and "contained" not in line]
        path, user = lines[0], int(lines[1])
        assert os.path.basename(path) == str(user // SLICE)
        assert user_ids._alive_in(range(user, user + 1)) == {user}
    finally:
        executor.kill()
        executor.wait()
        executor.stdout.close()
    lock = os.open(path, os.O_RDWR)
    try:
        await until(lambda: is_locked(lock))
        assert user_ids._alive_in(range(user, user + 1)) == set()
    finally:
        os.close(lock)


def is_locked(lock):
    """Whether we have it now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@needs_root
async def test_without_groups_processes_are_counted_by_the_attempts_own_user(make_task, monkeypatch):
    monkeypatch.setattr("hourhand.job_kinds.program_host.ProgramHost._open_groups", lambda self, room: None)
    kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.3, pids_max=20)))
    await kind.open()
    try:
        if kind._programs._host.users is None:
            pytest.skip("this machine has no users for attempts")
        forks = """
import os, time
made = 0
try:
    for _ in range(100):
        if os.fork() == 0:
            time.sleep(100)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
        assert await said(kind, make_task(python(forks))) == ["19"]
    finally:
        await kind.close()
