"""What a job costs, by stage, and what follows for larger clusters: the tables of `docs/internals/scale.md`.

Measures on temporary clusters: whole lives, immediate and future, saturated, also shared by several nodes; a few rates
below that; single submissions, to one API and to two, and gets; cron occurrences; nodes at rest; and the disk alone.
Processor time is what the kernel counts, rows and the write-ahead log are what PostgreSQL counts. What is computed from
it is told apart. Writes `build/cost-model.json` and `build/cost-model.md`.

    python benchmarks/cost_model.py
    python benchmarks/cost_model.py --quick
    python benchmarks/cost_model.py --missing
"""

import argparse
import asyncio
import json
import math
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pairs
from hourhand.bench.cluster import SCHEMA, Cluster, free_port
from hourhand.bench.course import Course
from hourhand.bench.figures import per_second
from hourhand.bench.lifecycle import Lifecycle, measure_lifecycle
from hourhand.bench.meter import CLIENT
from hourhand.bench.read import Read, measure_read
from hourhand.bench.recurring import Recurring, measure_recurring
from hourhand.bench.report import Facts, Progress
from hourhand.bench.steady import Steady, measure_steady
from hourhand.bench.submit import Submit, drive_submissions, measure_submit
from hourhand.bench.target import Target, open_roles, open_target
from hourhand.telemetry import set_up_logging
from table import BUILD, QUICK, machine

STATISTICS_SECONDS = 12
"""An idle session of PostgreSQL tells its counters after ten."""
REST_SECONDS = 15
MORE_EXECUTORS = 4
UTILISATION = 0.7
"""How busy a core may be that must answer in time; what is computed for other rates assumes it."""
RATES_COMPUTED = (1_000, 10_000, 30_000, 100_000)
CORES_COMPUTED = (1, 2, 4, 8, 16, 32)
ROLES = ("api", "scheduler", "executor")
_OURS = {"client": "client, the measurement itself", "bench": "looks of the measurement"}
_ROWS = f"""
SELECT coalesce(p.relname, c.relname) AS name, sum(s.n_tup_ins)::float8 AS inserted,
       sum(s.n_tup_upd)::float8 AS updated, sum(s.n_tup_hot_upd)::float8 AS updated_hot,
       sum(s.n_tup_del)::float8 AS deleted
  FROM pg_stat_all_tables s
  JOIN pg_class c ON c.oid = s.relid
  LEFT JOIN pg_inherits i ON i.inhrelid = c.oid
  LEFT JOIN pg_class p ON p.oid = i.inhparent
 WHERE s.schemaname = '{SCHEMA}'
 GROUP BY 1
"""
_SERVER = """
SELECT w.wal_bytes::float8 AS wal_bytes, w.wal_records::float8 AS wal_records, w.wal_fpi::float8 AS wal_pages,
       (SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal')::float8 AS fsyncs,
       (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8 AS commits
  FROM pg_stat_wal w
"""
_SESSIONS = """
SELECT split_part(application_name, ' ', 2) AS role, count(*)::int AS sessions FROM pg_stat_activity
 WHERE backend_type = 'client backend' AND application_name LIKE 'hourhand %' GROUP BY 1
"""


# --- PostgreSQL's own books -------------------------------------------------------------------------------


async def read_books(cluster: Cluster) -> dict[str, float]:
    """What the server has counted so far. Waits until its sessions have told what they did."""
    await asyncio.sleep(STATISTICS_SECONDS)
    database = await cluster.connect()
    try:
        [server] = await database.fetch(_SERVER)
        found = {name: float(value) for name, value in server.items()}
        for row in await database.fetch(_ROWS):
            for what in ("inserted", "updated", "updated_hot", "deleted"):
                found[f"{row['name']} {what}"] = float(row[what] or 0)
    finally:
        await database.close()
    return {**found, "at": time.monotonic()}


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """For each run that was recorded meanwhile: rows, log and commits."""
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    runs = max(grown.get("runs inserted", 0.0), 1.0)
    rows = {name: round(count / runs, 2) for name, count in grown.items() if " " in name and count / runs >= 0.005}
    return {
        "runs": int(runs),
        "wal_bytes": round(grown["wal_bytes"] / runs, 1),
        "wal_records": round(grown["wal_records"] / runs, 2),
        "wal_pages": round(grown["wal_pages"] / runs, 4),
        "fsyncs": grown["fsyncs"],
        "commits": grown["commits"],
        "rows": rows,
    }


