"""Uploaded code on an executor: fetched once, unpacked once, and put into the folders of attempts.

The cache belongs to the executor's user alone, so that no job sees what is not its own. An entry appears under its name
only when it is whole and its digest was right. Several executors of one machine may share a cache: whoever comes second
finds what the first has made, and an entry that is removed under somebody's hands is fetched again.
"""

import asyncio
import hashlib
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from hourhand.model.artifacts import Reference, signed_message
from hourhand.model.errors import BlobsUnavailable, DatabaseUnavailable
from hourhand.model.resources import tell_size
from hourhand.ports.artifact_stores import ArtifactLookup, ArtifactRow
from hourhand.ports.blobs import BlobMissing, Blobs
from hourhand.runtime import archives
from hourhand.runtime.signing import TrustedKeys

_INCOMING: Final = ".incoming"
_ABANDONED_SECONDS: Final = 86400.0
_PIECE_BYTES: Final = 1 << 18


class ArtifactUnavailable(Exception):
    """The code cannot be had. `may_pass`: perhaps a minute later it can."""

    def __init__(self, message: str, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class ArtifactCache:
    def __init__(
        self,
        folder: Path,
        bytes_max: int,
        lookup: ArtifactLookup,
        blobs: Blobs,
        trusted: TrustedKeys | None = None,
        limits: archives.ArchiveLimits | None = None,
    ) -> None:
        """`trusted`: whose signatures this executor asks for, by its own configuration and whatever the API did."""
        self._trusted = trusted or TrustedKeys()
        self._limits = limits or archives.ArchiveLimits()
        self._folder = folder
        self._bytes_max = bytes_max
        self._lookup = lookup
        self._blobs = blobs
        self._fetching: dict[str, asyncio.Task[None]] = {}
        self._sizes: dict[str, int] = {}
        """What each entry takes; those used longest ago first."""
        self._holders: Counter[str] = Counter()

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    async def find(self, namespace: str, reference: Reference) -> ArtifactRow:
        """What a job means. Raises ArtifactUnavailable."""
        try:
            row = await self._lookup.find_in(namespace, reference)
        except DatabaseUnavailable as error:
            raise ArtifactUnavailable(f"the database could not be asked for the artifact: {error}", True) from None
        if row is None:
            shown = reference.name or f"sha256:{reference.digest}"
            raise ArtifactUnavailable(f"there is no artifact {shown} in namespace {namespace}; upload it first", False)
        if self._trusted.required and self._signer(row) is None:
            message = f"artifact {row.name} sha256:{row.digest} is not signed by one of kinds.artifact_keys"
            raise ArtifactUnavailable(f"{message}, and this executor runs no others", False)
        return row

    def _signer(self, row: ArtifactRow) -> str | None:
        signature = row.signature
        return None if signature is None else self._trusted.signer(signed_message(row.name, row.digest), signature)

    @asynccontextmanager
    async def held(self, row: ArtifactRow) -> AsyncIterator[Path]:
        """The folder with its files, which stays while it is held. Attempts that want the same wait for one fetch."""
        entry = self._entry(row)
        self._holders[entry.name] += 1
        try:
            fetching = self._fetching.get(entry.name)
            if fetching is None:
                fetching = self._fetching[entry.name] = asyncio.create_task(self._have(row, entry))
                fetching.add_done_callback(self._fetched)
            # Shielded: an attempt that is cancelled must not take the fetch from the others.
            await asyncio.shield(fetching)
            yield entry
        finally:
            self._holders[entry.name] -= 1
            if not self._holders[entry.name]:
                del self._holders[entry.name]

    def _fetched(self, fetching: "asyncio.Task[None]") -> None:
        self._fetching = {name: task for name, task in self._fetching.items() if task is not fetching}
        if not fetching.cancelled():
            fetching.exception()  # those who waited for it have it; nobody may have

    def _entry(self, row: ArtifactRow) -> Path:
        # By form and name too: the same bytes may be a file under one name and an archive under another.
        name = hashlib.sha256(row.name.encode()).hexdigest()[:16] if row.form == "file" else row.form
        return self._folder / f"{row.digest}-{name}"

    async def _have(self, row: ArtifactRow, entry: Path) -> None:
        if not await asyncio.to_thread(entry.is_dir):
            await self._fetch(row, entry)
        size = self._sizes.pop(entry.name, None)
        self._sizes[entry.name] = await asyncio.to_thread(_size_of, entry) if size is None else size
        await asyncio.to_thread(self._touch, entry)
        await self._make_room(entry.name)

    async def _fetch(self, row: ArtifactRow, entry: Path) -> None:
        if (row.unpacked_bytes or 0) + row.size > self._bytes_max:
            needed = tell_size((row.unpacked_bytes or 0) + row.size)
            limit = f"which holds {tell_size(self._bytes_max)} by kinds.artifact_cache_bytes_max"
            message = f"artifact {row.name} takes {needed} and does not fit into this executor's cache, {limit}"
            raise ArtifactUnavailable(message, False)
        incoming = self._folder / _INCOMING / uuid.uuid4().hex
        try:
            await asyncio.to_thread(incoming.mkdir, 0o700)
            packed = incoming / "packed"
            await self._download(row, packed)
            await asyncio.to_thread(_unpack, row, packed, incoming / "files", self._limits)
            await asyncio.to_thread(_name, incoming / "files", entry)
        except BlobMissing:
            remedy = "upload it again, or see that blobs.url is the same place for every node"
            message = f"the content of artifact {row.name} is not in the storage of blobs: {remedy}"
            raise ArtifactUnavailable(message, True) from None
        except (BlobsUnavailable, OSError) as error:
            raise ArtifactUnavailable(f"artifact {row.name} could not be fetched: {error}", True) from None
        except (archives.ArchiveUnsafe, archives.ArchiveTooLarge, archives.ArchiveUnreadable) as error:
            raise ArtifactUnavailable(f"artifact {row.name} cannot be unpacked: {error}", False) from None
        finally:
            await asyncio.to_thread(shutil.rmtree, incoming, ignore_errors=True)

    async def _download(self, row: ArtifactRow, packed: Path) -> None:
        digest, size = hashlib.sha256(), 0
        with packed.open("xb") as file:
            async for piece in self._blobs.get(row.blob_key):
                size += len(piece)
                if size > row.size:
                    break
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
        if size != row.size or digest.hexdigest() != row.digest:
            message = f"what is kept of artifact {row.name} is not what was uploaded: its digest is another"
            raise ArtifactUnavailable(message, True)

    async def _make_room(self, used: str) -> None:
        """Removes what was used longest ago until the rest fits."""
        for name in list(self._sizes):
            if sum(self._sizes.values()) <= self._bytes_max:
                return
            if name != used and name not in self._holders:
                del self._sizes[name]
                await asyncio.to_thread(self._remove, name)

    # --- in threads --------------------------------------------------------------------------------------

    def _open(self) -> None:
        incoming = self._folder / _INCOMING
        incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        for left in incoming.iterdir():
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)
        entries = [each for each in self._folder.iterdir() if each.name != _INCOMING and each.is_dir()]
        self._sizes = {each.name: _size_of(each) for each in sorted(entries, key=_used_at)}

    def _touch(self, entry: Path) -> None:
        with suppress(FileNotFoundError):
            os.utime(entry)

    def _remove(self, name: str) -> None:
        """Under another name first: nobody must find half of it."""
        rubbish = self._folder / _INCOMING / uuid.uuid4().hex
        with suppress(FileNotFoundError):
            os.rename(self._folder / name, rubbish)
            shutil.rmtree(rubbish, ignore_errors=True)


