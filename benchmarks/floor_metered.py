"""The floor and its processor time: its own loops, on a server that is there already, looked at from outside.

`cpu` are shares of one core, by part; `machine` what the cores did that it could use, whoever used them; both while it
worked, without its preparations.

    python benchmarks/floor_metered.py --database URL --postmaster PID --seconds 4 --mode immediate --json
"""

import argparse
import asyncio
import json
import multiprocessing
import time
from typing import Any

import floor
from hourhand.bench.figures import shares
from hourhand.bench.meter import POSTGRES, Meter, machine_seconds


def measure(args: argparse.Namespace) -> dict[str, Any]:
    asyncio.run(floor.prepare(args.database))
    counters = {name: multiprocessing.Value("q", 0) for name in ("submitted", "done", "closed")}
    results: Any = multiprocessing.Queue()
    parts: dict[str, tuple[Any, ...]] = {
        "execute": (floor.execute, args.database, args, counters, results),
        "submit": (floor.submit, args.database, args, counters),
    }
    if args.mode == "future":
        parts["fire"] = (floor.fire, args.database, args, counters)
    processes = {name: multiprocessing.Process(target=floor.run, args=part) for name, part in parts.items()}
    began, machine = time.monotonic(), machine_seconds()
    server = Meter({}, {}, args.postmaster).postgres_seconds()
    for process in processes.values():
        process.start()
    meter = Meter({process.pid: name for name, process in processes.items() if process.pid}, {}, args.postmaster)
    result: dict[str, Any] = results.get()
    # Before they are waited for: a process that has ended keeps its books until then.
    spent, of_server, seconds = meter.seconds(), meter.postgres_seconds() - server, time.monotonic() - began
    worked = shares(machine, machine_seconds(), seconds)
    for process in processes.values():
        process.join()
    cpu = {name: spent.get(name, 0.0) / seconds for name in processes}
    return {**result, "cpu": {**cpu, POSTGRES: of_server / seconds}, "machine": worked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", required=True, help="a PostgreSQL to scribble in")
    parser.add_argument("--postmaster", type=int, required=True, help="the id of its first process")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--ahead", type=int, default=4000)
    parser.add_argument("--mode", choices=["immediate", "future"], default="future")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = measure(args)
    cores = ", ".join(f"{name} {share:.2f}" for name, share in found["cpu"].items())
    told = f"floor {found['jobs_per_second']:,.0f} jobs/s ({args.mode}); cores: {cores}"
    print(json.dumps(found) if args.json else told)


if __name__ == "__main__":
    main()