# --- measuring --------------------------------------------------------------------------------------------


async def whole_lives(mode: Literal["immediate", "future"], seconds: float) -> Facts:
    async with open_target() as target:
        assert target.cluster is not None
        await measure_lifecycle(target, Lifecycle(3.0, mode), Progress.silent())  # warmth
        before = await read_books(target.cluster)
        found = (await measure_lifecycle(target, Lifecycle(seconds, mode, stages=True), Progress.silent())).facts
        books = between(before, await read_books(target.cluster))
        pairs.refuse_unsound(mode, found)
        return {**_told(found), "books": books, "sessions": await _sessions(target.cluster)}


async def several_nodes(seconds: float) -> Facts:
    """The same future jobs with three executors and two schedulers: what it costs that they share the work."""
    async with open_roles({}, Progress.silent()) as (roles, target):
        for role in (*["scheduler"] * 2, *["executor"] * 3):
            await roles.start(role)
        await _present(target, 6)
        await measure_lifecycle(target, Lifecycle(3.0, "future"), Progress.silent())  # warmth
        found = (await measure_lifecycle(target, Lifecycle(seconds, "future", stages=True), Progress.silent())).facts
    pairs.refuse_unsound("several nodes", found)
    return _told(found)


async def at_rate(rate: float, seconds: float) -> Facts:
    async with open_target() as target:
        assert target.cluster is not None
        before = await read_books(target.cluster)
        asked = Steady(rate, seconds, "meanwhile", stages=True)
        found = (await measure_steady(target, asked, Progress.silent())).facts
        books = between(before, await read_books(target.cluster))
        pairs.refuse_unsound(f"{rate:g} a second", found)
        busy = books["runs"] / rate  # the trial before it is in the books too
        each_second = {name: round(books[name] / busy, 1) for name in ("fsyncs", "commits")}
        return {**_told(found), "rate": rate, "books": {**books, **each_second}}


async def requests(seconds: float) -> Facts:
    async with open_target() as target:
        single = (await measure_submit(target, Submit("single", seconds), Progress.silent())).facts
    async with open_target() as target:
        batch = (await measure_submit(target, Submit("batch", seconds), Progress.silent())).facts
    async with open_target() as target:
        read = (await measure_read(target, Read(seconds, readers=0.0), Progress.silent())).facts
    for name, facts in (("single", single), ("batch", batch), ("get", read)):
        pairs.refuse_unsound(name, facts)
    found = {"single": (single, "submit_per_second"), "batch": (batch, "submit_per_second")}
    return {name: _per_request(*each) for name, each in {**found, "get": (read, "gets_per_second")}.items()}


async def two_apis(seconds: float) -> Facts:
    """Single submissions to two API processes at once: whether a second one makes a request dearer."""
    async with open_roles({}, Progress.silent()) as (roles, target):
        assert target.cluster is not None
        port = free_port()
        await roles.start("api", {"api.port": str(port)})
        await _present(target, 2)
        asked, second = Submit("single", seconds), replace(target, url=f"http://127.0.0.1:{port}")
        async with (
            target.wire(asked.connections_used) as one,
            second.wire(asked.connections_used) as other,
            Course(target, Progress.silent()) as course,
        ):
            sides = await asyncio.gather(*(drive_submissions(wire, asked) for wire in (one, other)))
        answered = sum(acknowledged.count for _, acknowledged in sides)
        database = await target.cluster.connect()
        try:
            stored = await database.fetchval(f"SELECT count(*) FROM {SCHEMA}.jobs")
        finally:
            await database.close()
    if stored < answered:
        raise SystemExit(f"two APIs acknowledged {answered} jobs, of which {stored} are stored")
    rate = sum(per_second(acknowledged.count, driven.seconds) for driven, acknowledged in sides)
    return _per_request({"per_second": rate, "cpu": course.cpu()}, "per_second")


async def occurrences(rate: float, seconds: float) -> Facts:
    async with open_target() as target:
        asked = Recurring(rate, seconds, stages=True)
        found = (await measure_recurring(target, asked, Progress.silent())).facts
    pairs.refuse_unsound("recurring", found)
    return {**_told(found), "rate": rate}


