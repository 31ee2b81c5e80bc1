"""Whether it stays fast beside what happens in every grown cluster: lateness and cost at a rate, with and without it.

Ten million jobs and as many runs are stored first, so that all that follows meets a grown cluster. Then, beside 5,000
runs a second that are submitted meanwhile:

- `checkpoints`: one after the other, four a minute, each of which makes PostgreSQL write whole pages again;
- `stalls`: every three seconds nothing about runs can be written for 150 ms, as when a disk keeps the log back;
- `vacuum`: what is at work, then all of the history is walked over, at the pace of autovacuum, as when transaction ids
  must be frozen;
- `pinned`: a long report in one transaction keeps PostgreSQL from clearing anything away for three minutes. (A
  transaction that idles is ended by the embedded server after a minute; one that works is not.)
- `executors`: a thousand more executors renew their leases;
- `readers`: fifty lists and searches a second;
- `all`: a report of three minutes, the executors and the readers at once.

Before the first and after each that leaves something behind the same is measured with nothing beside it, and at the end
once more: the first time after a long report two million dead rows are cleared away meanwhile, and what is cleared away
late must not cost for ever. Every minute of every part must have p99 ≤ 100 ms, nothing lost, doubled or early, and no
reader refused. With nothing beside it a run may cost 1.2 times as much at the end as it did before the first report,
by the medians of three each: one stretch may differ from the next by a quarter, for whatever the machine did meanwhile.
A part that cannot be measured is told as short, with its reason, and the others are measured all the same. Prints
Markdown and writes it to `build/stays-fast.md`, after every part: what is known is kept whatever ends it.

    python benchmarks/stays_fast.py
    python benchmarks/stays_fast.py --stored 300000 --seconds 10 --pinned 25 --rate 500
    python benchmarks/stays_fast.py --stored 0 --seconds 20 --pinned 30 --parts nothing pinned nothing
"""

import argparse
import asyncio
import contextlib
import importlib.util
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import asyncpg

import pairs
from hourhand.bench.cluster import SCHEMA
from hourhand.bench.growth import Filler, cost_us
from hourhand.bench.plots import draw
from hourhand.bench.readers import QUESTIONS
from hourhand.bench.report import Facts, Progress
from hourhand.bench.steady import Steady, measure_steady
from hourhand.bench.target import Target, open_target
from hourhand.database.connections import Database, DatabaseSettings
from hourhand.store.nodes import Nodes
from table import BUILD, PLOTS, QUICK, Figure, machine, markdown

STORED = 10_000_000
RATE = 5000.0
SECONDS = 45.0
EXECUTORS = 1000
LEASE_SECONDS = 15.0
HEARTBEAT_SECONDS = 4.0
PINNED_SECONDS = 180.0
CHECKPOINT_SECONDS = 15.0
STALL_SECONDS = 0.15
STALL_EVERY_SECONDS = 3.0
READERS_RATE = 50.0
SETTLE_SECONDS_MAX = 60.0
P99_MS_MAX = 100.0
BAR = f"p99 of every minute ≤ {P99_MS_MAX:g} ms"
COST_MORE_MAX = 1.2
PARTS = (
    "nothing", "nothing", "checkpoints", "stalls", "vacuum", "nothing", "pinned", "nothing", "executors", "readers",
    "all", "nothing", "nothing", "nothing",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    rate: float
    seconds: float
    pinned_seconds: float
    stored: int


# --- what goes on beside it -------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def nothing(_: Target, __: float) -> AsyncIterator[None]:
    yield


@contextlib.asynccontextmanager
async def pinned(target: Target, seconds: float) -> AsyncIterator[None]:
    """A transaction whose snapshot stays, and whose statement lasts. That it was there to the end is made sure of."""
    assert target.cluster is not None
    database, watching = await target.cluster.connect(), await target.cluster.connect()
    pid = await database.fetchval("SELECT pg_backend_pid()")
    transaction = database.transaction(isolation="repeatable_read")
    await transaction.start()
    await database.fetchval("SELECT count(*) FROM pg_class")
    working = asyncio.create_task(database.execute(f"SELECT pg_sleep({seconds + 600})"))
    try:
        yield
        held = await watching.fetchval("SELECT age(backend_xmin) FROM pg_stat_activity WHERE pid = $1", pid)
        if not held:
            raise RuntimeError("the transaction that was to hold everything up was not there to the end")
        print(f"{'':14} it held back {held:,} transactions", flush=True)
    finally:
        await watching.execute("SELECT pg_cancel_backend($1)", pid)
        await asyncio.gather(working, return_exceptions=True)
        await transaction.rollback()
        await asyncio.gather(database.close(), watching.close())


@contextlib.asynccontextmanager
async def checkpoints(target: Target, _: float) -> AsyncIterator[None]:
    async def keep_writing() -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_SECONDS / 2)
            await database.execute("CHECKPOINT")
            await asyncio.sleep(CHECKPOINT_SECONDS / 2)

    assert target.cluster is not None
    database = await target.cluster.connect()
    try:
        async with _meanwhile(keep_writing):
            yield
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def stalls(target: Target, _: float) -> AsyncIterator[None]:
    """A lock that lets readers pass: what writes waits for it as it would for a log that is not synced."""

    async def keep_stalling() -> None:
        while True:
            await asyncio.sleep(STALL_EVERY_SECONDS - STALL_SECONDS)
            async with database.transaction():
                await database.execute(f"LOCK TABLE {SCHEMA}.live_runs IN EXCLUSIVE MODE")
                await asyncio.sleep(STALL_SECONDS)

    assert target.cluster is not None
    database = await target.cluster.connect()
    try:
        async with _meanwhile(keep_stalling):
            yield
    finally:
        await database.close()


