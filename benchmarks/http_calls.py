"""HTTP jobs against a bare loop of the same client: attempts of the kind `http`, without a database, and a small local
server in a process of its own. Both sides in turn; the ratio within a pair is what counts.

    python benchmarks/http_calls.py --pairs 5 --seconds 4
"""

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

import aiohttp
import uvloop

from hourhand.job_kinds.registry import KindSettings, kinds_for_running
from hourhand.model.outcome import Succeeded
from hourhand.ports.job_kind import Task
from pairs import ratios

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nfine"


class Server(asyncio.Protocol):
    """Answers every request, as soon as its head is there."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            self.data = self.data.partition(b"\r\n\r\n")[2]
            self.transport.write(ANSWER)


def serve(told: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
        told.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(run())


async def rate(call: Callable[[], Awaitable[None]], at_once: int, seconds: float) -> float:
    done = 0

    async def caller(end: float) -> None:
        nonlocal done
        while time.monotonic() < end:
            await call()
            done += 1

    await asyncio.gather(*(caller(time.monotonic() + 0.3) for _ in range(at_once)))  # connections are made
    done, begun = 0, time.monotonic()
    await asyncio.gather(*(caller(begun + seconds) for _ in range(at_once)))
    return done / (time.monotonic() - begun)


async def bare(url: str, at_once: int, seconds: float) -> float:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call() -> None:
            async with session.get(url) as response:
                assert (response.status, await response.read()) == (200, b"fine")

        return await rate(call, at_once, seconds)


async def ours(url: str, at_once: int, seconds: float) -> float:
    kind = kinds_for_running(KindSettings(allow_private_targets=True))["http"]
    await kind.open()
    payload, now, job_id = {"url": url}, datetime.now(UTC), uuid4()

    async def call() -> None:
        outcome = await kind.run(Task(uuid4(), job_id, "default", "b", "http", payload, 1, 1, now, lambda *_: None))
        assert isinstance(outcome, Succeeded)
        assert outcome.result["body"] == "fine"

    try:
        return await rate(call, at_once, seconds)
    finally:
        await kind.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--at-once", type=int, default=64)
    given = parser.parse_args()
    hears, tells = multiprocessing.get_context("spawn").Pipe(False)
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(tells,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{hears.recv()}/"
    sides = [lambda side=side: uvloop.run(side(url, given.at_once, given.seconds)) for side in (ours, bare)]
    try:
        found = ratios("http", given.pairs, *sides, "aiohttp")
    finally:
        server.terminate()
    print(
        json.dumps(
            {"ratio": round(statistics.median(found), 3), "ratios": [round(each, 3) for each in found], "bar": 0.5}
        )
    )


if __name__ == "__main__":
    main()
