"""How many lines a second of a command's output reach the database, and what that takes of the executor's memory.

A command prints a million lines as fast as its pipe takes them; the time is that from the start of its run to its end,
when every line is stored. Afterwards the log is read back as a whole: every number must be there, or be declared.

    python benchmarks/log_lines.py --lines 1000000
"""

import argparse
import asyncio
import json
import os
import sys
import time

import httpx
import psutil

from hourhand.bench.target import Target, open_target

PRINT = 'import sys\nfor n in range(1, int(sys.argv[1]) + 1): print(f"{n:>9} the quick brown fox jumps over the dog")'
FAST = {"kind": "command", "timeout": "10m", "max_retries": 0}
SAMPLE_SECONDS = 0.02


async def measure(target: Target, lines: int, writer: str) -> dict[str, float]:
    argv = ["seq", "-f", "%9.0f the quick brown fox jumps over the dog", "1", str(lines)]
    if writer == "python":
        argv = ["python3", "-c", PRINT, str(lines)]
    async with target.client() as http:
        executor = await executor_of(http)
        before = executor.memory_info().rss
        job = await http.post("/api/v1/jobs", content=json.dumps({**FAST, "name": "log", "payload": {"argv": argv}}))
        job_id = job.raise_for_status().json()["job_id"]
        most, run = before, None
        while run is None or run["ended_at"] is None:
            await asyncio.sleep(SAMPLE_SECONDS)
            most = max(most, executor.memory_info().rss)
            run = (await http.get(f"/api/v1/jobs/{job_id}/status")).json()["latest_run"]
        assert run["status"] == "succeeded", run
        seconds = run["duration_ms"] / 1000
        kept, declared, read_seconds = await read_back(http, run["run_id"])
    assert kept + declared == lines, (kept, declared)
    return {
        "lines": lines,
        "kept": kept,
        "left_out": declared,
        "seconds": seconds,
        "lines_per_second": lines / seconds,
        "memory_more_mb": (most - before) / 1e6,
        "read_back_seconds": read_seconds,
    }


async def read_back(http: httpx.AsyncClient, run_id: str) -> tuple[int, int, float]:
    """Lines kept, lines declared as left out, and how long it took. Fails where a number does not follow."""
    begun, expected, kept, declared = time.monotonic(), 1, 0, 0
    url, accept = f"/api/v1/runs/{run_id}/logs/download", {"Accept": "application/x-ndjson"}
    async with http.stream("GET", url, headers=accept, timeout=120) as answer:
        answer.raise_for_status()
        async for raw in answer.aiter_lines():
            line = json.loads(raw)
            assert line["number"] == expected, (line, expected)
            left_out = line.get("left_out", 0)
            if left_out:
                declared += left_out
            else:
                assert int(line["text"].split()[0]) == expected, line
                kept += 1
            expected += left_out or 1
    return kept, declared, time.monotonic() - begun


async def executor_of(http: httpx.AsyncClient) -> psutil.Process:
    nodes = (await http.get("/api/v1/cluster")).json()["nodes"]
    return psutil.Process(next(node["facts"]["pid"] for node in nodes if node["role"] == "executor"))


async def measure_both(lines: int, writer: str) -> dict[str, dict[str, float]]:
    enough = {"executor.log_lines_max": str(2 * lines), "executor.log_bytes_max": str(1024 * lines)}
    both = {}
    for told, settings in (("all kept", enough), ("default allowance", {})):
        async with open_target(settings=settings) as target:
            found = await measure(target, lines, writer)
        both[told] = {key: round(value, 1) for key, value in found.items()}
        print(told, json.dumps(both[told]), file=sys.stderr, flush=True)
    return both


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--writer", choices=["seq", "python"], default="seq")
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} before", file=sys.stderr)
    found = asyncio.run(measure_both(args.lines, args.writer))
    print(f"load {os.getloadavg()[0]:.1f} after", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
