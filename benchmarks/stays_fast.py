"""Whether it stays fast beside what happens in every grown cluster: lateness and cost at a rate, with and without it.

- `pinned`: a transaction that somebody forgot keeps PostgreSQL from clearing anything away for three minutes.
- `executors`: a thousand more executors renew their leases.
- `readers`: fifty lists and searches a second.

Each is measured beside the same work without it, before and after, on one cluster.

    python benchmarks/stays_fast.py --rate 5000 --seconds 60
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from hourhand.bench.report import Facts, Progress
from hourhand.bench.steady import Steady, measure_steady
from hourhand.bench.target import Target, open_target
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.store.nodes import Nodes

EXECUTORS = 1000
LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 4.0
PINNED_SECONDS = 180.0
READERS_RATE = 50.0
P99_MS_MAX = 100.0


@dataclass(frozen=True)
class Part:
    name: str
    seconds: float
    readers: float = 0.0


@contextlib.asynccontextmanager
async def pinned(target: Target) -> AsyncIterator[None]:
    """A transaction with a snapshot, which nobody ends."""
    assert target.cluster is not None
    database = await target.cluster.connect()
    transaction = database.transaction(isolation="repeatable_read")
    await transaction.start()
    await database.fetchval("SELECT count(*) FROM pg_class")
    try:
        yield
    finally:
        await transaction.rollback()
        await database.close()


@contextlib.asynccontextmanager
async def many_executors(target: Target) -> AsyncIterator[None]:
    """Nodes that do nothing but to renew their leases, each as often as an executor does."""
    assert target.cluster is not None
    database = Database(DatabaseSettings(url=target.cluster.database_url, pool_max=8), "bench")
    await database.open()
    nodes = Nodes(database)
    facts = {"pid": 1, "slots": {"async": 8000, "process": 2}, "queues": ["elsewhere"]}
    ids = [await nodes.register_node("executor", f"more-{number}", LEASE_SECONDS, facts) for number in range(EXECUTORS)]

    async def beat(place: int, node_id: int) -> None:
        await asyncio.sleep(HEARTBEAT_SECONDS * place / EXECUTORS)
        while True:
            renewed, _ = await asyncio.gather(
                nodes.renew_node(node_id, LEASE_SECONDS, facts), asyncio.sleep(HEARTBEAT_SECONDS)
            )
            if renewed is None:
                raise RuntimeError("an executor that renews its lease is held for dead")

    beating = [asyncio.create_task(beat(place, node_id)) for place, node_id in enumerate(ids)]
    try:
        yield
        ended = [task for task in beating if task.done()]
        if ended:
            await asyncio.gather(*ended)
    finally:
        for task in beating:
            task.cancel()
        await asyncio.gather(*beating, return_exceptions=True)
        for node_id in ids:
            await nodes.end_node(node_id)
        await database.close()


@contextlib.asynccontextmanager
async def nothing(_: Target) -> AsyncIterator[None]:
    yield


BESIDE = {"pinned": pinned, "executors": many_executors, "readers": nothing, "nothing": nothing}


async def measure(parts: list[str], rate: float, seconds: float) -> bool:
    good = True
    async with open_target() as own:
        target = replace(own, own=False)  # several measurements follow each other
        for name in parts:
            lasts = PINNED_SECONDS if name == "pinned" else seconds
            readers = READERS_RATE if name == "readers" else 0.0
            for beside, part in (
                ("nothing", Part("before", seconds)),
                (name, Part(name, lasts, readers)),
                ("nothing", Part("after", seconds)),
            ):
                async with BESIDE[beside](target):
                    asked = Steady(rate, part.seconds, "meanwhile", part.readers)
                    found = (await measure_steady(target, asked, Progress.silent())).facts
                good &= tell(f"{name}: {part.name}", found)
    return good


def tell(name: str, found: Facts) -> bool:
    late, cores = found["lateness_ms"], found["cpu"]
    used = sum(cores.values()) - cores.get("client", 0.0) - cores.get("postgres bench", 0.0)
    print(
        f"{name:22} p50 {late['p50']:6.1f}  p99 {late['p99']:6.1f}  p99.9 {late['p99.9']:6.1f} ms;"
        f"  {used:.2f} cores;  lost {found['lost']}, doubled {found['doubled']}, early {found['early']}"
    )
    for question in ("list", "search", "list_runs", "search_runs"):
        if f"{question}_ms" in found:
            asked = found[f"{question}_ms"]
            print(f"{'':22} {question}: p50 {asked['p50']:.1f}, p99 {asked['p99']:.1f} ms")
    print(end="", flush=True)
    return late["p99"] <= P99_MS_MAX and not (found["lost"] or found["doubled"] or found["early"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=5000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--parts", nargs="+", default=["pinned", "executors", "readers"], choices=sorted(BESIDE))
    given = parser.parse_args()
    good = asyncio.run(measure(given.parts, given.rate, given.seconds))
    print("enough" if good else f"not enough: p99 ≤ {P99_MS_MAX:g} ms, lost, doubled and early 0")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
