"""Containment by an executor that is not root, for real: a process of another user, with and without control groups
that were handed to it."""

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance.other_users import program_for_user

from hourhand.job_kinds.cgroups import _own_groups, find_trees
from hourhand.job_kinds.launcher_kernel import inner_groups
from hourhand.model.usage import Level

NOBODY: Final = 65534
SECONDS_MAX: Final = 120
HANDED_OVER: Final = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks")

EXECUTOR: Final = """
import asyncio, json, sys
from datetime import UTC, datetime
from uuid import uuid4
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.resources import Resources
from hourhand.ports.job_kind import Task

async def main():
    asked = json.loads(sys.stdin.readline())
    kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.3, pids_max=100)))
    await kind.open()

    async def run(script, resources=None):
        said = []
        identity = (uuid4(), uuid4(), "default", "x", "command", {"argv": ["bash", "-c", script]})
        task = Task(*identity, 1, 1, datetime.now(UTC), lambda _, line: said.append(line))
        task.resources = resources and Resources(**resources)
        outcome = await kind.run(task)
        return {
            "succeeded": type(outcome).__name__ == "Succeeded", "error": getattr(outcome, "error", None), "said": said,
            "level": task.usage and task.usage.level.value,
        }

    neighbour = asyncio.create_task(run("sleep 1000")) if asked["neighbour"] else None
    told = [await run(**each) for each in asked["runs"]]
    if neighbour is not None:
        neighbour.cancel()
        await asyncio.wait({neighbour})
    told.append(sorted(kind._programs._host.launcher.abilities))
    await kind.close()
    print(json.dumps(told))

asyncio.run(main())
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")


@cache
def python_of_nobody() -> str:
    """An interpreter with our packages that the user nobody reaches; ours may lie under a closed /root."""
    folder = Path(tempfile.mkdtemp(prefix="hh-nobody-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    program = program_for_user(folder, "nobody")
    if program is None:
        pytest.skip("there is no interpreter that the user nobody reaches")
    return program[0]


# As in a container that may make no mounts. The numbers are those of this user namespace alone, and of those inside it.
WITHOUT_NAMESPACES: Final = (
    "unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}", "--keep-caps", "sh", "-c",
    "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"", "sh",
)  # fmt: skip


def run_as_nobody(
    *runs: Any, groups: Sequence[Path] = (), neighbour: bool = False, inside: Sequence[str] = ()
) -> list[Any]:
    """What became of programs that an executor of the user nobody ran, and what it could contain them by."""
    command = [*inside, python_of_nobody(), "-c", EXECUTOR]
    asked = {"runs": [each if isinstance(each, dict) else {"script": each} for each in runs], "neighbour": neighbour}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=NOBODY, group=NOBODY, extra_groups=[],
        cwd="/", env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    ) as executor:  # fmt: skip
        for group in groups:
            (group / "cgroup.procs").write_text(str(executor.pid))
        try:
            out, _ = executor.communicate(json.dumps(asked) + "\n", SECONDS_MAX)
        finally:
            executor.kill()
    found: list[Any] = json.loads(out.splitlines()[-1])
    return found


@contextmanager
def handed_over() -> Iterator[list[Path]]:
    """A control group in every tree that the user nobody may do in what he likes."""
    made: list[Path] = []
    try:
        for tree, own in dict(_own_groups(Path("/proc/self"))).items():
            if tree in ("memory", "pids", "cpu", "unified"):
                group = Path(own, f"hourhand-test-{os.getpid()}")
                group.mkdir()
                made.append(group)
                for place in (group, *(group / name for name in HANDED_OVER)):
                    if place.exists():
                        os.chown(place, NOBODY, NOBODY)
        yield made
    finally:
        for group in made:
            for inner in [*inner_groups(os.fsencode(group)), os.fsencode(group)]:
                with suppress(OSError):
                    os.rmdir(inner)


@pytest.fixture
def groups() -> Iterator[list[Path]]:
    if find_trees().level is Level.RLIMITS:
        pytest.skip("needs control groups")
    with handed_over() as made:
        yield made
        assert [group for group in made if group.exists() and list(inner_groups(os.fsencode(group)))] == []


def test_a_program_cannot_leave_the_groups_that_are_its_users_own(groups: list[Path]) -> None:
    leave = "".join(f"echo $$ > {group}/cgroup.procs && echo left\n" for group in groups)
    daemon = "setsid env -i sleep 1000 >/dev/null 2>&1 </dev/null & echo $!"
    inside = f"unshare --user --map-root-user --mount sh -c 'umount {{0}}; mount -o remount,rw {{0}}; {leave}'".format(
        groups[0].parent
    )
    first, second, abilities = run_as_nobody(leave + daemon, inside, groups=groups)
    if "mounts" not in abilities:
        pytest.skip("this machine lets nobody make namespaces")
    assert first["level"] in ("cgroup1", "cgroup2")
    assert "left" not in [*first["said"], *second["said"]]
    assert any("Read-only" in line for line in first["said"])
    pid = int(first["said"][-1])
    assert not Path(f"/proc/{pid}").exists()


def test_limits_hold_for_an_executor_that_was_handed_groups(groups: list[Path]) -> None:
    hog = {"script": "python3 -c 'x = bytearray(400_000_000)'", "resources": {"memory": 64_000_000}}
    ended, _ = run_as_nobody(hog, groups=groups)
    assert "64 MB of resources.memory" in ended["error"]


def test_what_a_program_does_to_its_keeper_does_nothing_to_the_next_program(groups: list[Path]) -> None:
    """They are of one user there, so it may: but whoever it starts next would have those limits too."""
    harm = "prlimit --pid $PPID --nofile=99:99 --fsize=1:1; chmod 0700 /dev/shm; true"
    *ended, _ = run_as_nobody(*["sleep 0.03"] * 5, *[harm] * 3, *["ulimit -Hn"] * 20, groups=groups)
    assert [each["error"] for each in ended if not each["succeeded"]] == []
    assert {line for each in ended[8:] for line in each["said"]} == {"4096"}


def test_without_groups_single_processes_have_limits() -> None:
    hog = {"script": "python3 -c 'x = bytearray(400_000_000)'", "resources": {"memory": 64_000_000}}
    bomb = {"script": "for i in $(seq 3000); do sleep 5 & done 2>&1 | grep -m1 -o 'fork.*'", "resources": {"pids": 20}}
    fine = "echo fine; ulimit -c"
    hogged, bombed, ended, _ = run_as_nobody(hog, bomb, fine)
    assert [each["level"] for each in (hogged, bombed, ended)] == ["rlimits"] * 3
    assert not hogged["succeeded"]
    assert "MemoryError" in hogged["error"]
    assert any("Resource temporarily unavailable" in line for line in [*bombed["said"], bombed["error"] or ""])
    assert ended["said"] == ["fine", "0"]


def test_without_groups_a_daemon_goes_with_its_attempt_although_others_go_on() -> None:
    """It leaves its session, loses its parent and wipes its environment: nothing tells any more whose it was."""
    daemon = "(setsid env -i sh -c 'sleep 1000 & echo $!; wait' </dev/null 2>/dev/null &)\nsleep 0.3"
    ended, _ = run_as_nobody(daemon, neighbour=True)
    assert ended["succeeded"]
    assert not Path(f"/proc/{ended['said'][0]}").exists()


def test_tmp_is_private_where_anybody_may_make_namespaces() -> None:
    name = f"hourhand-test-{os.getpid()}"
    write = f"for p in /tmp /var/tmp /dev/shm; do echo hush > $p/{name}; cat $p/{name}; done; ls /tmp | grep -c hh-nob"
    look = f"ls /tmp/{name} /var/tmp/{name} /dev/shm/{name} 2>/dev/null; echo looked"
    wrote, looked, abilities = run_as_nobody(write, look)
    if "mounts" not in abilities:
        pytest.skip("this machine lets nobody make namespaces")
    assert wrote["said"] == ["hush", "hush", "hush", "0"]
    assert looked["said"] == ["looked"]
    assert not Path("/tmp", name).exists()


def test_system_v_objects_are_private_where_anybody_may_make_namespaces() -> None:
    key = 0x48000000 + os.getpid()
    script = "python3 -c 'import ctypes; print(ctypes.CDLL(None).shmget({}, 4096, {}) >= 0)'"
    made, sought, abilities = run_as_nobody(script.format(key, 0o1666), script.format(key, 0o666))
    if "ipc" not in abilities:
        pytest.skip("this machine lets nobody make namespaces")
    assert (made["said"], sought["said"]) == (["True"], ["False"])
    assert str(key) not in Path("/proc/sysvipc/shm").read_text()


def test_without_namespaces_tmp_is_closed_and_the_own_folder_is_not() -> None:
    name = f"hourhand-test-{os.getpid()}"
    closed = f"for p in /tmp /var/tmp; do echo hush > $p/{name}; ls $p; mkdir $p/{name}-d; ls $HOME/..; done 2>&1"
    own = "mkdir a; echo fine > a/b; mv a/b c; cat c $(mktemp); echo x > /dev/null; cat /etc/hostname > d; ls; echo > c"
    other = "ls -d /tmp/hourhand-work-*/* 2>/dev/null; cat /tmp/hourhand-work-*/*/c 2>/dev/null; echo looked"
    probe = subprocess.run([*WITHOUT_NAMESPACES, "true"], capture_output=True, user=NOBODY, group=NOBODY, check=False)
    if probe.returncode != 0:
        pytest.skip("this machine lets nobody make user namespaces")
    shut, worked, looked, abilities = run_as_nobody(closed, own, other, inside=WITHOUT_NAMESPACES, neighbour=True)
    if "fence" not in abilities:
        pytest.skip("this kernel has no Landlock that would do")
    assert "mounts" not in abilities
    assert len(shut["said"]) == 8
    assert all("ermission denied" in line for line in shut["said"])
    assert worked["succeeded"], worked
    assert worked["said"][0] == "fine"
    assert looked["said"] == ["looked"]
    assert not Path("/tmp", name).exists()
