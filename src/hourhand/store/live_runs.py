"""Live runs: claimed, started, finished or brought back, hundreds at a time, each write under its fence."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import asyncpg
import msgspec

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.gates import PRIORITY_WAIT, Candidate, Gate, Starts, Verdict, admit
from hourhand.model.ids import instant_of
from hourhand.model.policy import Policy, Rate, policy_from_json
from hourhand.model.resources import Resources
from hourhand.model.run import Claim
from hourhand.model.run_blobs import RunFile
from hourhand.model.states import RunEvent, RunState, sources
from hourhand.model.templates import MARK, render, zone_or_utc
from hourhand.ports.database_time import HearTime, hear_nothing
from hourhand.ports.stores import Claimed, Finish, Head, Held, Requeue, Wish, nothing_begun
from hourhand.store.instants import instants_of, seconds_of
from hourhand.store.jsons import from_json, to_json
from hourhand.store.names import Names
from hourhand.store.run_files import RunFiles
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

_MAY_FINISH: Final = sorted(
    {*sources(RunEvent.SUCCEED), *sources(RunEvent.CANCEL)} - {RunState.QUEUED, RunState.WAITING}
)
_MAY_RETURN: Final = sources(RunEvent.RELEASE)
_MAY_SUCCEED: Final = sources(RunEvent.SUCCEED)
BEHIND_EARLIER: Final = 0
"""In the place of a gate's number: the run waits for an earlier one of its job."""
LOOK_AT_ONCE: Final = 500
_DUE: Final = 4
_FENCE: Final = 6
"""Their places in the rows of claims."""
_run_id: Final = attrgetter("run_id")
_FAILED: Final = frozenset({RunState.FAILED, RunState.TIMED_OUT, RunState.LOST})
_Files = Sequence[tuple[UUID, RunFile]]


