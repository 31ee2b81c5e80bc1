"""Programs that want more than they may: each ends as it should, and nobody beside it is harmed (S11)."""

import asyncio
import time
from typing import Final

import pytest
from contained_programs import MB, NEEDS, OK, processes_of, python, resident_bytes, shell, unharmed

from hourhand.job_kinds.cgroups import find_trees
from hourhand.model.outcome import Failed
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.model.usage import Level
from hourhand.runtime.machine import usable_memory

pytestmark = NEEDS


async def test_a_memory_hog_ends_at_its_limit_and_says_what_to_do(kind, make_task):
    neighbour = make_task(shell("sleep 0.5; echo fine"))
    running = asyncio.create_task(kind.run(neighbour.task))
    hog = make_task(python("x = bytearray(400_000_000); print(len(x))"))
    hog.task.resources = Resources(memory=64 * MB)
    outcome = await kind.run(hog.task)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.MEMORY_LIMIT, True)
    assert "64 MB of resources.memory" in outcome.error
    assert hog.task.usage.memory_bytes_peak <= 64 * MB
    assert await running == OK
    assert neighbour.of("stdout") == ["fine"]


async def test_a_memory_hog_that_declares_nothing_ends_at_the_limit_of_its_executor(open_kind, make_task):
    kind = await open_kind(memory_bytes_max=64 * MB)
    neighbour = make_task(shell("sleep 0.5; echo fine"))
    running = asyncio.create_task(kind.run(neighbour.task))
    outcome = await kind.run(make_task(python("x = bytearray(400_000_000); print(len(x))")).task)
    assert outcome.reason is Reason.MEMORY_LIMIT
    assert "64 MB that its executor (kinds.memory_bytes_max) allows" in outcome.error
    assert "declare resources.memory" in outcome.error
    shared = await kind.run(make_task(shell("head -c 400000000 /dev/zero > /dev/shm/x")).task)
    assert shared.reason is Reason.MEMORY_LIMIT, "also memory that belongs to no process"
    assert await running == OK
    large = make_task(python("x = bytearray(100_000_000)"))
    large.task.resources = Resources(memory=200 * MB)
    assert await kind.run(large.task) == OK, "who declares more gets more"


async def test_an_attempt_has_half_of_the_memory_if_nobody_says_anything(kind, make_task):
    [plan] = [kind._programs._host.plan("x", None)]
    [limit] = [int(value) for path, value in plan.writes if path.endswith(("memory.max", "memory.limit_in_bytes"))]
    assert limit == usable_memory() // 2
    assert await unharmed(kind, make_task)


async def test_when_the_machine_runs_out_of_memory_programs_are_ended_before_all_others(kind, make_task):
    logged = make_task(shell("cat /proc/self/oom_score_adj"))
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["1000"]
    with open(f"/proc/{kind._programs._host.launcher._process.pid}/oom_score_adj") as of_launcher:
        assert int(of_launcher.read()) < 1000


async def test_memory_is_limited_for_all_processes_together(kind, make_task):
    script = "import os,time\nfor _ in range(4): os.fork()\nx = bytearray(20_000_000); time.sleep(20)"
    many = make_task(python(script))
    many.task.resources = Resources(memory=64 * MB)
    outcome = await kind.run(many.task)
    assert outcome.reason is Reason.MEMORY_LIMIT, "16 processes of 20 MB each"


BOMB: Final = """
import os, sys
refused = 0
while refused < 2000:
    try:
        os.fork()
    except OSError:
        refused += 1
os._exit(3)
"""


async def test_a_fork_bomb_ends_at_its_limit_and_nothing_of_it_survives(kind, make_task, alive):
    bomb = make_task(python(BOMB))
    bomb.task.resources = Resources(pids=40)  # never without a limit: this is a real one
    outcome = await kind.run(bomb.task)
    assert outcome.reason is Reason.EXIT_CODE
    assert "refused" in outcome.error
    assert "resources.pids" in outcome.error
    assert processes_of(bomb.task) == []
    assert await unharmed(kind, make_task)


async def test_every_attempt_has_a_limit_of_processes(open_kind, make_task):
    kind = await open_kind(pids_max=20)
    assert (await kind.run(make_task(python(BOMB)).task)).reason is Reason.EXIT_CODE
    logged = make_task(shell("for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0 & done; wait; echo ten"))
    assert await kind.run(logged.task) == OK


async def test_processor_time_is_limited(kind, make_task):
    spin = make_task(python("import time; end = time.monotonic() + 1\nwhile time.monotonic() < end: pass"))
    spin.task.resources = Resources(cpu=0.1)
    began = time.monotonic()
    assert await kind.run(spin.task) == OK
    most = 0.1 * (time.monotonic() - began) + 0.3
    assert spin.task.usage.cpu_seconds < most, "a tenth of one core, and what it takes to begin"


async def test_no_core_files_and_few_open_files(open_kind, make_task):
    kind = await open_kind(open_files_max=64)
    logged = make_task(shell("ulimit -c; ulimit -n; ulimit -Hn"))
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["0", "64", "64"]


async def test_what_an_attempt_took_is_told(kind, make_task):
    script = "import os; x = bytearray(50_000_000); f = os.open('f', 65); os.write(f, b'x' * 3_000_000); os.fsync(f)"
    used = make_task(python(script))
    assert await kind.run(used.task) == OK
    usage = used.task.usage
    assert usage.level is find_trees().level
    assert 50 * MB < usage.memory_bytes_peak < 200 * MB
    assert 0 < usage.cpu_seconds < 60
    assert usage.written_bytes >= 3 * MB


async def test_the_cache_of_files_is_told_apart_from_what_a_program_needs(kind, make_task):
    if find_trees().level not in (Level.CGROUP1, Level.CGROUP2):
        pytest.skip("there are no control groups to tell it")
    script = "f = open('f', 'wb')\nfor _ in range(100): f.write(bytes(1_000_000))"
    used = make_task(python(script))
    assert await kind.run(used.task) == OK
    usage = used.task.usage
    assert usage.memory_bytes_cached >= 80 * MB
    assert usage.memory_bytes_peak - usage.memory_bytes_cached < 60 * MB


async def test_two_gigabytes_of_output_take_no_memory_of_the_executor(kind, make_task):
    seen = 0

    def count(_stream, text):
        nonlocal seen
        seen += len(text) + 1

    flood = make_task(shell("yes $(printf %04000d 0) | head -c 2147483648"))
    flood.task.log = count
    before = resident_bytes()
    assert await kind.run(flood.task) == OK
    assert seen >= 2_147_483_648
    assert resident_bytes() - before < 100 * MB


# What is written is never seen in the folder: it has been deleted, or was never there under a name.
