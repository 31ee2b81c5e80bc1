"""The rates of the bare ASGI application, driven by the same client as the product: single submissions, gets by id.

python benchmarks/bare_rates.py submit --seconds 10 --json
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from typing import Any

import uvloop

from hourhand.bench.cluster import free_port
from hourhand.bench.read import Read, drive_reads
from hourhand.bench.submit import Submit, drive_submissions
from hourhand.bench.wire import Wire
from hourhand.model.errors import ServerUnreachable
from pairs import HERE


async def measure(what: str, seconds: float, connections: int | None) -> dict[str, Any]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(sys.executable, str(HERE / "bare_asgi.py"), "--port", str(port))
    try:
        async with Wire(f"http://127.0.0.1:{port}", "") as wire:
            await _ready(wire)
            if what == "submit":
                asked = Submit("single", seconds, connections)
                driven, acknowledged = await drive_submissions(wire, asked)
                return {"jobs": acknowledged.count, "per_second": driven.per_second, "answered_ms": driven.latency()}
            _, stored = await drive_submissions(wire, Submit("single", 3))
            driven = await drive_reads(wire, stored.ids(1000), connections or Read().connections, seconds)
            return {"answers": driven.answers, "per_second": driven.per_second, "get_ms": driven.latency()}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["submit", "read"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = uvloop.run(measure(args.what, args.seconds, args.connections))
    print(json.dumps(found) if args.json else f"bare {args.what}: {found['per_second']:,.0f}/s")


if __name__ == "__main__":
    main()
