"""Folders that a stranger has filled are gone through to their end, and nothing beside them is touched."""

import os
import resource
import threading
import time

import pytest

from hourhand.job_kinds.deep_folders import entries_below
from hourhand.job_kinds.work_folders import remove

LONG = "n" * 200


def dig(top, depth, file=None):
    """Folders in folders, far beyond the length of a path."""
    handle = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(LONG, dir_fd=handle)
        below = os.open(LONG, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    if file is not None:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, dir_fd=handle))
    os.close(handle)


@pytest.fixture
def top(tmp_path):
    made = tmp_path / "top"
    made.mkdir()
    yield made
    remove(made)


@pytest.fixture
def few_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_folders_are_gone_through_and_removed_however_deep_they_are(top, few_descriptors):
    dig(top, 5000, "at the end")
    (top / "beside").touch()
    names = [entry.name for entry in entries_below(top)]
    assert (len(names), names.count(LONG)) == (5002, 5000)
    assert {"at the end", "beside"} < set(names)
    remove(top)
    assert not top.exists()


def test_however_many_there_are_beside_each_other_all_are_removed(top):
    for number in range(1100):
        (top / f"file {number}").touch()
        (top / f"folder {number}").mkdir()
        (top / f"folder {number}" / "inner").touch()
    assert sum(1 for _ in entries_below(top)) == 3300
    remove(top)
    assert not top.exists()


def test_others_go_on_meanwhile(top):
    """The executor's loop waits for nobody who clears up in a thread."""
    dig(top, 1000)
    for number in range(5000):
        (top / str(number)).touch()
    clearing = threading.Thread(target=remove, args=(top,))
    clearing.start()
    turns = 0
    while clearing.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5
    assert not top.exists()


def test_links_are_removed_and_not_followed(top, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (top / "inner").mkdir()
    (top / "inner" / "link").symlink_to(tmp_path / "precious")
    assert sorted(entry.name for entry in entries_below(top)) == ["inner", "link"]
    remove(top)
    assert not top.exists()
    assert (tmp_path / "precious" / "file").exists()
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    remove(tmp_path / "link")
    assert (tmp_path / "precious" / "file").exists()


def test_a_folder_that_is_moved_away_meanwhile_takes_nothing_else_along(top, tmp_path):
    for name in "ab":
        (top / name / f"in {name}" / f"{name} last").mkdir(parents=True)
        (top / name / f"in {name}" / f"{name} last" / "file").touch()
    (tmp_path / "outside").touch()
    seen = []
    for entry in entries_below(top):
        if entry.name.endswith("last") and not any(name.endswith("last") for name in seen):
            (top / entry.name[0] / f"in {entry.name[0]}").rename(tmp_path / "elsewhere")
        seen.append(entry.name)
    assert sorted(seen) == ["a", "a last", "b", "b last", "file", "file", "in a", "in b"]


def test_what_is_gone_is_no_fault(tmp_path):
    remove(tmp_path / "gone")
    (tmp_path / "file").touch()
    remove(tmp_path / "file")
    assert (tmp_path / "file").exists()
    with pytest.raises(NotADirectoryError):
        list(entries_below(tmp_path / "file"))