class LiveRuns:
    def __init__(self, database: Database, names: Names, priority_wait: timedelta = PRIORITY_WAIT) -> None:
        """`priority_wait`: who has waited longer for a gate is let go on in turns, whatever the priority."""
        self._database = database
        self._names = names
        self._priority_wait = priority_wait
        self._queries = load_queries("hourhand.store.sql", "live_runs.sql", database.schema)
        self._run_files = RunFiles(database)
        self._parts = load_queries("hourhand.store.sql", "parts.sql", database.schema)
        self._pausing = load_queries("hourhand.store.sql", "pauses.sql", database.schema)
        self.on_let_go: Callable[[], None] = lambda: None
        """Called when the end of a run has let others go on: somebody should look for work."""

    async def peek_ready(self, lanes: Sequence[int], hear_time: HearTime = hear_nothing) -> list[Head]:
        rows = await self._database.fetch(self._queries["peek_ready"], lanes=lanes)
        return _heads(rows, hear_time)

    async def peek_known(self, heads: Sequence[Head], hear_time: HearTime = hear_nothing) -> list[Head]:
        rows = await self._database.fetch(
            self._queries["peek_known"],
            lanes=[head.lane_id for head in heads],
            priorities=[head.priority for head in heads],
            since=[head.ready_at for head in heads],
        )
        return _heads(rows, hear_time)

    async def is_crowd(self, head: Head, until: datetime, count: int) -> bool:
        row = await self._database.fetch_one(
            self._queries["is_crowd"],
            lane_id=head.lane_id,
            priority=head.priority,
            since=head.ready_at,
            until=until,
            count=count,
        )
        assert row is not None, "the question is always answered"
        return bool(row["is_crowd"])

    async def claim_runs(
        self,
        executor_id: int,
        wishes: Sequence[Wish],
        now: datetime,
        until: datetime,
        others_until: datetime | None = None,
        heard: Callable[[int], bool] = nothing_begun,
    ) -> Claimed:
        rows = await self._database.fetch(
            self._queries["claim_runs"],
            **_wish_values(wishes),
            limits=[wish.limit for wish in wishes],
            now=now,
            until=until,
            others_until=others_until or until,
            executor_id=executor_id,
        )
        claimed = [row for row in rows if row[_FENCE] is not None]
        alone = len({wish.share for wish in wishes}) == 1
        shares = Counter({wishes[0].share: len(claimed)} if alone else (row["share"] for row in claimed))
        if heard(len(claimed)):
            await asyncio.sleep(0)
        return Claimed(await self._claims(claimed, careful=False), shares, len(rows) - len(claimed))

    @tried_twice
    async def claim_carefully(self, executor_id: int, wishes: Sequence[Wish], now: datetime) -> Claimed:
        # More are looked at than can be taken: those that must wait leave the ready index for good.
        places = {wish.share: wish.limit for wish in wishes}
        look = max(LOOK_AT_ONCE, *places.values())
        async with self._database.transaction() as db:
            rows = await self._fetch(
                db, "careful_candidates", **_wish_values(wishes), now=now, limit=look, executor_id=executor_id
            )
            if not rows:
                return Claimed([])
            behind = [(row["run_id"], BEHIND_EARLIER) for row in rows if row["overlaps"]]
            candidates = [
                Candidate(row["run_id"], tuple(sorted(set(row["gate_ids"] or ()))), row["share"])
                for row in rows
                if not row["overlaps"]
            ]
            verdict = await self._ask_gates(db, candidates, places, now)
            gates_of = {candidate.run_id: candidate.gate_ids for candidate in candidates}
            share_of = {candidate.run_id: candidate.share for candidate in candidates}
            claimed = await self._fetch(
                db,
                "claim_admitted",
                run_ids=verdict.admitted,
                gate_ids=[_array(gates_of[run_id]) for run_id in verdict.admitted],
                executor_id=executor_id,
            )
            waiting = [*verdict.waiting, *behind]
            await self._put_aside(db, waiting, verdict.later)
            aside = dict(waiting) | {run_id: gate for run_id, gate, _ in verdict.later}
            await self._settle_promises(db, rows, [*verdict.admitted, *aside])
            let_go = await self._pass_on(db, rows, aside)
        if let_go:
            self.on_let_go()
        shares = Counter(share_of[row["run_id"]] for row in claimed)
        return Claimed(await self._claims(claimed, careful=True), shares, len(waiting) + len(verdict.later))

    async def claim_parts(self, executor_id: int, lane_id: int, now: datetime, limit: int) -> Claimed:
        rows = await self._database.fetch(
            self._parts["claim_parts"], executor_id=executor_id, lane_id=lane_id, now=now, limit=limit
        )
        claims = await self._claims([tuple(row)[:-2] for row in rows], careful=False)
        parts = [
            msgspec.structs.replace(
                claim,
                careful=policy_from_json(row["policy"]).kill_on_disconnect,
                index=row["place"],
                total=row["total"],
            )
            for claim, row in zip(claims, rows, strict=True)
        ]
        return Claimed(parts, Counter(row["share"] for row in rows))

    async def _ask_gates(
        self, db: Connection, candidates: Sequence[Candidate], places: Mapping[int, int], now: datetime
    ) -> Verdict:
        """The verdict over candidates, with their gates locked until the end of the transaction."""
        gate_ids = sorted({gate_id for candidate in candidates for gate_id in candidate.gate_ids})
        gates: dict[int, Gate] = {}
        if gate_ids:
            locked = await self._fetch(db, "lock_gates", gate_ids=gate_ids)
            counts = await self._fetch(db, "count_slots", gate_ids=gate_ids)
            gates = {row["gate_id"]: _gate(row, counts) for row in locked}
        verdict = admit(candidates, gates, places, now)
        started = [gate for gate in verdict.gates.values() if gate.rate and gate.starts != gates[gate.gate_id].starts]
        if started:
            await self._fetch(
                db,
                "put_starts",
                gate_ids=[gate.gate_id for gate in started],
                buckets=[gate.starts.newest for gate in started],
                starts=[_array(gate.starts.counts) for gate in started],
            )
        return verdict

    async def _put_aside(
        self, db: Connection, waiting: Sequence[tuple[UUID, int]], later: Sequence[tuple[UUID, int, datetime]]
    ) -> None:
        if waiting:
            run_ids, gate_ids = zip(*waiting, strict=True)
            await self._fetch(db, "park_runs", run_ids=run_ids, waits_on=gate_ids)
        if later:
            run_ids, gate_ids, ready = zip(*later, strict=True)
            await self._fetch(db, "delay_runs", run_ids=run_ids, waits_on=gate_ids, ready=ready)

    async def _settle_promises(self, db: Connection, rows: Sequence[Record], settled: Iterable[UUID]) -> None:
        """Nothing is kept any more for runs that had waited for a gate and are through, or wait for something else."""
        had_waited = {row["run_id"] for row in rows if row["waits_on"]}
        run_ids = sorted(had_waited.intersection(settled))
        if run_ids:
            await self._fetch(db, "settle_promises", run_ids=run_ids)

    async def _pass_on(self, db: Connection, rows: Sequence[Record], waits_on: Mapping[UUID, int]) -> int:
        """Others go on in the place of runs that were let go on by one gate and now wait for something else."""
        places = Counter(
            row["waits_on"]
            for row in rows
            if row["waits_on"] is not None and waits_on.get(row["run_id"], row["waits_on"]) != row["waits_on"]
        )
        if not places:
            return 0
        return len(await self._fetch(db, "pass_on", **self._next_in_line(places)))

    def _next_in_line(self, places: Mapping[int, int]) -> dict[str, Any]:
        gate_ids = sorted(places)
        return {
            "gate_ids": gate_ids,
            "places": [places[gate_id] for gate_id in gate_ids],
            "priority_wait": self._priority_wait,
        }

    async def _claims(self, rows: Sequence[Record] | Sequence[tuple[Any, ...]], careful: bool) -> list[Claim]:
        lanes, namespaces = self._names.known, self._names.known_namespaces
        if not namespaces.keys() >= {row[2] for row in rows}:
            namespaces = await self._names.learn_namespaces()
        times = instants_of(row[_DUE] for row in rows)
        # By position, in the order of the statement: names cost more than the values at this rate.
        return [
            Claim(
                run_id,
                job_id,
                namespaces[namespace_id],
                name,
                kind,
                lanes[lane_id].needs,
                from_json(payload) if policy is None else _payload(payload, policy, times[due]),
                times[due],
                ready_at or times[due],
                fence,
                attempt,
                failures,
                losses,
                max_retries,
                retry and from_json(retry),
                timeout_seconds,
                careful,
                *(() if policy is None else _promises(policy_from_json(policy), run_id, times[due])),
            )
            for (
                run_id, job_id, namespace_id, lane_id, due, ready_at, fence, attempt, failures, losses, name,
                kind, max_retries, retry, timeout_seconds, payload, policy, _,
            ) in rows
        ]  # fmt: skip

    async def start_runs(self, starts: Sequence[tuple[UUID, int, datetime]]) -> None:
        run_ids, fences, started = zip(*sorted(starts), strict=True)
        await self._database.fetch(self._queries["start_runs"], run_ids=run_ids, fences=fences, started=started)

    async def finish_runs(self, finishes: Sequence[Finish]) -> set[UUID]:
        plain = [finish for finish in finishes if finish.is_plain]
        done = await self._finish_plain(plain) if plain else set()
        if len(done) == len(finishes):
            return done
        rest = [finish for finish in finishes if finish.run_id not in done]
        files = _files_of(rest)
        if files:
            return done | await self._finish_with_files(rest, files)
        return done | await self._finish_any(rest)

    async def _finish_plain(self, finishes: Sequence[Finish]) -> set[UUID]:
        """Those that needed no more than the shortest road."""
        finishes = sorted(finishes, key=_run_id)  # see _finish_values
        run_ids = [finish.run_id for finish in finishes]
        try:
            row = await self._database.fetch_one(
                self._queries["finish_plain"],
                run_ids=run_ids,
                fences=[finish.fence for finish in finishes],
                started=[seconds_of(finish.started_at) for finish in finishes],
                ended=[seconds_of(finish.ended_at) for finish in finishes],
                from_states=_MAY_SUCCEED,
            )
        except asyncpg.UniqueViolationError:  # one is in history already: the long road steps over it
            return set()
        assert row is not None, "a count is always answered"
        return set(run_ids if row["kept"] == len(run_ids) else row["run_ids"] or ())

    async def _finish_any(self, finishes: Sequence[Finish]) -> set[UUID]:
        rows = await self._database.fetch(
            self._queries["finish_runs"], **_finish_values(finishes, _MAY_FINISH), priority_wait=self._priority_wait
        )
        return await self._finished(finishes, rows)

    async def _finish_with_files(self, finishes: Sequence[Finish], files: _Files) -> set[UUID]:
        """Files are named together with the end of the attempt that left them, or not at all."""
        values = _finish_values(finishes, _MAY_FINISH)
        async with self._database.transaction() as db:
            rows = await self._fetch(db, "finish_runs", **values, priority_wait=self._priority_wait)
            await self._add_files(db, rows, files)
        return await self._finished(finishes, rows)

    async def _add_files(self, db: Connection, rows: Sequence[Record], files: _Files) -> None:
        of_the_run = {row["run_id"] for row in rows}
        await self._run_files.add_on(db, [(run_id, file) for run_id, file in files if run_id in of_the_run])

    async def _finished(self, finishes: Sequence[Finish], rows: Sequence[Record]) -> set[UUID]:
        self.tell_let_go(rows)
        if _places_left(rows):
            await self.free_strays([row["run_id"] for row in rows])
        failed = [row["run_id"] for row in rows if row["state"] in _FAILED]
        if failed:
            await self._pause_failing(failed, max(finish.ended_at for finish in finishes))
        return {row["run_id"] for row in rows}

    @tried_twice
    async def _pause_failing(self, run_ids: Sequence[UUID], now: datetime) -> None:
        """Pauses the jobs of failed runs that asked for it after so many in a row. Should this not come about, the next
        failure does it."""
        async with self._database.transaction() as db:
            paused = await self._database.fetch_on(db, self._pausing["pause_failing"], run_ids=run_ids, now=now)
            if paused:
                job_ids = [row["job_id"] for row in paused]
                await self._database.fetch_on(db, self._pausing["drop_failing"], job_ids=job_ids, now=now)
        for row in paused:
            emit(Event.JOB_PAUSED, job_id=str(row["job_id"]), name=row["name"], reason=row["pause_reason"])

    async def finish_on(self, db: Connection, finish: Finish) -> list[Record]:
        """Finishes a run inside the caller's transaction, unless it is being cancelled. The rows, if it could, are for
        `tell_let_go` after the commit."""
        values = _finish_values([finish], _MAY_SUCCEED)
        rows = await self._fetch(db, "finish_runs", **values, priority_wait=self._priority_wait)
        if finish.files:
            await self._add_files(db, rows, _files_of([finish]))
        if _places_left(rows):
            await self._free_strays_on(db, [row["run_id"] for row in rows])
        return rows

    async def requeue_runs(self, requeues: Sequence[Requeue]) -> set[UUID]:
        values = _requeue_values(requeues) | {"priority_wait": self._priority_wait}
        files = _files_of(requeues)
        if files:
            async with self._database.transaction() as db:
                rows = await self._fetch(db, "requeue_runs", **values)
                await self._add_files(db, rows, files)
        else:
            rows = await self._database.fetch(self._queries["requeue_runs"], **values)
        self.tell_let_go(rows)
        if _places_left(rows):
            await self.free_strays([row["run_id"] for row in rows])
        return {row["run_id"] for row in rows}

    @tried_twice
    async def free_strays(self, run_ids: Sequence[UUID] | None = None) -> int:
        """Gives back places that runs hold in gates and that are in nobody's hands: of these, or of all. How many."""
        # Looked for without a lock: nearly always there are none.
        if not await self._database.fetch(self._queries["find_strays"], run_ids=run_ids):
            return 0
        async with self._database.transaction() as db:
            return await self._free_strays_on(db, run_ids)

    async def _free_strays_on(self, db: Connection, run_ids: Sequence[UUID] | None) -> int:
        found = await self._fetch(db, "find_strays", run_ids=run_ids)
        if not found:
            return 0
        strays = [(row["run_id"], row["gate_id"]) for row in found]
        await self._fetch(db, "lock_gates", gate_ids=sorted({gate_id for _, gate_id in strays}))
        freed_of, gate_ids = zip(*strays, strict=True)
        return len(await self._fetch(db, "drop_strays", run_ids=freed_of, gate_ids=gate_ids))

    def tell_let_go(self, rows: Sequence[Record]) -> None:
        if rows and rows[0]["let_go"]:
            self.on_let_go()

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)

    async def note_late(self, said: Sequence[tuple[UUID, int, RunState, datetime]]) -> set[UUID]:
        run_ids, fences, states, ended = zip(*said, strict=True)
        rows = await self._database.fetch(
            self._queries["note_late"], run_ids=run_ids, fences=fences, states=states, ended=ended
        )
        return {row["run_id"] for row in rows}

    async def cancelling_runs(self, executor_id: int) -> list[tuple[UUID, int]]:
        rows = await self._database.fetch(self._queries["cancelling_runs"], executor_id=executor_id)
        return [(row["run_id"], row["fence"]) for row in rows]

    async def held_by(self, executor_ids: Sequence[int], limit: int) -> list[Held]:
        rows = await self._database.fetch(self._queries["held_by"], executor_ids=executor_ids, limit=limit)
        return [
            Held(
                row["run_id"],
                row["fence"],
                row["failures"],
                row["losses"],
                RunState(row["state"]),
                row["started_at"],
                row["at_most_once"],
                row["gated"],
            )
            for row in rows
        ]

    async def count_losses(self, run_ids: Sequence[UUID], since: datetime) -> dict[UUID, int]:
        rows = await self._database.fetch(self._queries["count_losses"], run_ids=run_ids, since=since)
        return {row["run_id"]: row["losses"] for row in rows}