async def at_rest(seconds: float) -> Facts:
    """What each node costs that has nothing to do; of executors from how much more four of them take."""
    async with open_roles({}, Progress.silent()) as (roles, target):
        assert target.cluster is not None
        for role in ("scheduler", "executor"):
            await roles.start(role)
        one, sessions = await _rest(target, 3, seconds)
        for _ in range(MORE_EXECUTORS):
            await roles.start("executor")
        five, more_sessions = await _rest(target, 3 + MORE_EXECUTORS, seconds)
    found: Facts = {role: _of_role(one, role) | {"sessions": sessions.get(role, 0)} for role in ROLES}
    few, many = (_of_role(each, "executor") for each in (one, five))
    added = {name: round((many[name] - few[name]) / MORE_EXECUTORS, 5) for name in few}
    added["sessions"] = (more_sessions["executor"] - sessions["executor"]) / MORE_EXECUTORS
    return {**found, "executor more": added}


async def _rest(target: Target, nodes: int, seconds: float) -> tuple[dict[str, float], dict[str, int]]:
    assert target.cluster is not None
    await _present(target, nodes)
    await asyncio.sleep(REST_SECONDS)
    async with Course(target, Progress.silent()) as course:
        await asyncio.sleep(seconds)
    return course.cpu(), await _sessions(target.cluster)


async def _present(target: Target, nodes: int) -> None:
    deadline = time.monotonic() + 60
    while len((await target.status())["nodes"]) < nodes:
        if time.monotonic() > deadline:
            raise SystemExit(f"{nodes} nodes were not there within a minute")
        await asyncio.sleep(0.2)


def _of_role(cpu: Mapping[str, float], role: str) -> dict[str, float]:
    return {"python": cpu.get(role, 0.0), "postgres": cpu.get(f"postgres {role}", 0.0)}


async def _sessions(cluster: Cluster) -> dict[str, int]:
    database = await cluster.connect()
    try:
        return {row["role"]: row["sessions"] for row in await database.fetch(_SESSIONS)}
    finally:
        await database.close()


def _told(found: Facts) -> Facts:
    kept = ("jobs", "seconds", "jobs_per_second", "lateness_ms", "cpu", "machine", "stages_us")
    return {name: found[name] for name in kept}


def _per_request(found: Facts, rate: str) -> dict[str, float]:
    """Microseconds of processor time per request, or per job of a batch."""
    each = {role: cores / found[rate] * 1e6 for role, cores in found["cpu"].items() if role != CLIENT}
    return {
        "per_second": round(found[rate], 1),
        "api": round(each.get("api", 0.0), 1),
        "postgres": round(sum(micros for role, micros in each.items() if role.startswith("postgres")), 1),
    }


def durable_writes(seconds: float) -> float:
    """Writes of a page, each made durable, one after the other: as often a second as this disk can."""
    with tempfile.NamedTemporaryFile() as file:
        page, done, until = b"x" * 8192, 0, time.monotonic() + seconds
        while time.monotonic() < until:
            os.pwrite(file.fileno(), page, (done % 1000) * len(page))
            os.fdatasync(file.fileno())
            done += 1
    return round(done / seconds, 1)


def parts(quick: bool) -> dict[str, Callable[[], Awaitable[Any]]]:
    def span(full: float, short: float) -> float:
        return short if quick else full

    async def disk() -> float:
        return durable_writes(span(5, 1))

    return {
        "durable_writes_per_second": disk,
        "immediate": lambda: whole_lives("immediate", span(30, 4)),
        "future": lambda: whole_lives("future", span(30, 4)),
        "several nodes": lambda: several_nodes(span(30, 4)),
        "rate 200": lambda: at_rate(200.0, span(20, 4)),
        "rate 2000": lambda: at_rate(2000.0, span(20, 4)),
        "rate 5000": lambda: at_rate(5000.0, span(20, 4)),
        "requests": lambda: requests(span(10, 3)),
        "two APIs": lambda: two_apis(span(10, 3)),
        "recurring": lambda: occurrences(span(5000, 200), span(60, 4)),
        "rest": lambda: at_rest(span(30, 5)),
    }


async def measure(found: Facts, quick: bool, kept: Path) -> Facts:
    """Measures what is not among the found yet. Each part is kept as soon as it is there."""
    for name, part in parts(quick).items():
        if name not in found:
            print(f"measuring {name}", flush=True)
            found[name] = await part()
            keep(found, kept)
    return found


def keep(found: Facts, kept: Path) -> None:
    kept.write_text(json.dumps(found, indent=1) + "\n")


