"""Programs that misbehave, for real: each ends as it should, and nobody beside it is harmed (security test S11)."""

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from hourhand.job_kinds.cgroups import PREFIX, find_trees, remove_groups
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.user_ids import COUNT, FIRST
from hourhand.model.outcome import Failed, Lost, Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.model.usage import DiskLevel, Level

OK: Final = Succeeded({"exit_code": 0})
MB: Final = 10**6

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user, namespaces, control groups"),
    pytest.mark.skipif(find_trees().level is Level.RLIMITS, reason="needs control groups"),
]


@pytest.fixture
def shared():
    """A folder that everybody can write to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture
def home(shared):
    """An executor's home, in which programs would find much of interest if only they saw it."""
    home = shared / "home"
    (home / "socket").mkdir(parents=True)
    for name in ("token", "postgres.password", "hourhand.toml"):
        (home / name).write_text("hush")
        (home / name).chmod(0o644)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(home / "socket" / "s"))
    (home / "socket" / "s").chmod(0o777)
    server.listen()
    for folder in (home / "socket", home):
        folder.chmod(0o755)  # modes must not be what protects it here
    yield home
    server.close()


@pytest.fixture
async def open_kind(home, shared):
    kinds = []

    async def open_with(**settings):
        kind = CommandKind(ProgramRunner(ProgramSettings(hidden=(home,), shared=(str(shared),), **settings)))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


@pytest.fixture
async def kind(open_kind):
    return await open_kind(grace_seconds=0.3)


def shell(script):
    return {"argv": ["sh", "-c", script]}


def python(script, *arguments):
    return {"argv": ["/usr/bin/env", "python3", "-c", script, *map(str, arguments)]}


async def unharmed(kind, make_task):
    """Whether a neighbour runs as ever."""
    return await kind.run(make_task({"argv": ["true"]}).task) == OK


# --- limits -----------------------------------------------------------------------------------------------


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
    assert await kind.run(spin.task) == OK
    assert spin.task.usage.cpu_seconds < 0.6, "a tenth of one core, and what it takes to begin"


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


# --- nothing survives ---------------------------------------------------------------------------------------

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


NEST: Final = """
for line in $(cat /proc/self/cgroup); do
    tree=$(echo $line | cut -d: -f2)
    for own in /sys/fs/cgroup/$tree${line##*:} /sys/fs/cgroup/unified${line##*:}; do
        case $own in */hourhand-groups-*) mkdir -p $own/a/b && echo made && echo $$ > $own/a/b/cgroup.procs;; esac
    done
done
sleep 1000 &
echo $!
"""


async def test_groups_that_a_program_makes_in_its_own_do_not_keep_it_from_ending(open_kind, make_task, alive):
    kind = await open_kind(run_as=None)  # root can
    logged = make_task(shell(NEST))
    async with asyncio.timeout(60):
        assert await kind.run(logged.task) == OK
    assert "made" in logged.of("stdout")
    assert not alive(int(logged.of("stdout")[-1]))
    assert groups_of(kind._programs._host.folders.room.name, inner=True) == []


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


# --- what a program can see and reach -------------------------------------------------------------------------


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


# --- injection (security test S10) ------------------------------------------------------------------------------

CORPUS: Final = [
    "$(id)", "`id`", "; id", "| id", "&& id", "'", '"', "\\", "'; id; '", '"; id; "', "\n id", "a\r\nb", "-rf", "",
    "${IFS}", "$HOME", "*", "~", "%s%n", "\t", "é☃𐍈", "{{7*7}}", "#", "<(id)", "> /etc/passwd", "!!", "\x1b[31m",
]  # fmt: skip
PRINT: Final = (
    "import os,sys; sys.stdout.write('|'.join(v.encode('utf-8').hex() for v in [*sys.argv[1:], os.environ['V']]))"
)


@pytest.mark.parametrize("text", CORPUS, ids=repr)
async def test_whatever_is_written_reaches_the_program_byte_by_byte(kind, make_task, text):
    payload = {"argv": ["/usr/bin/env", "python3", "-c", PRINT, text], "env": {"V": text}, "stdin": text}
    logged = make_task(payload)
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["|".join([text.encode().hex()] * 2)]
    fed = make_task({"argv": ["od", "-An", "-v", "-tx1"], "stdin": text})
    assert await kind.run(fed.task) == OK
    assert "".join("".join(fed.of("stdout")).split()) == text.encode().hex()


async def test_output_that_looks_like_ours_is_text(kind, make_task):
    """What the launcher is told and what it tells never passes through a program."""
    script = 'printf \'ended\\0001\\0000\\n\'; echo \'{"state": "failed", "uid": 0}\'; exit 0'
    assert await kind.run(make_task(shell(script)).task) == OK


# --- helpers --------------------------------------------------------------------------------------------------


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
