"""More archives of strangers (S12): forged, overlapping, damaged at random. Whatever they are, nothing is made outside
of the folder, nothing grows beyond its limits, and every refusal is one of ours."""

import bz2
import gzip
import io
import lzma
import os
import random
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest
from test_archives import GOOD, LIMITS, everything_in, member, tarred, zipped

from hourhand.runtime.archives import ArchiveTooLarge, ArchiveUnreadable, ArchiveUnsafe, inspect, unpack

REFUSED = (ArchiveTooLarge, ArchiveUnreadable, ArchiveUnsafe)
MEMORY_BYTES_MAX = 30_000_000


def packed_as(method: int, content: bytes = b"a" * 5000) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("a", content)
    return file


def overlapping(count: int, size: int) -> io.BytesIO:
    """Many entries of the list that are all one and the same: what is small becomes large by being named often."""
    whole = zipped(("f0000", b"x" * size)).getvalue()
    end = whole.rindex(b"PK\x05\x06")
    begin = whole.index(b"PK\x01\x02")
    entry = whole[begin:end]
    entries = b"".join(entry.replace(b"f0000", b"f%04d" % number) for number in range(count))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), begin, 0)
    return io.BytesIO(whole[:begin] + entries + tail)


def renamed_in_the_list(name: bytes) -> io.BytesIO:
    """What the list calls by a harmless name, and the entry itself by another."""
    whole = zipped(("harmless", b"x")).getvalue()
    begin = whole.index(b"PK\x01\x02")
    return io.BytesIO(whole[:begin].replace(b"harmless", name.ljust(8, b"x")) + whole[begin:])


def with_notes(notes: dict[str, str]) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("harmless")
        entry.size, entry.pax_headers = 1, notes
        archive.addfile(entry, io.BytesIO(b"x"))
    return file


def judged(file: io.BytesIO, form: str, folder: Path) -> str:
    """What becomes of it: unpacked, or the class of the refusal."""
    try:
        inspect(file, form, LIMITS)
        unpack(file, form, folder, LIMITS)
    except REFUSED as refused:
        return type(refused).__name__
    return "unpacked"


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_rare_method_is_refused_before_it_can_ask_for_memory(method: int, tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnreadable, match="store or deflate"):
        inspect(packed_as(method), "zip", LIMITS)
    inner = packed_as(method).getvalue()
    assert judged(zipped(("inner.zip", inner)), "zip", tmp_path) == "unpacked", "it stays packed, as any file"


def test_a_dictionary_of_gigabytes_is_never_made(tmp_path: Path) -> None:
    """Of LZMA, where four bytes say how large it is."""
    whole = bytearray(packed_as(zipfile.ZIP_LZMA).getvalue())
    place = whole.index(b"\x5d\x00\x00", 30) + 1  # the properties: lc/lp/pb, then the size
    whole[place : place + 4] = struct.pack("<L", 0xFFFF_FFFF)
    tracemalloc.start()
    try:
        assert judged(io.BytesIO(bytes(whole)), "zip", tmp_path) == "ArchiveUnreadable"
        assert tracemalloc.get_traced_memory()[1] < MEMORY_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("packed", [bz2.compress(b"x" * 5000), lzma.compress(b"x" * 5000), b"\x1f\x9d\x90x"])
@pytest.mark.parametrize("form", ["tar", "tar.gz", "zip"])
def test_what_is_packed_otherwise_than_it_says_is_refused(packed: bytes, form: str, tmp_path: Path) -> None:
    assert judged(io.BytesIO(packed), form, tmp_path) == "ArchiveUnreadable"


@pytest.mark.parametrize(("count", "size"), [(40, 90_000), (49, 3000), (2000, 10)])
def test_entries_that_lie_on_top_of_each_other_count_each_for_itself(count: int, size: int, tmp_path: Path) -> None:
    assert judged(overlapping(count, size), "zip", tmp_path) != "unpacked"
    assert sum(len(content) for content in everything_in(tmp_path).values()) <= LIMITS.bytes_max


