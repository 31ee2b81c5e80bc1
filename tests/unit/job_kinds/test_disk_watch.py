import os

import pytest

from hourhand.job_kinds.disk_watch import DiskWatch, Taken, taken_in
from hourhand.job_kinds.work_folders import remove

MB = 10**6
PLENTY = Taken(10**12, 10**9)


def limit(size):
    return PLENTY._replace(bytes=size)


def bytes_used(folder, size=PLENTY.bytes):
    return taken_in(folder, None, limit(size)).bytes


def test_every_file_counts_once_and_by_what_it_takes(tmp_path):
    empty = bytes_used(tmp_path)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_bytes(os.urandom(2 * MB))
    os.link(tmp_path / "deep" / "er" / "file", tmp_path / "again")
    (tmp_path / "link").symlink_to("/usr")
    with open(tmp_path / "holes", "wb") as file:
        file.truncate(500 * MB)
    assert 2 * MB <= bytes_used(tmp_path) - empty < 2.2 * MB


def test_nothing_hides_in_folders_that_are_deeper_than_any_path(tmp_path):
    empty = bytes_used(tmp_path)
    handle = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("n" * 200, dir_fd=handle)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    with open(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=handle), "wb") as file:
        file.write(os.urandom(2 * MB))
    os.close(handle)
    assert bytes_used(tmp_path) - empty >= 2 * MB
    remove(tmp_path)


def test_a_look_ends_when_it_has_seen_enough(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}").write_bytes(os.urandom(MB))
    assert MB < bytes_used(tmp_path, MB + 1) < 3 * MB


def test_what_is_gone_or_closed_takes_nothing(tmp_path):
    assert bytes_used(tmp_path / "gone") == 0
    (tmp_path / "file").touch()
    assert bytes_used(tmp_path / "file") == 0


def test_everything_that_has_a_name_counts_and_a_look_ends_when_there_is_too_much_of_it(tmp_path):
    (tmp_path / "folder").mkdir()
    for number in range(50):
        (tmp_path / "folder" / f"{number}").touch()
    (tmp_path / "link").symlink_to("/usr")
    assert taken_in(tmp_path, None, PLENTY).files == 52
    assert taken_in(tmp_path, None, PLENTY._replace(files=10)).files == 11


@pytest.fixture
async def watch():
    watch = DiskWatch(look_seconds=0.01)
    yield watch
    await watch.close()


async def test_who_takes_too_much_is_told_of_once(watch, tmp_path, until):
    told = []
    (tmp_path / "file").write_bytes(os.urandom(2 * MB))
    watched = watch.watch(tmp_path, None, limit(MB), told.append)
    await until(lambda: told)
    assert told[0].bytes >= 2 * MB
    assert watched.bytes_peak == told[0].bytes
    other = tmp_path / "other"
    other.mkdir()
    second = watch.watch(other, None, limit(MB), told.append)
    await until(lambda: second.bytes_peak is not None)
    assert len(told) == 1


async def test_who_makes_too_many_files_is_told_of(watch, tmp_path, until):
    told = []
    for number in range(20):
        (tmp_path / f"{number}").touch()
    watch.watch(tmp_path, None, PLENTY._replace(files=20), told.append)
    (tmp_path / "one more").touch()
    await until(lambda: told)
    assert told[0].files == 21


async def test_the_most_that_was_seen_is_kept(watch, tmp_path, until):
    watched = watch.watch(tmp_path, None, limit(100 * MB), lambda _: None)
    (tmp_path / "file").write_bytes(os.urandom(3 * MB))
    await until(lambda: (watched.bytes_peak or 0) >= 3 * MB)
    (tmp_path / "file").unlink()
    looked = watched.look_at
    await until(lambda: watched.look_at > looked)
    assert watched.bytes_peak >= 3 * MB


async def test_the_most_cache_that_was_seen_is_kept(watch, tmp_path, until):
    stat = tmp_path / "memory.stat"
    stat.write_text("anon 1\nfile 400\nshmem 100\n")
    watched = watch.watch(tmp_path, None, limit(100 * MB), lambda _: None, str(stat))
    await until(lambda: watched.cached_peak == 300)
    stat.write_text("anon 1\nfile 100\nshmem 100\n")
    looked = watched.look_at
    await until(lambda: watched.look_at > looked)
    assert watched.cached_peak == 300


async def test_nobody_looks_at_what_is_over(watch, tmp_path, until):
    told = []
    (tmp_path / "file").write_bytes(os.urandom(2 * MB))
    watched = watch.watch(tmp_path, None, limit(MB), told.append)
    watch.forget(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    later = watch.watch(other, None, limit(MB), told.append)
    await until(lambda: later.bytes_peak is not None)
    assert (told, watched.bytes_peak) == ([], None)


async def test_one_far_from_its_limit_is_left_alone_longer(watch, tmp_path, until):
    watched = watch.watch(tmp_path, None, limit(100 * 10**9), lambda _: None)
    began = watched.look_at
    await until(lambda: watched.bytes_peak is not None)
    assert 40 < watched.look_at - began < 70


async def test_one_far_from_its_limit_of_bytes_is_looked_at_as_often_as_files_may_come(watch, tmp_path, until):
    watched = watch.watch(tmp_path, None, Taken(10**15, 1_000_000), lambda _: None)
    began = watched.look_at
    await until(lambda: watched.bytes_peak is not None)
    assert 9 < watched.look_at - began < 25
