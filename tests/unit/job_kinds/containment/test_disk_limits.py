"""Programs that fill the disk, for real: each is ended, and no more of it is kept than it may have."""

import asyncio
import os
from typing import Final

import pytest
from contained_programs import MB, NEEDS, OK, processes_of, python, shell, unharmed

from hourhand.model.outcome import Failed
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.model.usage import DiskLevel

pytestmark = NEEDS


NAMELESS: Final = """
import tempfile, time
file = tempfile.TemporaryFile()
file.write(bytes(30_000_000))
file.flush()
time.sleep(99)
"""


@pytest.mark.parametrize(
    "program",
    [
        shell("head -c 30000000 /dev/zero > file; sleep 99"),
        shell("mkdir -p a/b; for i in $(seq 300); do head -c 100000 /dev/zero > a/b/$i; done; sleep 99"),
        shell("head -c 30000000 /dev/zero > /var/tmp/file; sleep 99"),
        python(NAMELESS),
    ],
    ids=["one file", "many files", "elsewhere", "a file without a name"],
)
async def test_a_disk_hog_is_ended_and_says_what_to_do(kind, make_task, program):
    kind._programs._host.disk._look_seconds = 0.05
    neighbour = make_task(shell("head -c 5000000 /dev/zero > file; sleep 1; echo fine"))
    neighbour.task.resources = Resources(disk=10 * MB)
    running = asyncio.create_task(kind.run(neighbour.task))
    hog = make_task(program)
    hog.task.resources = Resources(disk=10 * MB)
    async with asyncio.timeout(60):
        outcome = await kind.run(hog.task)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.DISK_LIMIT, True)
    assert "10 MB of resources.disk" in outcome.error
    assert hog.task.usage.disk_level is DiskLevel.WATCHED
    assert hog.task.usage.disk_bytes_peak > 10 * MB
    assert processes_of(hog.task) == []
    assert await running == OK
    assert neighbour.task.usage.disk_bytes_peak >= 5 * MB


async def test_every_attempt_has_a_limit_of_disk(open_kind, make_task, shared):
    kind = await open_kind(disk_bytes_max=10 * MB)
    kind._programs._host.disk._look_seconds = 0.05
    outcome = await kind.run(make_task(shell("head -c 30000000 /dev/zero > file; sleep 99")).task)
    assert outcome.reason is Reason.DISK_LIMIT
    assert "kinds.disk_bytes_max" in outcome.error
    declared = make_task(shell("head -c 30000000 /dev/zero > file; sleep 1"))
    declared.task.resources = Resources(disk=50 * MB)
    assert await kind.run(declared.task) == OK
    facts = os.statvfs(shared)
    unsaid = (await open_kind())._programs._host.disk_max.bytes
    assert 0 < unsaid <= facts.f_blocks * facts.f_frsize / 10
    assert unsaid <= (facts.f_bavail * facts.f_frsize + 1000 * MB) / 2, "it cannot fill what is left"


async def test_what_a_quick_program_has_taken_is_seen_when_it_is_over(kind, make_task):
    hog = make_task(shell("head -c 30000000 /dev/zero > /tmp/file"))
    hog.task.resources = Resources(disk=10 * MB)
    outcome = await kind.run(hog.task)
    assert outcome.reason is Reason.DISK_LIMIT
    assert "more than the 10 MB of resources.disk; declare more" in outcome.error
    assert hog.task.usage.disk_bytes_peak > 10 * MB
    modest = make_task(shell("head -c 3000000 /dev/zero > /tmp/file"))
    modest.task.resources = Resources(disk=10 * MB)
    assert await kind.run(modest.task) == OK
    assert 3 * MB <= modest.task.usage.disk_bytes_peak < 4 * MB


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("truncate -s 3G $HOURHAND_OUTPUT_DIR/sparse", "left files of at least 3.2 GB to be kept"),
        ("for i in 1 2 3; do truncate -s 4M $HOURHAND_OUTPUT_DIR/$i; done", "left files of at least 13 MB"),
        ("head -c 30M /dev/urandom > $HOURHAND_OUTPUT_DIR/x", "took 31 MB of disk"),
    ],
    ids=["one with a hole", "several together", "a plain one"],
)
async def test_no_more_is_kept_than_an_attempt_may_have_on_disk(kind, make_task, script, said):
    kept = []

    async def keep(folder):
        kept.append(sorted(await asyncio.to_thread(os.listdir, folder)))

    large, small = make_task(shell(script)), make_task(shell("truncate -s 9M $HOURHAND_OUTPUT_DIR/x"))
    for each in (large.task, small.task):
        each.resources, each.keep_outputs = Resources(disk=10 * MB), keep
    outcome = await kind.run(large.task)
    assert outcome.reason is Reason.DISK_LIMIT
    assert said in outcome.error
    assert kept == []
    assert any("to be kept" in line for line in large.of("log"))
    assert await kind.run(small.task) == OK
    assert kept == [["x"]]


@pytest.mark.parametrize(
    "program",
    [
        shell("i=0; while : > $((i += 1)); do :; done"),
        shell("cd /tmp; i=0; while mkdir -p $((i += 1))/a; do :; done"),
        python("import os; open('a', 'w')\nfor n in range(10**9): os.link('a', f'{n}')"),
    ],
    ids=["files", "folders", "names of one file"],
)
async def test_who_makes_too_many_files_is_ended_and_says_so(open_kind, make_task, program):
    kind = await open_kind(disk_files_max=1000)
    kind._programs._host.disk._look_seconds = 0.05
    neighbour = make_task(shell("for i in $(seq 500); do : > $i; done; sleep 1; echo fine"))
    running = asyncio.create_task(kind.run(neighbour.task))
    maker = make_task(program)
    maker.task.resources = Resources(disk=1000 * MB)
    async with asyncio.timeout(60):
        outcome = await kind.run(maker.task)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.DISK_LIMIT, True)
    assert "more than the 1000 files" in outcome.error
    assert "kinds.disk_files_max" in outcome.error
    assert await running == OK
    unsaid = (await open_kind())._programs._host.disk_max.files
    assert 10_000 <= unsaid <= 1_000_000


DIG: Final = """
import os, sys
for place in ("/tmp", os.environ["HOME"], os.environ["HOURHAND_OUTPUT_DIR"]):
    os.chdir(place)
    for _ in range(int(sys.argv[1])):
        os.mkdir("n" * 200)
        os.chdir("n" * 200)
"""


async def test_folders_deeper_than_any_path_are_cleared_up_like_others(open_kind, make_task, shared):
    kind = await open_kind(work_root=str(shared / "work"))
    digger = make_task(python(DIG, 2000))
    looked = []

    async def keep(folder):
        looked.append(await asyncio.to_thread(os.listdir, folder))

    digger.task.keep_outputs = keep
    assert await kind.run(digger.task) == OK
    assert looked == [["n" * 200]]
    [room] = (shared / "work").iterdir()
    assert [path for path in room.rglob("n*") if len(path.name) == 200] == []
    assert await unharmed(kind, make_task)