def _heads(rows: Sequence[Record], hear_time: HearTime) -> list[Head]:
    if rows:
        hear_time(rows[0]["now"])
    return [Head(row["lane_id"], row["priority"], row["ready_at"]) for row in rows]


def _gate(row: Record, counts: Sequence[Record]) -> Gate:
    mine = [count for count in counts if count["gate_id"] == row["gate_id"]]
    promised = frozenset(count["run_id"] for count in mine if count["run_id"] is not None)
    rate = None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_seconds"])
    starts = Starts(row["rate_bucket"] or 0, tuple(row["rate_starts"] or ()))
    return Gate(row["gate_id"], row["capacity"], sum(count["held"] for count in mine), rate, starts, promised)


def _promises(
    policy: Policy, run_id: UUID, due: datetime
) -> tuple[bool, datetime | None, Resources | None, tuple[str, ...]]:
    # A run that was asked for to repeat an old one has its own time from the moment it was asked for.
    return policy.at_most_once, policy.deadline_of(max(due, instant_of(run_id))), policy.resources, policy.secrets


def _payload(payload: str, policy: str, due: datetime) -> Any:
    """With the time that the run stands for put in, where the payload names it."""
    value = from_json(payload)
    zone = policy_from_json(policy).template_zone if MARK in payload else None
    return value if zone is None else render(value, due, zone_or_utc(zone))


