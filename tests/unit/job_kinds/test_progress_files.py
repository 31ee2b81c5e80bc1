"""Programs say how far they have come in a file, which can do nothing else."""

import os

import pytest

from hourhand.job_kinds.progress_files import PROGRESS_FILE, ProgressFiles, said_in


@pytest.fixture
def files():
    return ProgressFiles(look_seconds=0.005)


@pytest.fixture
async def said(files, tmp_path):
    said = []
    files.watch(tmp_path, lambda *words: said.append(words))
    yield said
    files.forget(tmp_path)


async def test_the_last_line_counts_and_is_told_once(said, tmp_path, until):
    file = tmp_path / PROGRESS_FILE
    file.write_text("10 began\n40 halfway\n")
    await until(lambda: said)
    with file.open("a") as more:
        more.write("x" * 10_000 + "\n70% most of it\n\n")
    await until(lambda: len(said) > 1)
    file.write_text("counting the rest\n")
    await until(lambda: len(said) > 2)
    assert said == [(40, "halfway"), (70, "most of it"), (None, "counting the rest")]


def linked(path):
    """To a file of somebody else, where the machine allows that."""
    path.with_name("a secret").write_text("99 hunter2\n")
    os.link(path.with_name("a secret"), path)


def of_another_user(path):
    path.write_text("99 hunter2\n")
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    else:
        path.unlink()


@pytest.mark.parametrize("make", [
    lambda path: path.symlink_to("/etc/hostname"),
    linked,
    of_another_user,
    os.mkfifo,
    lambda path: path.mkdir(),
    lambda path: path.write_bytes(b"\n\n"),
])  # fmt: skip
async def test_whatever_is_in_the_place_of_the_file_does_no_harm(files, said, tmp_path, until, make):
    make(tmp_path / PROGRESS_FILE)
    other = tmp_path / "other"
    other.mkdir()
    (other / PROGRESS_FILE).write_text("1 alive")
    heard = []
    files.watch(other, lambda *words: heard.append(words))
    await until(lambda: heard)
    assert said == []
    files.forget(other)


async def test_a_program_that_is_over_is_not_looked_at(files, said, tmp_path, until):
    files.forget(tmp_path)
    (tmp_path / PROGRESS_FILE).write_text("1 late")
    await until(lambda: files._timer is None)
    assert said == []


def test_lines_are_read_as_people_write_them():
    assert said_in(b"40 halfway there") == (40, "halfway there")
    assert said_in(b" 33.5%   a third ") == (33.5, "a third")
    assert said_in(b"100") == (100, "")
    assert said_in(b"copying \xff files") == (None, "copying � files")
    assert said_in(b'{"state": "succeeded"}') == (None, '{"state": "succeeded"}')
