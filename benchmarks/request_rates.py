"""Single submissions and gets by id, of the product or of the bare ASGI application, driven by the same hand.

First jobs are submitted one by one on 64 connections, then some of them are got by id on 32, on the same server.

    python benchmarks/request_rates.py bare --seconds 15 --json
    python benchmarks/request_rates.py hourhand --seconds 15 --json
"""

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from hourhand.bench.cluster import SCHEMA, free_port
from hourhand.bench.course import Course
from hourhand.bench.read import Read, drive_reads
from hourhand.bench.report import Facts, Progress
from hourhand.bench.submit import Submit, drive_submissions
from hourhand.bench.target import open_target
from hourhand.bench.wire import Wire
from hourhand.model.errors import ServerUnreachable
from pairs import HERE, run_whole


async def measure_bare(seconds: float) -> Facts:
    async with bare_application() as wire:
        return await drive(wire, seconds)


async def measure_hourhand(seconds: float) -> Facts:
    """Tells as well what of the acknowledged is not there, and under which settings it was."""
    async with open_target() as target:
        assert target.cluster is not None
        async with target.wire() as wire, Course(target, Progress.silent()) as course:
            found = await drive(wire, seconds)
        database = await target.cluster.connect()
        try:
            stored = await database.fetchval(f"SELECT count(*) FROM {SCHEMA}.jobs")
        finally:
            await database.close()
        beside: dict[str, Any] = {"cpu": course.cpu(), "machine": course.machine(), "settings": course.settings()}
        return {**found, "lost": max(found["jobs"] - stored, 0), **beside}


async def drive(wire: Wire, seconds: float) -> Facts:
    submitted, acknowledged = await drive_submissions(wire, Submit("single", seconds))
    got = await drive_reads(wire, acknowledged.ids(1000), Read().connections, seconds)
    return {
        "jobs": acknowledged.count,
        "submit_per_second": submitted.per_second,
        "answered_ms": submitted.latency(),
        "gets_per_second": got.per_second,
        "get_ms": got.latency(),
    }


@contextlib.asynccontextmanager
async def bare_application() -> AsyncIterator[Wire]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, str(HERE / "bare_asgi.py"), "--port", str(port))
    try:
        async with Wire(f"http://127.0.0.1:{port}", "") as wire:
            await _ready(wire)
            yield wire
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), 60)


async def _ready(wire: Wire) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if (await wire.get("/")).status == 200:
                return
        except ServerUnreachable:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


MEASURES = {"bare": measure_bare, "hourhand": measure_hourhand}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("of", choices=list(MEASURES))
    parser.add_argument("--seconds", type=float, default=15, help="of each: submitting, and getting")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = run_whole(MEASURES[args.of](args.seconds))
    told = f"{args.of}: {found['submit_per_second']:,.0f} submissions/s, {found['gets_per_second']:,.0f} gets/s"
    print(json.dumps(found) if args.json else told)


if __name__ == "__main__":
    main()