@contextlib.asynccontextmanager
async def vacuum(target: Target, _: float) -> AsyncIterator[None]:
    async def keep_cleaning() -> None:
        await database.execute("SET vacuum_cost_delay = '2ms'")  # as autovacuum does
        while True:
            for table in ("timetable", "live_runs", "jobs", "runs"):
                await database.execute(f"VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) {SCHEMA}.{table}")
                walked.append(table)

    assert target.cluster is not None
    database = await target.cluster.connect()
    walked: list[str] = []
    try:
        async with _meanwhile(keep_cleaning):
            yield
        print(f"{'':14} walked over: {', '.join(walked)}", flush=True)
        if not {"timetable", "live_runs"} <= set(walked):
            raise RuntimeError("it did not come as far as the tables that are at work")
    finally:
        database.terminate()  # in the middle of its work


@contextlib.asynccontextmanager
async def _meanwhile(work: Callable[[], Any]) -> AsyncIterator[None]:
    """Does it beside; whatever ends it early is told."""
    task = asyncio.create_task(work())
    try:
        yield
        if task.done():
            await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def executors(target: Target, _: float) -> AsyncIterator[None]:
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
async def everything(target: Target, seconds: float) -> AsyncIterator[None]:
    async with pinned(target, seconds), executors(target, seconds):
        yield


BESIDE = {
    "nothing": nothing,
    "checkpoints": checkpoints,
    "stalls": stalls,
    "vacuum": vacuum,
    "pinned": pinned,
    "executors": executors,
    "readers": nothing,
    "all": everything,
}
LONG = ("pinned", "all")
READ = ("readers", "all")


# --- measuring and telling --------------------------------------------------------------------------------


async def measure(parts: list[str], asked: Asked, keep: Callable[[list[Figure]], None]) -> list[Figure]:
    """`keep` is given what is known, whenever there is more of it."""
    figures: list[Figure] = []
    costs: dict[int, float] = {}
    async with open_target() as own:
        assert own.cluster is not None
        target = replace(own, own=False)  # several measurements follow each other
        if asked.stored:
            figures.append((await _try_part("little stored", "nothing", 0, target, asked))[0])
            keep(figures)
            taken = await Filler(own.cluster, Progress()).fill(asked.stored)
            print(f"{asked.stored:,} jobs and runs stored in {taken:.0f} s", flush=True)
        for number, name in enumerate(parts):
            figure, cost = await _try_part(_named(name, parts[:number]), name, number + 1, target, asked)
            figures.append(figure)
            if cost is not None:
                costs[number] = cost
            keep(figures)
    first, last = _ends(parts)
    if first and last:
        figures.append(_compared([costs.get(number) for number in first], [costs.get(number) for number in last]))
    return figures


def _ends(parts: list[str]) -> tuple[list[int], list[int]]:
    """The parts with nothing beside them: those before the first long report, and those after which nothing comes."""
    begin = next((number for number, name in enumerate(parts) if name in LONG), len(parts))
    end = max((number for number, name in enumerate(parts) if name != "nothing"), default=-1)
    return [number for number, name in enumerate(parts[:begin]) if name == "nothing"], [*range(end + 1, len(parts))]


def _compared(first: list[float | None], last: list[float | None]) -> Figure:
    work, bar = "cost of a run with nothing beside it, at the end", f"≤ {COST_MORE_MAX} × before the first report"
    before, after = ([cost for cost in costs if cost is not None] for costs in (first, last))
    if len(before) < len(first) or len(after) < len(last):
        return Figure(work, bar, "some could not be measured", False)
    ratio = median(after) / median(before)
    each = " → ".join(", ".join(f"{cost:.0f}" for cost in costs) for costs in (before, after))
    return Figure(work, bar, f"{ratio:.2f} × ({each} µs)", ratio <= COST_MORE_MAX)


async def _try_part(work: str, name: str, number: int, target: Target, asked: Asked) -> tuple[Figure, float | None]:
    """The figure of a part, and what a run cost in it. What keeps one from being measured says nothing of the rest."""
    try:
        found = await _measure_part(name, number, target, asked)
    except Exception as fault:
        reason = "; ".join(_reasons(fault))
        print(f"short  {work}: {reason}", flush=True)
        await _settle(target)
        return Figure(work, BAR, f"not measured: {reason}", False), None
    return _told(work, found), cost_us(found)