# --- telling ----------------------------------------------------------------------------------------------


def tables(found: Facts) -> str:
    told = [
        "; ".join(found["machine"]),
        f"Measured. The disk alone makes {found['durable_writes_per_second']:,.0f} pages a second durable, one by one.",
        _stages(found),
        _books(found),
        _rates(found),
        _requests(found),
        _rest_table(found),
        _computed(found),
        _sizes(found),
        _thresholds(found),
    ]
    return "\n\n".join(told) + "\n"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _stages(found: Facts) -> str:
    """Python and PostgreSQL apart, for each role."""
    works = ("immediate", "future", "several nodes", "recurring")
    rows = []
    for part in ("python", "postgres"):
        names = sorted({name for work in works for name in found[work]["stages_us"][part]} - {"sum"})
        for name in [*names, "sum"]:
            micros = [found[work]["stages_us"][part].get(name, 0.0) for work in works]
            if max(micros) >= 0.5:
                rows.append([f"{part}: {_OURS.get(name, name)}", *(f"{each:.1f}" for each in micros)])
    rates = [f"{work}, {found[work]['jobs_per_second']:,.0f}/s" for work in works]
    told = "Microseconds of processor time per run; several nodes: future jobs, three executors and two schedulers."
    return f"{told}\n\n{_table(['stage', *rates], rows)}"


def _books(found: Facts) -> str:
    works = ("immediate", "future")
    books = [found[work]["books"] for work in works]
    rows = [["log (WAL), bytes", *(f"{each['wal_bytes']:,.0f}" for each in books)]]
    rows += [["of its records", *(f"{each['wal_records']:.1f}" for each in books)]]
    rows += [["whole pages in it", *(f"{each['wal_pages']:.3f}" for each in books)]]
    rows += [["runs per durable write", *(f"{each['runs'] / max(each['fsyncs'], 1):,.0f}" for each in books)]]
    rows += [["runs per commit", *(f"{each['runs'] / max(each['commits'], 1):,.0f}" for each in books)]]
    for name in sorted({name for each in books for name in each["rows"]}):
        rows.append([f"rows: {name}", *(f"{each['rows'].get(name, 0.0):.2f}" for each in books)])
    return "Written per run, saturated:\n\n" + _table(["", *works], rows)


def _rates(found: Facts) -> str:
    rows = []
    for name in [name for name in found if name.startswith("rate ")]:
        one = found[name]
        cores = one["cpu"]
        server = sum(share for role, share in cores.items() if role.startswith("postgres"))
        shares = [f"{cores.get(role, 0.0):.2f}" for role in ROLES]
        log = one["books"]["wal_bytes"] * one["rate"] / 1e6
        late, fsyncs = f"{one['lateness_ms']['p99']:.1f} ms", one["books"]["fsyncs"]
        writes = [f"{fsyncs:,.0f}", f"{one['rate'] / max(fsyncs, 1):.1f}"]
        rows.append([f"{one['rate']:,.0f}/s", *shares, f"{server:.2f}", *writes, f"{log:.2f} MB", late])
    heads = ["submitted and due", *ROLES, "PostgreSQL", "durable writes/s", "runs for each", "log/s", "p99"]
    told = "Below saturation, in cores; the more there is, the more each durable write carries:"
    return f"{told}\n\n{_table(heads, rows)}"


def _requests(found: Facts) -> str:
    names = {"single": "single submission", "batch": "job of a batch of 1,000", "get": "get of a job by id"}
    each = {names[name]: one for name, one in found["requests"].items()}
    each["single submission, two API processes"] = found["two APIs"]
    rows = [
        [name, f"{one['per_second']:,.0f}", f"{one['api']:.1f}", f"{one['postgres']:.1f}"] for name, one in each.items()
    ]
    heads = ["request", "a second", "API", "PostgreSQL"]
    return "Requests, in microseconds:\n\n" + _table(heads, rows)


def _rest_table(found: Facts) -> str:
    names = {**{role: role for role in ROLES}, "executor more": "each further executor"}
    rows = [
        [told, f"{one['python'] * 100:.2f} %", f"{one['postgres'] * 100:.2f} %", f"{one['sessions']:g}"]
        for name, told in names.items()
        for one in [found["rest"][name]]
    ]
    return "Nodes at rest, of a core:\n\n" + _table(["node", "itself", "PostgreSQL", "sessions"], rows)


