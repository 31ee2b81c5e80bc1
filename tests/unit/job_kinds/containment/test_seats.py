"""What attempts run in is given from one to the next, and nothing else is."""

import asyncio
import os
import signal
from typing import Final

import pytest
from contained_programs import MB, NEEDS, OK, groups_of, processes_of, python, shell

from hourhand.model.outcome import Failed
from hourhand.model.resources import Resources
from hourhand.model.states import Reason

pytestmark = NEEDS

RUNS_MAX: Final = 400
WHERE: Final = "echo $PPID"


@pytest.fixture
def seat_of(kind, make_task):
    """Runs something and says in which seat, by its keeper, and what it has said."""

    async def run(script="true", resources=None):
        logged = make_task(shell(f"{WHERE}; {script}"))
        logged.task.resources = resources
        outcome = await kind.run(logged.task)
        assert outcome == OK, outcome
        return logged.of("stdout")[0], logged

    return run


@pytest.fixture
def warm(seat_of):
    """Runs something that leaves nothing until it gets a seat that was used before: all seats it has had."""

    async def run():
        seen = []
        for _ in range(RUNS_MAX):
            seat, _ = await seat_of()
            seen.append(seat)
            if seen.count(seat) > 1:
                return set(seen)
        raise AssertionError("no seat was ever used twice")

    return run


async def in_a_used_seat(seat_of, warm, *what):
    """Runs it until it happens to be in a seat that others have used."""
    for _ in range(20):
        used = await warm()
        seat, logged = await seat_of(*what)
        if seat in used:
            return seat, logged
    raise AssertionError("it never got a used seat")


LEAVE: Final = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
match sys.argv[1]:
    case "segment": made = libc.shmget(1234, 4096, 0o1666)
    case "semaphores": made = libc.semget(1234, 1, 0o1666)
    case "queue": made = libc.msgget(1234, 0o1666)
    case "named queue": made = libc.mq_open(b"/left", 0o102, 0o666, None)
assert made >= 0, ctypes.get_errno()
"""


@pytest.mark.parametrize(
    "left",
    ["segment", "semaphores", "queue", "named queue", "shared memory", "time", "file", "temporary file", "mode"],
)
async def test_who_leaves_anything_is_the_last_one_in_its_seat(seat_of, warm, shared, left):
    (shared / "leave.py").write_text(LEAVE)
    leave = {
        "shared memory": "echo hush > /dev/shm/left",
        "time": "touch /dev/shm",
        "file": "echo hush > left",
        "temporary file": "echo hush > /tmp/left",
        "mode": "chmod 0500 .",
    }.get(left, f"/usr/bin/env python3 {shared}/leave.py '{left}'")
    seat, _ = await in_a_used_seat(seat_of, warm, leave)
    for _ in range(40):
        assert (await seat_of())[0] != seat


async def test_what_an_attempt_has_used_is_not_counted_for_the_next_in_its_seat(seat_of, warm):
    burn = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
    large = "x=$(head -c 60000000 /dev/zero | tr '\\0' x); true"
    _, burned = await in_a_used_seat(seat_of, warm, f"{burn}; {large}")
    most = burned.task.usage
    assert most.memory_bytes_peak > 50 * MB
    for _ in range(20):
        _, logged = await seat_of()
        assert logged.task.usage.cpu_seconds < most.cpu_seconds / 4
        assert logged.task.usage.memory_bytes_peak < 30 * MB


async def test_what_an_attempt_has_read_is_not_counted_for_the_next(seat_of, warm, shared):
    (shared / "large").write_bytes(os.urandom(40 * MB))
    forget = os.open(shared / "large", os.O_RDONLY)
    os.fsync(forget)
    os.posix_fadvise(forget, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(forget)
    await in_a_used_seat(seat_of, warm, f"cat {shared}/large > /dev/null")
    for _ in range(40):
        _, logged = await seat_of()
        assert logged.task.usage.memory_bytes_peak < 30 * MB


async def test_limits_are_those_of_each_attempt_also_in_a_used_seat(kind, make_task, warm):
    hog = python("x = bytearray(150_000_000)")
    for limit, is_enough in ((64 * MB, False), (400 * MB, True), (64 * MB, False), (None, True)):
        await warm()
        logged = make_task(hog)
        logged.task.resources = None if limit is None else Resources(memory=limit)
        outcome = await kind.run(logged.task)
        if is_enough:
            assert outcome == OK
        else:
            assert isinstance(outcome, Failed)
            assert outcome.reason is Reason.MEMORY_LIMIT


async def test_processor_time_can_be_limited_in_a_used_seat_and_is_not_for_the_next(kind, make_task, warm):
    for cpu in (0.5, None, 0.5, None):
        await warm()
        logged = make_task(shell("true"))
        logged.task.resources = None if cpu is None else Resources(cpu=cpu)
        assert await kind.run(logged.task) == OK


async def test_an_attempt_whose_keeper_is_killed_fails_with_all_that_it_has_started(kind, make_task, until, warm):
    await warm()
    logged = make_task(shell("sleep 1000 & echo $PPID; wait"))
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    os.kill(int(logged.of("stdout")[0]), signal.SIGKILL)
    outcome = await running
    assert isinstance(outcome, Failed)
    assert processes_of(logged.task) == []
    await warm()


async def test_seats_that_nobody_uses_go(kind, until, warm):
    await warm()
    room = kind._programs._host.folders.room.name
    assert groups_of(room, inner=True) != []
    await until(lambda: groups_of(room, inner=True) == [])
    await warm()


async def test_seats_of_a_launcher_that_was_killed_do_not_keep_others_from_their_folders(kind, make_task, warm):
    await warm()
    kind._programs._host.launcher._process.kill()
    await kind.run(make_task(shell("true")).task)
    await warm()
