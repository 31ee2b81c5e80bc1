"""Archives of strangers: what is harmless is unpacked within its folder, everything else is refused as a whole."""

import gzip
import io
import os
import stat
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from hourhand.runtime.archives import (
    ArchiveLimits,
    ArchiveTooLarge,
    ArchiveUnreadable,
    ArchiveUnsafe,
    Contents,
    inspect,
    unpack,
)

LIMITS = ArchiveLimits(entries_max=50, bytes_max=100_000)


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, mode: int = 0o644, link: str = "") -> tuple:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.mode, entry.linkname = len(content), kind, mode, link
    return entry, content


def tarred(*members: tuple, form: str = "tar") -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz" if form == "tar.gz" else "w") as archive:
        for entry, content in members:
            archive.addfile(entry, io.BytesIO(content) if content else None)
    return file


def with_mode(name: str, mode: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    return entry


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


GOOD = {
    "zip": zipped((with_mode("bin/run.sh", 0o100755), b"#!/bin/sh\n"), ("./data/a.txt", b"a" * 1000), ("empty/", b"")),
    "tar": tarred(
        member("bin/run.sh", b"#!/bin/sh\n", mode=0o755), member("./data/a.txt", b"a" * 1000),
        member("empty", kind=tarfile.DIRTYPE),
    ),
    "tar.gz": tarred(
        member("bin/run.sh", b"#!/bin/sh\n", mode=0o755), member("./data/a.txt", b"a" * 1000),
        member("empty", kind=tarfile.DIRTYPE), form="tar.gz",
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", GOOD)
def test_a_harmless_archive_is_unpacked_for_reading_and_starting_only(form: str, tmp_path: Path) -> None:
    assert inspect(GOOD[form], form, LIMITS) == Contents(3, 1010)
    assert unpack(GOOD[form], form, tmp_path, LIMITS) == Contents(3, 1010)

    assert everything_in(tmp_path) == {"bin/run.sh": b"#!/bin/sh\n", "data/a.txt": b"a" * 1000}
    assert (tmp_path / "empty").is_dir()
    assert stat.S_IMODE((tmp_path / "bin/run.sh").stat().st_mode) == 0o555
    assert stat.S_IMODE((tmp_path / "data/a.txt").stat().st_mode) == 0o444


UNSAFE_NAMES = [
    "../evil", "a/../../evil", "/etc/evil", "a/..", "C:evil", "a\\..\\evil", "a\nb", "a\x07b", "x" * 300,
    "a/" * 40 + "b",
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE_NAMES)
@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
def test_a_path_that_leads_elsewhere_or_is_none_is_refused(form: str, name: str, tmp_path: Path) -> None:
    content = (member("good", b"x"), member(name, b"x"))
    file = zipped(("good", b"x"), (name, b"x")) if form == "zip" else tarred(*content, form=form)
    with pytest.raises(ArchiveUnsafe):
        inspect(file, form, LIMITS)
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(ArchiveUnsafe):
        unpack(file, form, inside, LIMITS)
    assert set(os.listdir(tmp_path)) == {"inside"}


@pytest.mark.parametrize(
    "entry",
    [
        member("link", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        member("link", kind=tarfile.SYMTYPE, link="inside"),
        member("link", kind=tarfile.LNKTYPE, link="/etc/passwd"),
        member("device", kind=tarfile.CHRTYPE),
        member("device", kind=tarfile.BLKTYPE),
        member("pipe", kind=tarfile.FIFOTYPE),
    ],
)
def test_links_and_devices_are_refused(entry: tuple) -> None:
    with pytest.raises(ArchiveUnsafe):
        inspect(tarred(entry), "tar", LIMITS)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_in_a_zip_file_are_refused(kind: int) -> None:
    with pytest.raises(ArchiveUnsafe):
        inspect(zipped((with_mode("x", kind | 0o777), b"/etc/passwd")), "zip", LIMITS)


def test_a_file_through_a_link_of_the_same_archive_is_refused() -> None:
    with pytest.raises(ArchiveUnsafe):
        inspect(tarred(member("a", kind=tarfile.SYMTYPE, link="/tmp"), member("a/evil", b"x")), "tar", LIMITS)


@pytest.mark.parametrize("names", [["a", "a"], ["a", "a/b"], ["a/b", "a"], ["./a", "a"], ["a//b", "a/b"]], ids=" ".join)
@pytest.mark.parametrize("form", ["zip", "tar"])
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_that_want_one_place_are_refused(form: str, names: list[str]) -> None:
    file = zipped(*((name, b"x") for name in names)) if form == "zip" else tarred(*(member(n, b"x") for n in names))
    with pytest.raises(ArchiveUnsafe):
        inspect(file, form, LIMITS)


def test_a_name_with_a_nul_is_refused() -> None:
    raw = bytearray(zipped(("good_evil", b"x")).getvalue())
    with pytest.raises(ArchiveUnsafe):
        inspect(io.BytesIO(bytes(raw).replace(b"good_evil", b"good\0evil")), "zip", LIMITS)


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
def test_a_bomb_is_refused_before_it_goes_off(form: str, tmp_path: Path) -> None:
    zeros = bytes(200_000)
    file = zipped(("zeros", zeros)) if form == "zip" else tarred(member("zeros", zeros), form=form)
    with pytest.raises(ArchiveTooLarge):
        inspect(file, form, LIMITS)
    with pytest.raises(ArchiveTooLarge):
        unpack(file, form, tmp_path, LIMITS)
    assert everything_in(tmp_path) == {}


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
def test_too_many_entries_are_refused(form: str) -> None:
    names = [f"f{number}" for number in range(51)]
    file = zipped(*((n, b"") for n in names)) if form == "zip" else tarred(*(member(n) for n in names), form=form)
    with pytest.raises(ArchiveTooLarge):
        inspect(file, form, LIMITS)


def test_many_small_files_that_are_large_together_are_refused() -> None:
    with pytest.raises(ArchiveTooLarge):
        inspect(zipped(*((f"f{number}", bytes(9000)) for number in range(20))), "zip", LIMITS)


def test_a_header_that_is_as_large_as_a_bomb_is_refused() -> None:
    """A note of a gigabyte is packed into a megabyte, and whoever reads it in one piece is out of memory."""
    entry = tarfile.TarInfo("././@PaxHeader")
    entry.type, entry.size = tarfile.XHDTYPE, 1 << 30
    file = io.BytesIO()
    with gzip.GzipFile(fileobj=file, mode="wb") as packed:
        packed.write(entry.tobuf(tarfile.USTAR_FORMAT))
        packed.write(bytes(4 << 20))
    with pytest.raises(ArchiveTooLarge):
        inspect(file, "tar.gz", LIMITS)


@pytest.mark.parametrize("name", [b"evil", b"././@LongLink"])
def test_a_size_below_nothing_is_refused(name: bytes) -> None:
    """Such a member leads a careless reader in circles."""
    header = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 12
    if name != b"evil":
        header[156:157] = tarfile.GNUTYPE_LONGNAME
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    with pytest.raises((ArchiveUnreadable, ArchiveTooLarge)):
        inspect(io.BytesIO(bytes(header) + bytes(10240)), "tar", LIMITS)


def test_a_zip_file_that_lies_about_its_sizes_makes_no_more_than_it_said(tmp_path: Path) -> None:
    honest = zipped(("zeros", bytes(200_000))).getvalue()
    lying = honest.replace(struct.pack("<L", 200_000), struct.pack("<L", 10))
    with pytest.raises((ArchiveUnreadable, ArchiveTooLarge)):
        unpack(io.BytesIO(lying), "zip", tmp_path, LIMITS)
    assert sum(len(content) for content in everything_in(tmp_path).values()) <= 10


def test_an_encrypted_entry_is_refused() -> None:
    raw = bytearray(zipped(("secret", b"x")).getvalue())
    at = raw.index(b"PK\x01\x02")
    raw[at + 8] |= 1
    with pytest.raises(ArchiveUnreadable):
        inspect(io.BytesIO(bytes(raw)), "zip", LIMITS)


@pytest.mark.parametrize("form", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("content", [b"", b"not an archive at all", b"PK\x03\x04", b"\x1f\x8b", os.urandom(3000)])
def test_what_is_no_archive_is_told_so(form: str, content: bytes) -> None:
    with pytest.raises(ArchiveUnreadable):
        inspect(io.BytesIO(content), form, LIMITS)


@pytest.mark.parametrize("form", ["zip", "tar.gz"])
def test_half_an_archive_is_told_so(form: str, tmp_path: Path) -> None:
    whole = zipped(("a", os.urandom(5000))) if form == "zip" else tarred(member("a", os.urandom(5000)), form=form)
    with pytest.raises(ArchiveUnreadable):
        unpack(io.BytesIO(whole.getvalue()[:3000]), form, tmp_path, LIMITS)


def test_an_archive_in_an_archive_stays_packed(tmp_path: Path) -> None:
    inner = zipped(("zeros", bytes(90_000))).getvalue()
    unpack(zipped(("inner.zip", inner)), "zip", tmp_path, LIMITS)
    assert everything_in(tmp_path) == {"inner.zip": inner}


def packed_in(form: str, *entries: tuple[str, bytes]) -> io.BytesIO:
    return (
        zipped(*entries) if form == "zip" else tarred(*(member(name, content) for name, content in entries), form=form)
    )


@pytest.mark.parametrize("outer", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("inner", ["zip", "tar.gz"])
def test_archives_inside_count_with_what_they_would_become(outer: str, inner: str) -> None:
    """As the famous zip of zips: each level is harmless by itself, and all of them together fill every disk."""
    bomb = packed_in(inner, ("zeros", bytes(60_000))).getvalue()
    one = packed_in(outer, (f"a.{inner}", bomb))
    two = packed_in(outer, (f"a.{inner}", bomb), (f"b.{inner}", bomb))
    assert inspect(one, outer, LIMITS).entries == 1
    with pytest.raises(ArchiveTooLarge):
        inspect(two, outer, LIMITS)


def test_entries_of_archives_inside_count_too() -> None:
    crowd = zipped(*((f"f{number}", b"") for number in range(30))).getvalue()
    with pytest.raises(ArchiveTooLarge):
        inspect(zipped(("a.zip", crowd), ("b.zip", crowd)), "zip", LIMITS)


def test_archives_packed_into_each_other_too_often_are_refused() -> None:
    content = b"x"
    for depth in range(5):
        content = zipped((f"{depth}.zip" if depth else "plain", content)).getvalue()
        if depth < 4:
            inspect(io.BytesIO(content), "zip", LIMITS)
    with pytest.raises(ArchiveTooLarge):
        inspect(io.BytesIO(content), "zip", LIMITS)


def test_a_bomb_inside_does_not_hide_behind_a_link_or_a_password() -> None:
    link = tarred(member("a", kind=tarfile.SYMTYPE, link="/tmp"), member("zeros", bytes(200_000)), form="tar.gz")
    locked = zipped(("secret", b"x"), ("zeros", bytes(200_000))).getvalue()
    at = locked.index(b"PK\x01\x02")
    locked = locked[: at + 8] + bytes([locked[at + 8] | 1]) + locked[at + 9 :]
    for name, inner in (("a.tar.gz", link.getvalue()), ("a.zip", locked)):
        with pytest.raises(ArchiveTooLarge):
            inspect(zipped((name, inner)), "zip", LIMITS)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + bytes(100)])
def test_a_file_that_is_only_called_an_archive_is_a_file(content: bytes) -> None:
    assert inspect(zipped(("a.zip", content)), "zip", LIMITS) == Contents(1, len(content))


def test_a_list_of_entries_that_is_as_large_as_a_bomb_is_not_even_read() -> None:
    """Every entry in it would cost a thousand bytes of memory before the first could be judged."""
    entry = zipped(("f", b"")).getvalue()
    at = entry.index(b"PK\x01\x02")
    listed = entry[at : entry.index(b"PK\x05\x06")]
    count = (1 << 20) // len(listed) + 1
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, count * len(listed), at, 0)
    with pytest.raises(ArchiveTooLarge, match="list of entries"):
        inspect(io.BytesIO(entry[:at] + listed * count + end), "zip", LIMITS)
