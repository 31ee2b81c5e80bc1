"""Blobs in S3-compatible object storage.

Content goes out in parts and comes back in ranges of a few megabytes, each a request with a deadline of its own: a
large blob may take hours, a server that is stuck is noticed within seconds, and memory is bounded by the parts under
way. A blob shows under its key when its last part has been confirmed, never before.

An upload that broke off may leave parts that no listing shows; storage removes them by a rule of the bucket ("abort
incomplete multipart uploads"), which docs/reference/results.md tells operators to set.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterable, AsyncIterator, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hourhand.blobs.pieces import Measured
from hourhand.blobs.settings import BlobSettings
from hourhand.model.errors import BlobsUnavailable, BlobsUnsuitable
from hourhand.ports.blobs import BlobMissing, Found, Stored, is_key

if TYPE_CHECKING:
    from obstore.store import S3Store

_PART_BYTES: Final = 8 * 1024 * 1024
"""Ten thousand parts are the most that S3 takes: 80 GiB."""
_PARTS_UNDER_WAY_MAX: Final = 2
_RANGE_BYTES: Final = 2 * 1024 * 1024
"""Read at once; about four of them are in memory for each caller who reads slowly."""
_DELETED_AT_ONCE: Final = 1000
_CONNECT_SECONDS_MAX: Final = 5.0
_RETRIES_MAX: Final = 4
_REFUSALS: Final = {
    "NoSuchBucket": "the bucket does not exist",
    "InvalidAccessKeyId": "the access key is not known there",
    "XAdminUserNotFound": "the access key is not known there",  # versitygw's own word
    "SignatureDoesNotMatch": "the secret access key does not belong to the access key",
    "AccessDenied": "access is denied to these credentials",
    "PermanentRedirect": "the bucket is in another region: set blobs.region",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set blobs.region",
}
"""What an operator has to put right before it can work, by the code that S3 answers with."""


class ObjectBlobs:
    def __init__(self, settings: BlobSettings) -> None:
        assert settings.url is not None
        parts = urlsplit(settings.url)
        self._prefix = parts.path.strip("/")
        self._where = f"s3://{parts.netloc}{f'/{self._prefix}' if self._prefix else ''}"
        if settings.endpoint is not None:
            self._where += f" at {settings.endpoint}"
        self._seconds_max = settings.timeout_seconds
        self._store = _s3_store(settings, parts.netloc)

    async def check(self) -> None:
        """Asks for one page of what is there: it shows the bucket, the credentials and the way to it at once."""
        with self._faults():
            async with asyncio.timeout(self._seconds_max):
                stream = self._store.list(self._path("check"), chunk_size=1)
                await anext(stream, None)

    async def put(self, key: str, content: AsyncIterable[bytes]) -> Stored:
        path = self._path(key)
        measured = Measured(content, _PART_BYTES)
        pieces = measured.pieces()
        first = await anext(pieces, bytearray())
        second = await anext(pieces, None)
        if second is None:
            measured.add(first)
            with self._faults():
                async with asyncio.timeout(self._seconds_max):
                    await self._store.put_async(path, bytes(first), use_multipart=False)
            return measured.stored
        await self._put_parts(path, first, second, pieces, measured)
        return measured.stored

    async def _put_parts(
        self, path: str, first: bytearray, second: bytearray, rest: AsyncIterator[bytearray], measured: Measured
    ) -> None:
        """Sends what is too large for one request. Left before its `close`, the upload never shows."""
        from obstore import open_writer_async

        writer = open_writer_async(self._store, path, buffer_size=_PART_BYTES, max_concurrency=_PARTS_UNDER_WAY_MAX)
        piece: bytearray | None = first
        following: bytearray | None = second
        while piece is not None:
            with self._faults():
                async with asyncio.timeout(self._seconds_max):
                    # Digested in a thread: eight megabytes take long enough to hold others up.
                    await asyncio.gather(asyncio.to_thread(measured.add, piece), writer.write(piece))
            piece, following = following, None
            if piece is None:
                piece = await anext(rest, None)
        with self._faults():
            async with asyncio.timeout(self._seconds_max * 2):
                await writer.close()

    async def get(self, key: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        path = self._path(key)
        size = await self._size(key, path)
        end = size if end is None else min(end, size)
        coming: asyncio.Task[bytes] | None = None
        try:
            while start < end:
                upto = min(start + _RANGE_BYTES, end)
                piece = await (coming or self._range(key, path, start, upto))
                start = upto
                # The next range is on its way while the caller is busy with this one.
                upto = min(start + _RANGE_BYTES, end)
                coming = asyncio.create_task(self._range(key, path, start, upto)) if start < end else None
                yield piece
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def _size(self, key: str, path: str) -> int:
        try:
            with self._faults(key):
                async with asyncio.timeout(self._seconds_max):
                    return (await self._store.head_async(path))["size"]
        except BlobMissing:
            await self.check()  # such an answer has no body: the bucket may be missing as well
            raise

    async def _range(self, key: str, path: str, start: int, end: int) -> bytes:
        with self._faults(key):
            async with asyncio.timeout(self._seconds_max):
                return bytes(await self._store.get_range_async(path, start=start, end=end))

    async def delete(self, keys: Sequence[str]) -> None:
        paths = [self._path(key) for key in keys]
        for begin in range(0, len(paths), _DELETED_AT_ONCE):
            with self._faults(), contextlib.suppress(FileNotFoundError):
                async with asyncio.timeout(self._seconds_max):
                    await self._store.delete_async(paths[begin : begin + _DELETED_AT_ONCE])

    async def list(self, prefix: str) -> AsyncIterator[Sequence[Found]]:
        stream = self._store.list(self._path(prefix), chunk_size=_DELETED_AT_ONCE)
        cut = len(self._prefix) + 1 if self._prefix else 0
        while True:
            with self._faults():
                async with asyncio.timeout(self._seconds_max):
                    batch = await anext(stream, None)
            if batch is None:
                return
            yield [Found(each["path"][cut:], each["size"], each["last_modified"]) for each in batch]

    async def words(self, prefix: str) -> Sequence[str]:
        path = self._path(prefix)
        with self._faults():
            async with asyncio.timeout(self._seconds_max):
                found = await self._store.list_with_delimiter_async(path)
        return [each[len(path) + 1 :].strip("/") for each in found["common_prefixes"]]

    async def close(self) -> None:
        """Connections are the library's; they end when nobody holds it any more."""

    def _path(self, key: str) -> str:
        assert is_key(key), key
        return f"{self._prefix}/{key}" if self._prefix else key

    @contextlib.contextmanager
    def _faults(self, key: str | None = None) -> Iterator[None]:
        """Turns what the library raises into words of ours: its own carry whole requests, and may carry credentials."""
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except TimeoutError:
            raise self._unavailable(f"it did not answer within {self._seconds_max:g} s") from None
        except (BaseError, OSError) as error:
            text = str(error)
            code = re.search(r"<Code>(\w{1,60})</Code>", text)
            if code is not None and code[1] in _REFUSALS:
                raise self._unsuitable(_REFUSALS[code[1]]) from None
            if isinstance(error, PermissionDeniedError | UnauthenticatedError):
                raise self._unsuitable(_REFUSALS["AccessDenied"]) from None
            if isinstance(error, FileNotFoundError) and key is not None:
                raise BlobMissing(key) from None
            raise self._unavailable(f"it answered {code[1]}" if code else _network_words(text)) from None

    def _unavailable(self, why: str) -> BlobsUnavailable:
        return BlobsUnavailable(f"the blobs in {self._where} cannot be used: {why}")

    def _unsuitable(self, why: str) -> BlobsUnsuitable:
        return BlobsUnsuitable(f"the blobs in {self._where} cannot be used: {why}")


def _s3_store(settings: BlobSettings, bucket: str) -> "S3Store":
    from obstore.store import S3Store

    seconds = timedelta(seconds=settings.timeout_seconds)
    given = {
        "bucket": bucket,
        "endpoint": settings.endpoint,
        "region": settings.region,
        "access_key_id": settings.access_key_id,
        "secret_access_key": settings.secret_access_key,
    }
    return S3Store(
        config={name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        client_options={
            "allow_http": (settings.endpoint or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS_MAX, settings.timeout_seconds)),
            "timeout": seconds,
        },
        retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": seconds},
    )


def _network_words(text: str) -> str:
    for sign, words in (
        ("Connection refused", "nobody listens there"),
        ("ConnectionRefused", "nobody listens there"),
        ("dns error", "its name is not known"),
        ("timed out", "it did not answer in time"),
        ("TimedOut", "it did not answer in time"),
        ("certificate", "its certificate is not trusted"),
    ):
        if sign in text:
            return words
    return "the connection broke or the answer was not understood"