def _unpack(row: ArtifactRow, packed: Path, files: Path, limits: archives.ArchiveLimits) -> None:
    files.mkdir()
    if row.form == "file":
        packed.chmod(0o555)
        os.rename(packed, files / row.name)
        return
    with open(packed, "rb") as file:
        archives.unpack(file, row.form, files, limits)


def _name(files: Path, entry: Path) -> None:
    try:
        os.rename(files, entry)
    except OSError:
        if not entry.is_dir():  # else another executor of this machine was faster
            raise


def _size_of(entry: Path) -> int:
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(entry) for name in names)


def _used_at(entry: Path) -> float:
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def place_files(source: Path, target: Path, owner: tuple[int, int] | None) -> None:
    """Puts the files of an entry into an attempt's folder: folders of the job's own, files that it may only read.

    With an owner that is not the executor's user the files are links to those of the cache, which that user cannot
    write; else they are copies, because whoever owns a file can change it. `target` may be there already.
    """
    _make(target, owner)
    for folder, names, files in os.walk(source):
        here = target / os.path.relpath(folder, source)
        for name in names:
            _make(here / name, owner)
        for name in files:
            _put(Path(folder) / name, here / name, owner is not None)


def _make(folder: Path, owner: tuple[int, int] | None) -> None:
    if folder.is_dir() and not folder.is_symlink():
        return
    folder.mkdir(0o700)
    if owner is not None:
        os.chown(folder, *owner)


def _put(source: Path, target: Path, link: bool) -> None:
    target.unlink(missing_ok=True)
    if link:
        with suppress(OSError):  # on another file system, or where links are not to be had
            os.link(source, target)
            return
    with open(source, "rb") as given, open(target, "xb") as taken:
        shutil.copyfileobj(given, taken, _PIECE_BYTES)
        os.fchmod(taken.fileno(), os.fstat(given.fileno()).st_mode & 0o777)
