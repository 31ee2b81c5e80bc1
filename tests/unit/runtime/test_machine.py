"""What the control groups around a process allow it, in either version of them."""

from pathlib import Path

import pytest

from hourhand.runtime.machine import usable_cores, usable_memory


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_without_groups_the_whole_machine_is_there(tmp_path: Path, own: Path) -> None:
    assert usable_cores(tmp_path / "none", own) >= 1
    assert usable_memory(tmp_path / "none", own) > 10**8


def test_the_tightest_of_the_groups_around_counts(tmp_path: Path, own: Path) -> None:
    write(own, "0::/outer/inner\n")
    write(tmp_path / "outer/inner/memory.max", "max\n")
    write(tmp_path / "outer/memory.max", "50000000\n")
    write(tmp_path / "outer/inner/cpu.max", "50000 100000\n")
    write(tmp_path / "outer/cpu.max", "max 100000\n")
    assert usable_memory(tmp_path, own) == 50_000_000
    assert usable_cores(tmp_path, own) == 0.5


def test_the_first_version_of_groups_counts_too(tmp_path: Path, own: Path) -> None:
    write(own, "4:memory:/box\n3:cpu,cpuacct:/box\nnonsense\n")
    write(tmp_path / "memory/box/memory.limit_in_bytes", "40000000")
    write(tmp_path / "cpu/box/cpu.cfs_quota_us", "25000")
    write(tmp_path / "cpu/box/cpu.cfs_period_us", "100000")
    assert usable_memory(tmp_path, own) == 40_000_000
    assert usable_cores(tmp_path, own) == 0.25


def test_what_cannot_be_read_sets_no_limit(tmp_path: Path, own: Path) -> None:
    write(own, "0::/x\n")
    write(tmp_path / "x/memory.max", "lots")
    write(tmp_path / "x/cpu.max", "-1 0")
    assert usable_memory(tmp_path, own) == usable_memory(tmp_path / "none", own)
    assert usable_cores(tmp_path, own) == usable_cores(tmp_path / "none", own)
