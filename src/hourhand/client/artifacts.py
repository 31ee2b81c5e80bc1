"""Questions about uploaded code. Files are sent and fetched piece by piece, and their digests are compared."""

import hashlib
import io
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final
from uuid import UUID

import msgspec

from hourhand.client.calls import BASE, Call, params, reader, segment
from hourhand.model.artifacts import signed_message
from hourhand.model.errors import HourhandError
from hourhand.runtime.signing import sign, write_signature

_PIECE_BYTES: Final = 1 << 18
ANSWER_SECONDS: Final = 600.0
"""A large archive is looked into before it is accepted."""
Content = bytes | str | os.PathLike[str] | BinaryIO
"""What may be uploaded: bytes, the path of a file, or an open file that can be read twice."""


class ArtifactView(msgspec.Struct, kw_only=True):
    artifact_id: UUID
    name: str
    digest: str = ""
    size: int = 0
    form: str = "file"
    entries: int | None = None
    unpacked_bytes: int | None = None
    uploaded_at: datetime | None = None
    uploaded_by: str = ""
    signed_by: str | None = None


class ArtifactPage(msgspec.Struct, kw_only=True):
    artifacts: list[ArtifactView] = []
    next_cursor: str | None = None


class DownloadDamaged(HourhandError):
    """What came is not what was kept."""

    code = "download-damaged"

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was damaged on the way: its digest is another; try again")


_artifact: Final[Callable[[bytes], ArtifactView]] = reader(ArtifactView)
_page: Final[Callable[[bytes], ArtifactPage]] = reader(ArtifactPage)


def upload(name: str, digest: str, size: int, signature: str | None = None) -> Call[ArtifactView]:
    headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
    return Call("PUT", _path(name), _artifact, params({"digest": digest, "signature": signature}), None, headers)


def get(reference: str) -> Call[ArtifactView]:
    return Call("GET", _path(reference), _artifact)


def list_page(name: str | None, limit: int | None, cursor: str | None) -> Call[ArtifactPage]:
    return Call("GET", f"{BASE}/artifacts", _page, params({"name": name, "limit": limit, "cursor": cursor}))


def delete(reference: str) -> Call[ArtifactView]:
    return Call("DELETE", _path(reference), _artifact)


def content(reference: str) -> Call[bytes]:
    headers = {"Accept": "application/octet-stream, application/problem+json"}
    return Call("GET", f"{_path(reference)}/content", lambda data: data, headers=headers)


def _path(reference: str) -> str:
    return f"{BASE}/artifacts/{segment(reference)}"


class Sending:
    """A file under way to the server: measured first, signed if there is a key, then read again as it is sent."""

    def __init__(self, name: str, file: BinaryIO, sign_with: str | os.PathLike[str] | None = None) -> None:
        self._file = file
        digest, self.size = hashlib.sha256(), 0
        for piece in self.pieces():
            digest.update(piece)
            self.size += len(piece)
        self.digest = f"sha256:{digest.hexdigest()}"
        signature = None
        if sign_with is not None:
            signature = write_signature(sign(Path(sign_with), signed_message(name, digest.hexdigest())))
        self.call = upload(name, self.digest, self.size, signature)

    def pieces(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(_PIECE_BYTES):
            yield piece

    async def pieces_in_turn(self) -> AsyncIterator[bytes]:
        for piece in self.pieces():
            yield piece


@contextmanager
def opened(given: Content) -> Iterator[BinaryIO]:
    if isinstance(given, bytes):
        yield io.BytesIO(given)
    elif isinstance(given, str | os.PathLike):
        with open(given, "rb") as file:
            yield file
    else:
        yield given


class Receiving:
    """A file under way from the server. It has its name only when all of it is there and its digest is right."""

    def __init__(self, what: str, target: str | os.PathLike[str]) -> None:
        self._what = what
        self._target = Path(target)
        self._part = self._target.with_name(f".{self._target.name}.part-{os.getpid()}")
        self._digest = hashlib.sha256()
        self._file: Any = None

    def __enter__(self) -> "Receiving":
        self._file = open(self._part, "wb")
        return self

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._file.write(piece)

    def finish(self, etag: str) -> None:
        if etag.strip('"') != f"sha256:{self._digest.hexdigest()}":
            raise DownloadDamaged(self._what)
        self._file.close()
        os.replace(self._part, self._target)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)
