"""What is taken from a folder that a job has filled, and what is not."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourhand.executor.output_folder import OutputFolder
from hourhand.job_kinds.work_folders import remove
from hourhand.model.run_blobs import NAME_PARTS_MAX


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    (tmp_path / "secret").write_text("not for you")
    return made


@pytest.fixture
def folder(path: Path) -> Iterator[OutputFolder]:
    opened = OutputFolder(path)
    yield opened
    opened.close()


def content(folder: OutputFolder, name: str) -> bytes:
    with open(folder.open_file(name), "rb") as file:
        return file.read()


def test_plain_files_are_found_by_their_path_in_the_order_of_names(folder: OutputFolder, path: Path) -> None:
    assert folder.is_empty()
    (path / "b.txt").write_text("two")
    (path / "a").mkdir()
    (path / "a" / "deep").mkdir()
    (path / "a" / "deep" / "x.bin").write_bytes(b"\x00")
    (path / "Übersicht 1.pdf").write_text("three")
    (path / "empty").touch()

    found = folder.look_through(100, 100)

    assert not folder.is_empty()
    assert found.names == ["a/deep/x.bin", "b.txt", "empty", "Übersicht 1.pdf"]
    assert (found.bytes, found.told()) == (9, [])
    assert content(folder, "a/deep/x.bin") == b"\x00"


def test_nothing_that_leads_elsewhere_or_never_ends_is_taken(folder: OutputFolder, path: Path) -> None:
    (path / "link").symlink_to(path.parent / "secret")
    (path / "folder-link").symlink_to(path.parent)
    os.link(path.parent / "secret", path / "hard-link")
    os.mkfifo(path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "socket"))
    (path / os.fsdecode(b"not-\xff-utf8")).touch()
    (path / "line\nbreak").touch()

    found = folder.look_through(100, 100)

    assert found.names == []
    assert found.left_out_count == 7
    assert "'link' is not kept: it is a symbolic link" in found.told()
    assert "'hard-link' is not kept: it has several names (hard links)" in found.told()
    assert "'pipe' is not kept: it is no plain file" in found.told()
    assert all(line.isprintable() for line in found.told())


def test_what_is_exchanged_after_the_look_is_not_read(folder: OutputFolder, path: Path) -> None:
    (path / "a").mkdir()
    (path / "a" / "x").write_text("mine")
    (path / "y").write_text("mine")
    assert folder.look_through(10, 10).names == ["a/x", "y"]

    (path / "a").rename(path / "b")
    (path / "a").symlink_to(path.parent)
    (path / "y").unlink()
    (path / "y").symlink_to(path.parent / "secret")

    for name in ("a/secret", "a/x", "y"):
        with pytest.raises(OSError, match=r"."):
            folder.open_file(name)


def test_a_folder_in_whose_place_a_link_stands_is_none(path: Path) -> None:
    (path.parent / "link").symlink_to(path)
    with pytest.raises(NotADirectoryError):
        OutputFolder(path.parent / "link")


def test_only_so_many_files_and_bytes_are_taken_and_the_rest_is_told(folder: OutputFolder, path: Path) -> None:
    for number in range(40):
        (path / f"{number:02}").write_bytes(b"x" * 10)
    with open(path / "00-sparse", "wb") as file:
        file.truncate(2**40)

    few = folder.look_through(10, 10**6)
    small = folder.look_through(1000, 95)

    assert len(few.names) == 10
    assert f"'00-sparse' is not kept: with its {2**40} bytes all files together have more than 1000000" in few.told()
    assert few.told()[-1] == "… and 11 more"
    assert (len(small.names), small.bytes) == (9, 90)


def test_a_forest_of_empty_folders_is_not_looked_through_for_ever(
    folder: OutputFolder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourhand.executor.output_folder.ENTRIES_MAX", 50)
    for one in range(12):
        for other in range(12):
            (path / f"{one:02}" / f"{other:02}").mkdir(parents=True)
    (path / "zzz").write_text("behind all of them")

    found = folder.look_through(100, 100)

    assert found.names == []
    assert found.entries <= 50 + 2  # of each folder that it was in, one more
    assert found.told() == ["'…' is not kept: more than 50 entries are in the folder"]


def test_folders_that_lie_too_deep_are_left(folder: OutputFolder, path: Path) -> None:
    deep = path
    for _ in range(NAME_PARTS_MAX + 3):
        deep = deep / "d"
        deep.mkdir()
        (deep / "file").touch()

    found = folder.look_through(1000, 1000)

    assert len(found.names) == NAME_PARTS_MAX - 1
    assert found.left_out_count == 2


def test_folders_beyond_the_length_of_any_path_are_left_out_and_the_rest_is_kept(
    folder: OutputFolder, path: Path
) -> None:
    (path / "kept").write_text("x")
    inside = os.open(path, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("n" * 200, dir_fd=inside)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=inside)
        os.close(inside)
        inside = below
    os.close(inside)
    found = folder.look_through(100, 100)
    assert (found.names, found.left_out_count) == (["kept"], 1)
    assert f"deeper than {NAME_PARTS_MAX} folders" in found.told()[0]
    remove(path)
    assert not path.exists()