@pytest.mark.parametrize("name", [b"../../ev", b"/etc/eee", b"a\\b\\c\\d", b"other123"])
def test_an_entry_that_calls_itself_otherwise_than_the_list_does_is_not_unpacked(name: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    assert judged(renamed_in_the_list(name), "zip", folder) == "ArchiveUnreadable"
    assert set(everything_in(tmp_path)) <= {"in/here/harmless"}


@pytest.mark.parametrize(
    ("notes", "becomes"),
    [
        ({"path": "../evil"}, "ArchiveUnsafe"),
        ({"path": "/etc/evil"}, "ArchiveUnsafe"),
        ({"path": "a\0b"}, "ArchiveUnsafe"),
        ({"path": "x/" * 40 + "y"}, "ArchiveUnsafe"),
        ({"size": "999999999999"}, "ArchiveTooLarge"),
        ({"size": "-1"}, "ArchiveUnreadable"),
        ({"size": "lots"}, "unpacked"),  # as a file with nothing in it
        ({"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "../e"}, "refused"),
        ({"GNU.sparse.map": "0,1", "GNU.sparse.size": "99999999999"}, "refused"),
        ({"linkpath": "/etc/passwd"}, "unpacked"),
        ({"mtime": "inf", "uid": "99999999999999999999", "uname": "root", "SCHILY.xattr.user.x": "y"}, "unpacked"),
        ({"hdrcharset": "BINARY", "path": "ok"}, "unpacked"),
    ],
)
def test_notes_of_a_tar_file_are_judged_like_what_they_replace(
    notes: dict[str, str], becomes: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    found = judged(with_notes(notes), "tar", folder)
    assert found == becomes or (becomes == "refused" and found != "unpacked"), found
    assert all(name.startswith("in/here/") for name in everything_in(tmp_path))
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o7777])
def test_no_right_to_be_another_user_comes_out_of_an_archive(mode: int, tmp_path: Path) -> None:
    assert judged(tarred(member("run", b"x", mode=mode)), "tar", tmp_path) == "unpacked"
    assert (tmp_path / "run").stat().st_mode & 0o7777 == 0o555


def test_what_lies_behind_the_end_of_an_archive_is_not_looked_at(tmp_path: Path) -> None:
    first, evil = tarred(member("a", b"x")).getvalue(), tarred(member("../evil", b"x")).getvalue()
    assert judged(io.BytesIO(first + evil), "tar", tmp_path) == "unpacked"
    assert set(everything_in(tmp_path)) == {"a"}


def test_a_stream_of_gzip_in_many_pieces_has_one_limit() -> None:
    for size, fits in ((40_000, True), (60_000, False)):
        whole = tarred(member("a", b"x" * size), member("b", b"y" * size)).getvalue()
        pieces = b"".join(gzip.compress(whole[at : at + 5000]) for at in range(0, len(whole), 5000))
        if fits:
            assert inspect(io.BytesIO(pieces), "tar.gz", LIMITS).size == 2 * size
        else:
            with pytest.raises(ArchiveTooLarge):
                inspect(io.BytesIO(pieces), "tar.gz", LIMITS)


@pytest.mark.parametrize("form", GOOD)
@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_damaged_at_random_is_unpacked_within_its_folder_or_refused_in_our_words(
    form: str, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    whole = GOOD[form].getvalue()
    for number in range(150):
        forged = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            place = chance.randrange(len(forged))
            match chance.randrange(4):
                case 0:
                    forged[place] = chance.randrange(256)
                case 1:
                    forged[place : place + 4] = chance.choice((b"\xff" * 4, b"\x00" * 4, b"../x", b"\x7f\xff\xff\xff"))
                case 2:
                    del forged[place : place + chance.randrange(1, 40)]
                case _:
                    forged[place:place] = chance.randbytes(chance.randrange(1, 40))
            if not forged:
                forged = bytearray(b"x")
        folder = tmp_path / f"{number}" / "in"
        folder.mkdir(parents=True)
        judged(io.BytesIO(bytes(forged)), form, folder)  # raises nothing else
        made = list((tmp_path / f"{number}").rglob("*"))
        assert all(path == folder or folder in path.parents for path in made)
        assert not any(path.is_symlink() or not (path.is_file() or path.is_dir()) for path in made)
        assert sum(path.stat().st_size for path in made if path.is_file()) <= LIMITS.bytes_max


@pytest.mark.parametrize("name", [".", "././.", "./."])
def test_a_file_without_a_name_is_refused(name: str, tmp_path: Path) -> None:
    assert judged(tarred(member(name, b"x")), "tar", tmp_path) == "ArchiveUnsafe"
    assert judged(zipped((name, b"x")), "zip", tmp_path) == "ArchiveUnsafe"


def test_an_entry_of_a_zip_file_whose_name_is_nothing_is_refused(tmp_path: Path) -> None:
    """The library ends a name at its first NUL, and then stumbles over one that has no character left."""
    whole = zipped(("aname", b"x")).getvalue().replace(b"aname", b"\0name")
    assert judged(io.BytesIO(whole), "zip", tmp_path) == "ArchiveUnsafe"


def test_a_name_for_the_folder_itself_makes_nothing(tmp_path: Path) -> None:
    for name in (".", "./", "././."):
        assert judged(tarred(member(name, kind=tarfile.DIRTYPE)), "tar", tmp_path) == "unpacked"
    assert os.listdir(tmp_path) == []