def _places_left(rows: Sequence[Record]) -> bool:
    """Whether a change of a job gave one of them places at the very moment it ended."""
    return bool(rows and rows[0]["places_left"])


def _array(numbers: Iterable[int]) -> str:
    """An array inside an array, which unnest would flatten, goes as text."""
    return "{" + ",".join(map(str, numbers)) + "}"


def _wish_values(wishes: Sequence[Wish]) -> dict[str, list[Any]]:
    return {
        "lanes": [wish.head.lane_id for wish in wishes],
        "priorities": [wish.head.priority for wish in wishes],
        "since": [wish.head.ready_at for wish in wishes],
        "shares": [wish.share for wish in wishes],
    }


def _finish_values(finishes: Sequence[Finish], from_states: Sequence[RunState]) -> dict[str, Any]:
    # In the order of their ids, as everybody takes many rows of runs: two batches do not wait for each other crosswise.
    finishes = sorted(finishes, key=_run_id)
    return {
        "run_ids": [finish.run_id for finish in finishes],
        "fences": [finish.fence for finish in finishes],
        "states": [finish.state for finish in finishes],
        "started": [finish.started_at for finish in finishes],
        "ended": [finish.ended_at for finish in finishes],
        "reasons": [finish.reason for finish in finishes],
        "errors": [finish.error for finish in finishes],
        "results": [None if finish.result is None else to_json(finish.result) for finish in finishes],
        "usages": [None if finish.usage is None else to_json(finish.usage) for finish in finishes],
        "from_states": from_states,
    }


