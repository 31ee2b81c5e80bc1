"""Processor time is counted for whoever used it, also when he is gone."""

import os
import subprocess
import sys
import time

import pytest

from hourhand.bench.meter import (
    Meter,
    children_of,
    family,
    machine_seconds,
    own_seconds,
    seconds_with_dead_children,
)
from hourhand.bench.stages import role_pids, stages_of

BURN = "import time; e = time.process_time() + {seconds}\nwhile time.process_time() < e: pass\n"
pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")


def test_own_time_grows_with_work() -> None:
    before = own_seconds(os.getpid())
    assert before is not None
    ends = time.process_time() + 0.1
    while time.process_time() < ends:
        pass
    after = own_seconds(os.getpid())
    assert after is not None
    assert after - before >= 0.05


def test_a_dead_child_is_in_its_parents_books() -> None:
    before = seconds_with_dead_children(os.getpid())
    subprocess.run([sys.executable, "-c", BURN.format(seconds=0.2)], check=True)
    after = seconds_with_dead_children(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before >= 0.15


def test_a_family_has_children_and_their_children() -> None:
    # The shell waits for a second shell, which waits for its input.
    with subprocess.Popen(["sh", "-c", "sh -c 'read x; true'; true"], stdin=subprocess.PIPE) as child:
        deadline = time.monotonic() + 10
        while len(family(child.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert child.pid in children_of(os.getpid())
        assert len(family(child.pid)) == 2
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.close()


def test_a_role_keeps_what_its_dead_processes_used() -> None:
    burning = [sys.executable, "-c", BURN.format(seconds=0.25) + "input()"]
    with subprocess.Popen(burning, stdin=subprocess.PIPE) as child:
        meter = Meter({child.pid: "executor"}, {}, None)
        deadline = time.monotonic() + 60
        while meter.seconds().get("executor", 0.0) < 0.2 and time.monotonic() < deadline:
            time.sleep(0.02)
        used = meter.seconds()["executor"]
        child.communicate(b"\n")
    assert used >= 0.2
    assert meter.seconds()["executor"] == used, "what it was last seen with"
    assert meter.seconds()["client"] > 0


def test_what_postgres_spent_on_nobody_known_is_other() -> None:
    """The process of this test stands for PostgreSQL: its children are sessions."""
    with subprocess.Popen([sys.executable, "-c", BURN.format(seconds=0.3) + "input()"], stdin=subprocess.PIPE) as child:
        meter = Meter({}, {}, os.getpid())
        deadline = time.monotonic() + 60
        while (own_seconds(child.pid) or 0.0) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.02)
        found, books = meter.seconds({child.pid: "api"}), meter.postgres_seconds()
        child.communicate(b"\n")
    # The kernel's two counts of one process may differ by a tick each.
    assert found["postgres api"] >= 0.25
    assert found["postgres api"] + found["postgres other"] == pytest.approx(books, abs=0.2)


def test_of_the_machine_only_the_cores_count_that_we_may_use() -> None:
    code = (
        "import os, time; from hourhand.bench.meter import machine_seconds as m\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "t = [time.monotonic()]; a = m(); t.append(time.monotonic()); time.sleep(0.5)\n"
        "t.append(time.monotonic()); b = m(); t.append(time.monotonic())\n"
        "print(sum(b[k] - a[k] for k in b), t[2] - t[1], t[3] - t[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    counted, least, most = map(float, done.stdout.split())
    assert 0.8 * least < counted < 1.2 * most
    assert machine_seconds().keys() == {"busy", "disk_wait", "stolen", "idle"}


def test_memory_is_told_by_role() -> None:
    meter = Meter({}, {}, None)
    assert meter.resident_mb()["client"] > 5
    assert 1 < meter.proportional_mb()["client"] <= meter.resident_mb()["client"] * 1.1


def test_stages_are_microseconds_per_job() -> None:
    spent = {"api": 2.0, "client": 1.0, "postgres api": 4.0, "postgres executor recorder": 1.0}
    found = stages_of(spent, 100_000, {"api": {"decode": 0.25}})
    assert found["python"] == {"sum": 30.0, "api": 20.0, "client": 10.0}
    assert found["postgres"] == {"sum": 50.0, "api": 40.0, "executor recorder": 10.0}
    assert found["all"]["sum"] == 80.0
    assert found["python, api"] == {"decode": 5.0}
    assert stages_of(spent, 0) == {}


def test_only_nodes_on_this_machine_are_looked_at() -> None:
    nodes = [
        {"role": "api", "facts": {"pid": 11, "host": "here"}},
        {"role": "executor", "facts": {"pid": 12, "host": "there"}},
        {"role": "scheduler", "facts": {}},
    ]
    assert role_pids({"nodes": nodes}, "here") == {11: "api"}
