"""Looks into archives of strangers and unpacks them, within limits and within one folder.

An archive can name paths outside the folder, links, devices, and content that is a thousand times its size. Nothing of
that is ever made: an archive with any of it is refused as a whole. Both functions read a file and block; they are for
threads.
"""

import gzip
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NamedTuple, cast

from hourhand.model.artifacts import form_of
from hourhand.model.resources import tell_size

ENTRIES_MAX: Final = 10_000
UNPACKED_BYTES_MAX: Final = 512 << 20
_READ_BYTES_MAX: Final = 1 << 20
"""Names and notes of a member are read at once; larger ones are no names."""
_COPY_BYTES: Final = 1 << 18
_PATH_BYTES_MAX: Final = 1024
_PART_BYTES_MAX: Final = 255
_DEPTH_MAX: Final = 32
_NESTED_MAX: Final = 3
"""Archives within archives; whoever packs deeper means harm."""
_LISTED_BYTES: Final = 400
"""What an entry may take in the list of a zip file, on average. The list is read at once, and each entry in it costs
memory."""


_KNOWN_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Others are hardly used, and one of them lets a few bytes ask for gigabytes of memory before anything is unpacked."""
_DAMAGED: Final = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""What the libraries raise for bytes that make no sense to them."""


class ArchiveUnsafe(Exception):
    """It has a member that must not be made."""


class ArchiveTooLarge(Exception):
    """It would become more than is allowed."""


class ArchiveUnreadable(Exception):
    """It is not what it says it is."""


class ArchiveLimits(NamedTuple):
    entries_max: int = ENTRIES_MAX
    """Files and folders."""
    bytes_max: int = UNPACKED_BYTES_MAX
    """Of all files together, and once more of those in archives within it."""

    def tell_bytes(self) -> str:
        return f"{tell_size(self.bytes_max)} (kinds.artifact_unpacked_bytes_max)"

    def tell_entries(self) -> str:
        return f"{self.entries_max} entries (kinds.artifact_entries_max)"


class Contents(NamedTuple):
    entries: int
    size: int
    """Bytes of all files."""


class _Member(NamedTuple):
    path: str
    is_folder: bool
    is_program: bool
    size: int
    handle: Any


def inspect(file: BinaryIO, form: str, limits: ArchiveLimits) -> Contents:
    """What the archive holds. Raises whatever keeps it from being unpacked.

    Archives inside of it stay packed here, but a job may unpack them: together they must not become more than the
    archive itself may."""
    entries = size = 0
    room = _Room(limits)
    with _opened(file, form, limits) as archive:
        for member in _checked(archive.members(), limits):
            entries, size = entries + 1, size + member.size
            _weigh_inner(archive, member, room, 1)
    return Contents(entries, size)


def unpack(file: BinaryIO, form: str, folder: Path, limits: ArchiveLimits) -> Contents:
    """Makes the files in an empty folder: everybody may read them and start the programs, nobody may write."""
    entries = size = 0
    with _opened(file, form, limits) as archive:
        for member in _checked(archive.members(), limits):
            entries += 1
            place = folder / member.path
            if member.is_folder:
                place.mkdir(parents=True, exist_ok=True)
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            size += _copy(archive, member, place)
    return Contents(entries, size)