def _computed(found: Facts) -> str:
    """From what `future` jobs cost: each passes through all stages."""
    costs = needs_per_run(found["future"])
    rows = []
    for rate in RATES_COMPUTED:
        needs = needed(costs, rate)
        processes = [f"{needs[role]:,}" for role in ROLES]
        log = found["future"]["books"]["wal_bytes"] * rate / 1e6
        rows.append([f"{rate:,}/s", f"{needs['postgres']:,}", *processes, f"{log:,.0f} MB"])
    heads = ["future no-op jobs", "cores of PostgreSQL", *(f"{role} processes" for role in ROLES), "log/s"]
    carried = UTILISATION * 1e6 / costs["postgres"]
    told = f"Computed, not measured: cores at most {UTILISATION:.0%} busy, costs as above; one core of PostgreSQL then "
    return f"{told}carries {carried:,.0f} a second.\n\n{_table(heads, rows)}"


def _sizes(found: Facts) -> str:
    """What a PostgreSQL of so many cores carries of each kind, and which disk that takes."""
    works = ("immediate", "future", "recurring")
    micros = {work: needs_per_run(found[work])["postgres"] for work in works}
    rows = []
    for cores in CORES_COMPUTED:
        rates = {work: cores * UTILISATION * 1e6 / micros[work] for work in works}
        log = rates["future"] * found["future"]["books"]["wal_bytes"] / 1e6
        rows.append([f"{cores}", *(f"{_about(rates[work])}/s" for work in works), f"{_about(log)} MB"])
    heads = ["cores of PostgreSQL", *works, "log/s, future"]
    return f"What a server carries of one kind, computed the same way:\n\n{_table(heads, rows)}"


def _thresholds(found: Facts) -> str:
    """From when on one of each is too few."""
    busy, asked, more = UTILISATION * 1e6, found["requests"], found["rest"]["executor more"]
    costs = {work: needs_per_run(found[work]) for work in ("future", "recurring")}

    def up_to(micros: float) -> str:
        return f"{_about(busy / micros)}/s" if micros else "not reached"

    rows = [
        ["one executor", "runs without work of their own", up_to(costs["future"]["executor"])],
        ["one scheduler", "occurrences of recurring jobs", up_to(costs["recurring"]["scheduler"])],
        ["one scheduler", "jobs that run once, beyond the horizon", up_to(costs["future"]["scheduler"])],
        ["one API process", "single submissions", up_to(asked["single"]["api"])],
        ["one API process", "jobs in batches", up_to(asked["batch"]["api"])],
        ["one API process", "gets by id", up_to(asked["get"]["api"])],
        ["one core of PostgreSQL", "single submissions, stored and not yet run", up_to(asked["single"]["postgres"])],
        ["one core of PostgreSQL", "jobs in batches, stored and not yet run", up_to(asked["batch"]["postgres"])],
    ]
    if more["postgres"] > 0:
        rows.append(["a tenth of a core of PostgreSQL", "executors at rest", _about(0.1 / more["postgres"])])
    heads = ["what there is", "carries", "up to"]
    return f"From when on there must be more, or something else, computed the same way:\n\n{_table(heads, rows)}"


def _about(value: float) -> str:
    """Two digits of it: what is computed from measured costs is no better than they are."""
    return f"{float(f'{value:.2g}'):,.0f}"


def needs_per_run(found: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of each role's processes and of PostgreSQL as a whole; the bench's own sessions are not needed."""
    python, server = found["stages_us"]["python"], found["stages_us"]["postgres"]
    return {**{role: python.get(role, 0.0) for role in ROLES}, "postgres": server["sum"] - server.get("bench", 0.0)}


def needed(costs: Mapping[str, float], rate: float) -> dict[str, int]:
    """Cores, or processes of one core each, for a rate."""
    return {name: max(math.ceil(rate * micros / 1e6 / UTILISATION - 1e-9), 1) for name, micros in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a short form that shows that it works")
    parser.add_argument("--missing", action="store_true", help="measure only what was not measured before")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    set_up_logging("bench", False, "warning")
    kept = BUILD / "cost-model.json"
    about = {"machine": [*machine(), *([QUICK] if args.quick else [])]}
    found = json.loads(kept.read_text()) if args.missing and kept.exists() else about
    text = tables(pairs.run_whole(measure(found, args.quick, kept)))
    (BUILD / "cost-model.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