def _reasons(fault: BaseException) -> list[str]:
    """What was said, each once; of what happened beside each other, all."""
    if isinstance(fault, BaseExceptionGroup):
        return list(dict.fromkeys(reason for each in fault.exceptions for reason in _reasons(each)))
    return [f"{type(fault).__name__}: {fault}".partition("\n")[0][:300]]


async def _settle(target: Target) -> None:
    """What a part has left to do is not to be counted with the next one."""
    assert target.cluster is not None
    left = f"SELECT EXISTS (SELECT FROM {SCHEMA}.live_runs) OR EXISTS (SELECT FROM {SCHEMA}.timetable)"
    try:
        async with asyncio.timeout(SETTLE_SECONDS_MAX):
            database = await target.cluster.connect()
            while await database.fetchval(left):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.5)
            await database.close()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
        print(f"{'':14} it has not come to rest: {str(fault) or type(fault).__name__}", flush=True)


async def _measure_part(name: str, number: int, target: Target, asked: Asked) -> Facts:
    seconds = asked.pinned_seconds if name in LONG else asked.seconds
    steady = Steady(asked.rate, seconds, "meanwhile", READERS_RATE if name in READ else 0.0)
    async with BESIDE[name](target, seconds):
        measured = await measure_steady(target, steady, Progress.silent())
    pairs.noted_settings.update(measured.facts["settings"])
    if importlib.util.find_spec("matplotlib") is not None:
        PLOTS.mkdir(parents=True, exist_ok=True)
        draw(PLOTS / f"stays-fast-{number}-{name}.png", measured.facts, measured.series)
    return {**measured.facts, "plot": f"stays-fast-{number}-{name}"}


def _named(name: str, before: list[str]) -> str:
    if name != "nothing":
        return name
    others = [number for number, each in enumerate(before) if each != "nothing"]
    told = f"nothing, after {before[others[-1]]}" if others else "nothing"
    times = len(before) - (others[-1] if others else -1)
    return told if times == 1 else f"{told}, for the {times}. time"


def _told(name: str, found: Facts) -> Figure:
    late, tables, writes = found["lateness_ms"], found["tables"], found["writes"]
    worst = found["p99_worst_minute_ms"]
    told = f"p50 {late['p50']:.1f}, p99 {late['p99']:.1f}, p99.9 {late['p99.9']:.1f} ms"
    told += f", p99 of the worst minute {worst:.1f} ms; {cost_us(found):.0f} µs a run"
    told += f"; {writes['checkpoints']} checkpoints, {writes['vacuums']} vacuums"
    for table in ("live_runs", "timetable"):
        one = tables[table]
        told += f"; {table} {one['size_mb']:.1f} MB, {one['dead_max']:,} dead at most, {one['dead']:,} at the end"
    answers = [f"{each} {found[f'{each}_ms']['p99']:.0f}" for each, _ in QUESTIONS if f"{each}_ms" in found]
    told += f"; p99 of {', '.join(answers)} ms" if answers else ""
    refused = found.get("refused", 0)
    told += f"; {refused} questions refused ({found['refused_said']})" if refused else ""
    whole = not (found["lost"] or found["doubled"] or found["early"] or found.get("misdated"))
    told += f"; lost {found['lost']}, doubled {found['doubled']}, early {found['early']}"
    enough = worst <= P99_MS_MAX and whole and not refused
    print(f"{'pass' if enough else 'short':5}  {name}: {told}", flush=True)
    return Figure(name, BAR, told, enough, pairs.others_of(found), found["plot"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--pinned", type=float, default=PINNED_SECONDS, help="seconds of what must last long")
    parser.add_argument("--stored", type=int, default=STORED, help="jobs and runs stored before, each; 0: none")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=sorted(BESIDE))
    given = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    asked = Asked(given.rate, given.seconds, given.pinned, given.stored)
    facts = [f"{given.rate:g} runs a second, {given.stored:,} jobs and runs stored"]
    long = given.seconds >= SECONDS and given.pinned >= PINNED_SECONDS
    whole = long and given.stored >= STORED and given.rate >= RATE and given.parts == list(PARTS)
    facts += [] if whole else [QUICK]
    output = BUILD / "stays-fast.md"
    began = time.monotonic()
    figures = pairs.run_whole(
        measure(given.parts, asked, lambda known: output.write_text(markdown(known, [*facts, "**not finished**"])))
    )
    print(f"all of it took {(time.monotonic() - began) / 60:.0f} minutes")
    text = markdown(figures, [*machine(), *facts])
    output.write_text(text)
    print(text)
    raise SystemExit(0 if all(each.enough for each in figures) else 1)


if __name__ == "__main__":
    main()
