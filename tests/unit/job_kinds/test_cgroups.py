"""Where groups are looked for, and what is written into them. The files of version 2 are checked here only by name."""

import pytest

from hourhand.job_kinds.cgroups import (
    Groups,
    Trees,
    _mounts,
    _own_groups,
    cache_in,
    find_trees,
    number_in,
    remove_groups,
)
from hourhand.job_kinds.launcher import Ended
from hourhand.job_kinds.program_outcomes import outcome_of, usage_of
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.model.usage import Level, Usage

TWO = Trees(Level.CGROUP2, "/two", dict.fromkeys(("memory", "pids", "cpu"), "/two"))
ONE = Trees(Level.CGROUP1, "/u", {"memory": "/m", "pids": "/p", "cpu": "/c"})


def test_version_2_has_one_group_with_everything_in_it():
    plan = Groups(TWO, "room").plan("run", Resources(cpu=1.5, memory=64_000_000, pids=40), 512)
    assert plan.groups == ["/two/room/run"]
    assert dict(plan.writes) == {
        "/two/room/run/pids.max": "41",
        "/two/room/run/memory.max": "64000000",
        "/two/room/run/memory.oom.group": "1",
        "/two/room/run/cpu.max": "150000 100000",
    }
    assert plan.reads["peak"] == "/two/room/run/memory.peak"


def test_version_1_has_a_group_in_each_tree_that_is_needed():
    plan = Groups(ONE, "room").plan("run", None, 512)
    assert plan.groups == ["/u/room/run", "/m/room/run", "/p/room/run"], "found and killed by the first"
    assert plan.writes == [("/p/room/run/pids.max", "513")], "one for the keeper"
    declared = Groups(ONE, "room").plan("run", Resources(cpu=0.001, memory=5_000_000), 512)
    assert declared.groups[-1] == "/c/room/run"
    assert dict(declared.writes)["/c/room/run/cpu.cfs_quota_us"] == "1000", "the least that the kernel takes"
    assert dict(declared.writes)["/m/room/run/memory.limit_in_bytes"] == "5000000"


def test_without_groups_nothing_is_planned():
    assert Groups(Trees(Level.RLIMITS), "room").plan("run", Resources(memory=10**7), 512).groups == ()


@pytest.fixture
def proc(tmp_path):
    """A process in a container: its own group is the root of what is mounted, and some is mounted twice."""
    (tmp_path / "cgroup").write_text("4:memory:/box/a\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/box/inner\n")
    (tmp_path / "mountinfo").write_text(
        "30 20 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
        "31 30 0:27 /box /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
        "32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:29 /elsewhere /mnt rw - cgroup2 cgroup2 rw\n"
        "34 30 0:29 /box /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    )
    return tmp_path


def test_the_own_group_is_found_in_every_tree(proc):
    assert dict(_own_groups(proc)) == {
        "memory": "/sys/fs/cgroup/memory/a",
        "cpu": "/sys/fs/cgroup/cpu",
        "cpuacct": "/sys/fs/cgroup/cpu",
        "unified": "/sys/fs/cgroup/unified/inner",
    }
    assert _mounts(proc)["unified"] == [("/elsewhere", "/mnt"), ("/box", "/sys/fs/cgroup/unified")]


def test_a_machine_where_nothing_can_be_made_has_limits_of_processes(proc):
    (proc / "cgroup").write_text("0::/gone\n")
    assert find_trees(proc) == Trees(Level.RLIMITS)


def test_groups_that_are_not_there_are_removed_already(tmp_path):
    assert remove_groups([str(tmp_path / "none")])


def test_numbers_are_read_by_their_names():
    text = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"
    assert (number_in(text, "oom_kill"), number_in(text, "oom"), number_in("", "x")) == (3, None, None)
    assert number_in("max max\n", "max") is None


def ended(code, **facts):
    return Ended(code, "", 0, "", True, 0.5, 1000, 10, 20, **facts)


def test_a_program_that_lives_with_the_loss_of_a_process_has_succeeded():
    assert outcome_of(ended(0), {"killed": "oom_kill 1"}, (0,), None, ()) == Succeeded({"exit_code": 0})


def test_out_of_memory_without_a_limit_of_its_own_is_told_apart():
    outcome = outcome_of(ended(-9), {"killed": "oom_kill 1"}, (0,), None, ["tail"])
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.MEMORY_LIMIT
    assert "the executor ran out of memory" in outcome.error
    assert outcome.tags == ("signal:SIGKILL",)


def test_figures_of_groups_go_before_those_of_the_first_process():
    readings = {"peak": "5000\n", "cpu": "usage_usec 2500000\nuser_usec 1\n"}
    assert usage_of(ended(0), readings, {}, Level.CGROUP2) == Usage(Level.CGROUP2, 2.5, 5000, 10, 20)
    assert usage_of(ended(0), {}, {}, Level.RLIMITS) == Usage(Level.RLIMITS, 0.5, 1000, 10, 20)


def test_what_others_used_in_the_same_groups_before_is_not_counted():
    before = {"peak": "4000\n", "cpu": "usage_usec 2000000\n"}
    more = {"peak": "5000\n", "cpu": "usage_usec 2500000\n"}
    assert usage_of(ended(0), more, before, Level.CGROUP2) == Usage(Level.CGROUP2, 0.5, 5000, 10, 20)
    less = {"peak": "4000\n", "cpu": "usage_usec 2100000\n"}
    assert usage_of(ended(0), less, before, Level.CGROUP2) == Usage(Level.CGROUP2, 0.1, 1000, 10, 20), "its largest one"


@pytest.mark.parametrize(
    ("stat", "cached"),
    [
        ("anon 5\nfile 4000\nkernel 1\nshmem 1000\nfile_mapped 7\n", 3000),
        ("cache 1\nrss 5\nshmem 0\ntotal_cache 4000\ntotal_rss 5\ntotal_shmem 1000\n", 3000),
        ("", None),
    ],
)
def test_the_cache_of_files_is_told_apart_in_either_version(stat, cached):
    assert cache_in(stat) == cached
    assert usage_of(ended(0), {"peak": "5000\n", "stat": stat}, {}, Level.CGROUP2).memory_bytes_cached == cached