def _requeue_values(requeues: Sequence[Requeue]) -> dict[str, Any]:
    requeues = sorted(requeues, key=_run_id)  # see _finish_values
    return {
        "run_ids": [requeue.run_id for requeue in requeues],
        "fences": [requeue.fence for requeue in requeues],
        "ready": [requeue.ready_at for requeue in requeues],
        "failed": [int(requeue.failed) for requeue in requeues],
        "lost": [int(requeue.lost) for requeue in requeues],
        "states": [requeue.state for requeue in requeues],
        "started": [requeue.started_at for requeue in requeues],
        "ended": [requeue.ended_at for requeue in requeues],
        "reasons": [requeue.reason for requeue in requeues],
        "errors": [requeue.error for requeue in requeues],
        "usages": [None if requeue.usage is None else to_json(requeue.usage) for requeue in requeues],
        "from_states": _MAY_RETURN,
    }


def _files_of(ends: Sequence[Finish] | Sequence[Requeue]) -> _Files:
    """Of the newest attempt of each run: an older one may have its late word in the same batch, and ends nothing."""
    if not any(end.files for end in ends):
        return []
    newest = dict(sorted((end.run_id, end.fence) for end in ends))
    return [(end.run_id, file) for end in ends if end.fence == newest[end.run_id] for file in end.files]
