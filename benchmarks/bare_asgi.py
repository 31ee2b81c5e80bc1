"""The least that a durable submission over HTTP can cost: a bare ASGI application with the same group commit.

Not a scheduler: no authentication, no checks, no router. It decodes one job, puts it with all that arrive meanwhile
into one transaction of COPYs, and answers 202 with the id after the commit; and it gives a job back by its id. The same
server (Granian), the same decoder, the same PostgreSQL settings and the tables of the floor. The product's own rates
are judged as shares of these, taken in one sitting.

    python benchmarks/bare_asgi.py --port 8500
"""

import argparse
import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import uvloop
from asyncpg.prepared_stmt import PreparedStatement
from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

import floor
from hourhand.database.embedded import EmbeddedServer

PATH = "/api/v1/jobs"
BATCH_MAX = 1000
READERS = 4
GET = "SELECT job_id, name, kind, priority, payload, max_retries, created_at, updated_at FROM jobs WHERE job_id = $1"


class Schedule(msgspec.Struct):
    at: datetime


class Job(msgspec.Struct):
    name: str
    payload: msgspec.Raw
    schedule: Schedule


decode = msgspec.json.Decoder(Job).decode
encode = msgspec.json.Encoder().encode
JSON = (b"content-type", b"application/json")


class GroupCommit:
    """While one commit is under way the next ones gather."""

    def __init__(self, db: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._db = db
        self._waiting: list[tuple[UUID, Job, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def store(self, job_id: UUID, job: Job) -> None:
        stored = asyncio.get_running_loop().create_future()
        self._waiting.append((job_id, job, stored))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await stored

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH_MAX], self._waiting[BATCH_MAX:]
            at = datetime.now(UTC)
            jobs = [(i, 1, job.name, "python", 5, bytes(job.payload).decode(), 3, at, at) for i, job, _ in batch]
            cursors = [(i, i.int & 1023, job.schedule.at, 1) for i, job, _ in batch]
            async with self._db.transaction():
                await self._db.copy_records_to_table("jobs", records=jobs)
                await self._db.copy_records_to_table("timetable", records=cursors)
            for _, _, stored in batch:
                stored.set_result(None)


class App:
    def __init__(
        self,
        writer: "asyncpg.Connection[asyncpg.Record]",
        readers: "list[PreparedStatement[asyncpg.Record]]",
    ) -> None:
        """`readers`: the prepared get of as many sessions. No pool: to take a session from one and to give it back is
        dearer than the get itself."""
        self._group = GroupCommit(writer)
        self._readers: asyncio.LifoQueue[PreparedStatement[asyncpg.Record]] = asyncio.LifoQueue()
        for each in readers:
            self._readers.put_nowait(each)

    async def __call__(self, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any) -> None:
        if scope["type"] != "http":
            return
        if scope["method"] == "POST":
            status, content = 202, await self._submit(await _body(receive))
        else:
            status, content = await self._get(scope["path"])
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [JSON, length]})
        await send({"type": "http.response.body", "body": content, "more_body": False})

    async def _submit(self, body: bytes) -> bytes:
        job_id = floor.uuid7()
        await self._group.store(job_id, decode(body))
        return encode({"job_id": job_id})

    async def _get(self, path: str) -> tuple[int, bytes]:
        if not path.startswith(PATH + "/"):
            return 200, b"{}"
        get = await self._readers.get()
        try:
            row = await get.fetchrow(UUID(path[len(PATH) + 1 :]))
        finally:
            self._readers.put_nowait(get)
        if row is None:
            return 404, b"{}"
        return 200, encode({**dict(row), "payload": msgspec.Raw(row["payload"].encode())})


async def _body(receive: Callable[[], Awaitable[Any]]) -> bytes:
    message = await receive()
    body = message.get("body", b"")
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    return bytes(body)


async def serve(port: int, home: Path) -> None:
    database = EmbeddedServer(home)
    url = await database.start()
    try:
        await floor.prepare(url)
        async with contextlib.AsyncExitStack() as stack:
            writer, *readers = [await stack.enter_async_context(_session(url)) for _ in range(1 + READERS)]
            server = Server(
                App(writer, [await each.prepare(GET) for each in readers]),
                address="127.0.0.1",
                port=port,
                interface=Interfaces.ASGI,
                http=HTTPModes.http1,
                websockets=False,
                log_enabled=False,
                backlog=1024,
            )
            serving = asyncio.create_task(server.serve())
            stop = asyncio.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            await stop.wait()
            server.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(serving, 10)
    finally:
        await database.stop()


@contextlib.asynccontextmanager
async def _session(url: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    db = await asyncpg.connect(url)
    try:
        yield db
    finally:
        await db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8500)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bare-asgi-") as folder:
        uvloop.run(serve(args.port, Path(folder) / "home"))


if __name__ == "__main__":
    main()