class _Room:
    """What archives within an archive may still become, all of them together."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self.limits = limits
        self._entries = limits.entries_max
        self._bytes = limits.bytes_max

    def take(self, path: str, entries: int, size: int) -> None:
        self._entries -= entries
        self._bytes -= size
        if self._entries < 0 or self._bytes < 0:
            most = f"{self.limits.tell_entries()} or {self.limits.tell_bytes()}"
            raise ArchiveTooLarge(f"with the archives inside of {path[:100]!r} it would become more than {most}")


def _weigh_inner(archive: "_Tar | _Zip", member: _Member, room: _Room, depth: int) -> None:
    """Counts what is in a member that is an archive itself. One that cannot be read is a file like any other."""
    form = form_of(member.path)
    if member.is_folder or form == "file":
        return
    if depth > _NESTED_MAX:
        raise ArchiveTooLarge(f"{member.path[:100]!r} is an archive within {_NESTED_MAX} others")
    room.take(member.path, 0, member.size)
    with tempfile.TemporaryFile(prefix="hourhand-inner-") as inner:
        _copy_content(archive, member, inner)
        try:
            with _opened(inner, form, room.limits) as nested:
                for each in nested.members(judged=False):
                    room.take(member.path, 1, each.size)
                    _weigh_inner(nested, each, room, depth + 1)
        except ArchiveUnreadable:
            return


def _copy(archive: "_Tar | _Zip", member: _Member, place: Path) -> int:
    mode = 0o555 if member.is_program else 0o444
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(place, flags, 0o600), "wb") as target:
        written = _copy_content(archive, member, target)
        os.fchmod(target.fileno(), mode)
    return written


def _copy_content(archive: "_Tar | _Zip", member: _Member, target: IO[bytes]) -> int:
    written = 0
    with archive.open(member) as source:
        while piece := _read(source):
            written += len(piece)
            if written > member.size:
                raise ArchiveTooLarge(f"{member.path!r} is larger than it says")
            target.write(piece)
    return written


def _read(source: IO[bytes]) -> bytes:
    try:
        return source.read(_COPY_BYTES)
    except _DAMAGED as error:
        raise ArchiveUnreadable(f"it is damaged: {error}") from None


def _checked(members: Iterator[_Member], limits: ArchiveLimits) -> Iterator[_Member]:
    """The members with their paths made plain, as long as all is well."""
    entries = size = 0
    kinds: dict[str, bool] = {}
    for member in members:
        entries, size = entries + 1, size + member.size
        if entries > limits.entries_max:
            raise ArchiveTooLarge(f"it has more than {limits.tell_entries()}")
        if size > limits.bytes_max:
            raise ArchiveTooLarge(f"it would become more than {limits.tell_bytes()}")
        path = _plain(member.path)
        if path:
            _note(path, member.is_folder, kinds)
            yield member._replace(path=path)
        elif not member.is_folder:  # else it is the folder itself
            raise ArchiveUnsafe(f"{member.path[:100]!r} is no name for a file")


def _note(path: str, is_folder: bool, kinds: dict[str, bool]) -> None:
    """Two members must not want one place for different things."""
    parts = path.split("/")
    for depth in range(1, len(parts)):
        if not kinds.setdefault("/".join(parts[:depth]), True):
            raise ArchiveUnsafe(f"{path[:100]!r} lies in a file")
    if kinds.setdefault(path, is_folder) != is_folder or (not is_folder and kinds.get(f"{path}\0") is not None):
        raise ArchiveUnsafe(f"{path[:100]!r} is there twice")
    if not is_folder:
        kinds[f"{path}\0"] = False


def _plain(path: str) -> str:
    """The path without dots, below the folder. Raises for one that leads elsewhere or cannot be a path."""
    shown = path[:100]
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise ArchiveUnsafe(f"{shown!r} is not a name in UTF-8") from None
    if path.startswith("/") or "\\" in path or (len(path) > 1 and path[1] == ":"):
        raise ArchiveUnsafe(f"{shown!r} is not a path inside the archive")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        raise ArchiveUnsafe(f"{shown!r} has control characters")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ArchiveUnsafe(f"{shown!r} leads out of the archive")
    if len(encoded) > _PATH_BYTES_MAX or len(parts) > _DEPTH_MAX:
        raise ArchiveUnsafe(f"{shown!r}… is too long or too deep for a path")
    if any(len(part.encode()) > _PART_BYTES_MAX for part in parts):
        raise ArchiveUnsafe(f"{shown!r}… has a name of more than {_PART_BYTES_MAX} bytes")
    return "/".join(parts)


# --- forms ------------------------------------------------------------------------------------------------


def _opened(file: BinaryIO, form: str, limits: ArchiveLimits) -> "closing[_Tar | _Zip]":
    file.seek(0)
    return closing(_Zip(file, limits) if form == "zip" else _Tar(file, form == "tar.gz", limits))


class _Zip:
    def __init__(self, file: BinaryIO, limits: ArchiveLimits) -> None:
        at_once = max(limits.entries_max * _LISTED_BYTES, _READ_BYTES_MAX)
        try:
            self._zip = zipfile.ZipFile(cast(IO[bytes], _Guarded(file, at_once=at_once, what="list of entries")))
        except _DAMAGED as error:
            raise ArchiveUnreadable(f"this is not a zip file: {error}") from None

    def members(self, judged: bool = True) -> Iterator[_Member]:
        """Not `judged`: whatever they are."""
        for entry in self._zip.infolist():
            mode = entry.external_attr >> 16
            kind = stat.S_IFMT(mode)
            if judged and entry.flag_bits & 0x1:
                raise ArchiveUnreadable(f"{entry.filename[:100]!r} is encrypted")
            if judged and entry.compress_type not in _KNOWN_METHODS:
                raise _packed_otherwise(entry.filename)
            if judged and kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise ArchiveUnsafe(f"{entry.filename[:100]!r} is neither a file nor a folder")
            # `filename` ends at a NUL and has slashes in the place of others; what was written is what is judged.
            folder = entry.filename.endswith("/") or kind == stat.S_IFDIR
            size = 0 if folder else entry.file_size
            yield _Member(entry.orig_filename, folder, bool(mode & 0o111), size, entry)

    def open(self, member: _Member) -> IO[bytes]:
        entry = cast(zipfile.ZipInfo, member.handle)
        if entry.compress_type not in _KNOWN_METHODS:
            raise _packed_otherwise(member.path)
        try:
            return self._zip.open(entry)
        except _DAMAGED as error:
            raise ArchiveUnreadable(f"it is damaged: {error}") from None

    def close(self) -> None:
        self._zip.close()


def _packed_otherwise(path: str) -> ArchiveUnreadable:
    return ArchiveUnreadable(f"{path[:100]!r} is packed in a way that is not known here: store or deflate it")


class _Tar:
    def __init__(self, file: BinaryIO, is_packed: bool, limits: ArchiveLimits) -> None:
        self._unpacked = gzip.GzipFile(fileobj=file, mode="rb") if is_packed else None
        # Beside the content there are headers, notes and what fills up blocks.
        bytes_max = limits.bytes_max + (limits.entries_max + 20) * 4096
        source = _Guarded(self._unpacked or file, bytes_max)
        try:
            self._tar = tarfile.TarFile(fileobj=cast(IO[bytes], source), errors="surrogateescape")
        except _DAMAGED as error:
            raise ArchiveUnreadable(f"this is not a {'gzipped ' if is_packed else ''}tar file: {error}") from None

    def members(self, judged: bool = True) -> Iterator[_Member]:
        """Not `judged`: whatever they are."""
        while True:
            try:
                entry = self._tar.next()
            except _DAMAGED as error:
                raise ArchiveUnreadable(f"it is damaged: {error}") from None
            if entry is None:
                return
            cast(Any, self._tar).members.clear()  # else all of them are remembered
            if judged and (not (entry.isfile() or entry.isdir()) or entry.issparse()):
                raise ArchiveUnsafe(f"{entry.name[:100]!r} is neither a file nor a folder")
            if entry.size < 0:
                raise ArchiveUnreadable(f"{entry.name[:100]!r} has no size")
            size = entry.size if entry.isfile() else 0
            yield _Member(entry.name, not entry.isfile(), bool(entry.mode & 0o111), size, entry)

    def open(self, member: _Member) -> IO[bytes]:
        found = self._tar.extractfile(cast(tarfile.TarInfo, member.handle))
        assert found is not None, "only files are opened"
        return found

    def close(self) -> None:
        self._tar.close()
        if self._unpacked is not None:
            self._unpacked.close()


class _Guarded:
    """A stream that gives out no more than allowed, and little at once: a header of a gigabyte is no header."""

    def __init__(
        self, source: Any, bytes_max: int | None = None, at_once: int = _READ_BYTES_MAX, what: str = "header"
    ) -> None:
        self._source = source
        self._bytes_max = bytes_max
        self._at_once = at_once
        self._what = what

    def read(self, count: int = -1) -> bytes:
        if count > self._at_once:
            raise self._too_large()
        data: bytes = self._source.read(count if count >= 0 else self._at_once + 1)
        if len(data) > self._at_once:
            raise self._too_large()
        return data

    def _too_large(self) -> ArchiveTooLarge:
        return ArchiveTooLarge(f"it has a {self._what} of more than {self._at_once} bytes")

    def seek(self, place: int, whence: int = 0) -> int:
        if self._bytes_max is not None and whence == 0 and place > self._bytes_max:
            raise ArchiveTooLarge(f"it would become more than {self._bytes_max} bytes")
        moved: int = self._source.seek(place, whence)
        return moved

    def tell(self) -> int:
        place: int = self._source.tell()
        return place

    def seekable(self) -> bool:
        return True
