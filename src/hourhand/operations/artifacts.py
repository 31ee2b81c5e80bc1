"""What a caller may ask of uploaded code: upload, list, download, delete.

An upload is written to a file of this node first and becomes visible only when all of it is there, is what its digest
says, and can be unpacked without harm. Nothing is ever held in memory as a whole.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import IO, Final, Protocol
from uuid import UUID

import msgspec

from hourhand.model.artifacts import (
    ARTIFACT_NAME_RULE,
    form_of,
    is_artifact_name,
    read_digest,
    read_reference,
    signed_message,
)
from hourhand.model.errors import (
    ArchiveTooLarge,
    ArtifactNotTrusted,
    BlobsUnavailable,
    Conflict,
    Fault,
    InvalidFields,
    InvalidParameter,
    NotFound,
    Overloaded,
)
from hourhand.operations.requests import Caller
from hourhand.ports.artifact_stores import ArtifactRow, ArtifactStore, blob_key
from hourhand.ports.blobs import BlobMissing, Blobs
from hourhand.runtime import archives
from hourhand.runtime.signing import TrustedKeys, read_signature

_UPLOADS_MAX: Final = 8
"""Under way at once on this node; each takes room on its disk."""
_PIECE_BYTES: Final = 1 << 18


class ArtifactView(msgspec.Struct, kw_only=True):
    artifact_id: UUID
    name: str
    digest: str
    """sha256:… of the content."""
    size: int
    form: str
    """`file`, or how it is packed: `tar`, `tar.gz`, `zip`."""
    entries: int | None
    """Files and folders in an archive."""
    unpacked_bytes: int | None
    uploaded_at: datetime
    uploaded_by: str
    signed_by: str | None
    """The id of the key that vouches for it; null when it was uploaded without a signature."""


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


Views = list[ArtifactView]


@dataclass(frozen=True, slots=True)
class Download:
    view: ArtifactView
    read: Callable[[int, int], AsyncGenerator[bytes, None]]
    """Its bytes from here up to there, piece by piece."""


class ArtifactOperations:
    def __init__(
        self,
        store: ArtifactStore,
        blobs: Blobs,
        clock: Clock,
        ids: Ids,
        trusted: TrustedKeys | None = None,
        limits: archives.ArchiveLimits | None = None,
    ) -> None:
        """`trusted`: those who may sign what is uploaded; without any, no signature is accepted."""
        self._trusted = trusted or TrustedKeys()
        self._limits = limits or archives.ArchiveLimits()
        self._store = store
        self._blobs = blobs
        self._clock = clock
        self._ids = ids
        self._uploads = 0
        self._inspecting = asyncio.Semaphore(1)

    async def upload(
        self,
        caller: Caller,
        name: str,
        digest: str | None,
        content: AsyncIterable[bytes],
        signature: str | None = None,
    ) -> ArtifactView:
        """Keeps the content under the name. Name, digest and signature are judged before anything is read, as far as
        that can be. Raises ArtifactNotTrusted for one that nobody vouches for, where somebody must."""
        wanted, signed = _judge(name, digest, signature)
        if signed is None and self._trusted.required:
            raise ArtifactNotTrusted(
                "signature-required",
                f"artifact {name} is not signed, and only signed ones are kept here: upload it with --sign-with and a "
                "key of kinds.artifact_keys",
            )
        async with self._place():
            with _spool_file() as file:
                found, size = await _spool(content, file)
                if wanted is not None and found != wanted:
                    message = f"the content has sha256:{found}; it was damaged on the way or is another file"
                    raise InvalidFields([Fault("/digest", "digest-mismatch", message)])
                if not size:
                    raise InvalidFields([Fault("", "content-required", "there is nothing in it")])
                signer = None if signed is None else self._signer(name, found, signed)
                contents = await self._contents(file, name)
                now = self._clock.now()
                row = ArtifactRow(
                    self._ids.new_id(now), name, found, size, form_of(name),
                    contents and contents.entries, contents and contents.size, now, caller.name, signed, signer,
                )  # fmt: skip
                return _view(await self._keep(caller, row, file))

    async def list(self, caller: Caller, name: str | None, before: UUID | None, limit: int) -> Views:
        """The newest first."""
        return [_view(row) for row in await self._store.list(caller.namespace_id, name, before, limit)]

    async def get(self, caller: Caller, reference: str) -> ArtifactView:
        """By id, name, `sha256:…` or `name@sha256:…`."""
        return _view(await self._find(caller, reference))

    async def download(self, caller: Caller, reference: str) -> Download:
        row = await self._find(caller, reference)
        return Download(_view(row), partial(self._content, row))

    async def delete(self, caller: Caller, reference: str) -> ArtifactView:
        """Refused while jobs that have something to run still refer to it."""
        row = await self._find(caller, reference)
        users = await self._store.delete(caller.namespace_id, row.artifact_id)
        if users is None:
            raise NotFound("artifact", reference)
        if users:
            named = ", ".join(f"{job.name!r} ({job.job_id})" for job in users)
            raise Conflict("artifact-in-use", f"jobs run it: {named}; change or delete them first")
        # After the row: a blob without a row is rubbish, a row without its blob would be a promise that is not kept.
        await self._blobs.delete([row.blob_key])
        return _view(row)

    # --- steps -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._uploads >= _UPLOADS_MAX:
            raise Overloaded(f"{self._uploads} uploads are under way on this node already; send yours again", 5)
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    def _signer(self, name: str, digest: str, signature: bytes) -> str:
        """A signature that cannot be checked is refused also where none is needed: to keep it would look like trust."""
        signer = self._trusted.signer(signed_message(name, digest), signature)
        if signer is None:
            message = f"none of the keys in kinds.artifact_keys has signed this content as {name}"
            raise ArtifactNotTrusted("signature-untrusted", message)
        return signer

    async def _contents(self, file: IO[bytes], name: str) -> archives.Contents | None:
        form = form_of(name)
        if form == "file":
            return None
        async with self._inspecting:  # to look into a large one takes seconds of a core that others need too
            try:
                return await asyncio.to_thread(archives.inspect, file, form, self._limits)  # type: ignore[arg-type]
            except archives.ArchiveUnsafe as fault:
                raise InvalidFields([Fault("", "archive-unsafe-path", str(fault))]) from None
            except archives.ArchiveUnreadable as fault:
                raise InvalidFields([Fault("", "archive-unreadable", str(fault))]) from None
            except archives.ArchiveTooLarge as fault:
                raise ArchiveTooLarge(f"artifact {name} is too large: {fault}") from None

    async def _keep(self, caller: Caller, row: ArtifactRow, file: IO[bytes]) -> ArtifactRow:
        try:
            stored = await self._blobs.put(row.blob_key, _pieces(file))
            assert stored.digest == row.digest, "the blob store kept something else than it was given"
            superseded = await self._store.put(caller.namespace_id, row)
        except BaseException:
            await asyncio.shield(self._blobs.delete([row.blob_key]))
            raise
        if superseded is not None:
            await self._blobs.delete([blob_key(superseded)])
        return row

    async def _find(self, caller: Caller, text: str) -> ArtifactRow:
        reference = read_reference(text)
        if reference is None:
            message = f"{text[:80]!r} is no artifact: write its name, sha256:…, or name@sha256:…"
            raise InvalidParameter("artifact", message, "invalid-id")
        row = await self._store.find(caller.namespace_id, reference)
        if row is None:
            raise NotFound("artifact", text)
        return row

    async def _content(self, row: ArtifactRow, start: int, end: int) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._blobs.get(row.blob_key, start, end)) as content:  # type: ignore[type-var]
                async for piece in content:
                    yield piece
        except BlobMissing:
            remedy = "upload it again, or see that blobs.url is the same place for every node"
            message = f"the content of artifact {row.name} is not in the storage of blobs: {remedy}"
            raise BlobsUnavailable(message) from None


async def _spool(content: AsyncIterable[bytes], file: IO[bytes]) -> tuple[str, int]:
    """Writes the content into the file; its digest and size."""
    digest, size = hashlib.sha256(), 0
    waiting = bytearray()
    async for piece in content:
        waiting += piece
        if len(waiting) >= _PIECE_BYTES:
            full, waiting = waiting, bytearray()
            size += len(full)
            await asyncio.to_thread(_take, full, digest, file)
    size += len(waiting)
    await asyncio.to_thread(_take, waiting, digest, file)
    return digest.hexdigest(), size


@contextmanager
def _spool_file() -> Iterator[IO[bytes]]:
    try:
        file = tempfile.TemporaryFile(prefix="hourhand-upload-")  # noqa: SIM115 - closed below, in its own way
    except OSError as error:
        raise _no_room(error) from None
    try:
        yield file
    finally:
        with suppress(OSError):  # what could not be written is tried once more, and was told already
            file.close()


def _take(piece: bytearray, digest: "hashlib._Hash", file: IO[bytes]) -> None:
    digest.update(piece)
    try:
        file.write(piece)
        file.flush()
    except OSError as error:
        raise _no_room(error) from None


def _no_room(error: OSError) -> BlobsUnavailable:
    where = f"the folder for temporary files of this API's machine ({tempfile.gettempdir()}, or TMPDIR)"
    return BlobsUnavailable(f"the upload cannot be written to {where}: {(error.strerror or str(error)).lower()}")


async def _pieces(file: IO[bytes]) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
        yield piece


def _judge(name: str, digest: str | None, signature: str | None) -> tuple[str | None, bytes | None]:
    """The digest that is expected, and the signature. Raises with everything that is wrong."""
    faults = [] if is_artifact_name(name) else [Fault("/name", "invalid-name", f"must be {ARTIFACT_NAME_RULE}")]
    wanted = None if digest is None else read_digest(digest)
    if digest is not None and wanted is None:
        message = "must be sha256: and 64 hexadecimal digits"
        faults.append(Fault("/digest", "invalid-digest", message))
    signed = None if signature is None else read_signature(signature)
    if signature is not None and signed is None:
        message = "must be an Ed25519 signature: 64 bytes in base64"
        faults.append(Fault("/signature", "invalid-signature", message))
    if faults:
        raise InvalidFields(faults)
    return wanted, signed


def _view(row: ArtifactRow) -> ArtifactView:
    return ArtifactView(
        artifact_id=row.artifact_id,
        name=row.name,
        digest=f"sha256:{row.digest}",
        size=row.size,
        form=row.form,
        entries=row.entries,
        unpacked_bytes=row.unpacked_bytes,
        uploaded_at=row.uploaded_at,
        uploaded_by=row.uploaded_by,
        signed_by=row.signed_by,
    )
