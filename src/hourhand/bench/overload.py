"""More than can be carried, from many sides at once: is what is too much refused at the door, and the rest served?

Three stretches of immediate batches: few callers, who keep the server busy; then many; then three times as many. The
room that the API has for bodies is small in this cluster, so that it is full long before the memory of the machine is.
Most of the refused come back when they were told to; every fourth comes back at once, as some do. Meanwhile somebody
asks whether the server is alive. Then all that was accepted must have run, and single jobs be answered at once again.
What is accepted faster than it can be run waits, and is not refused: `lateness_ms` tells how long.

Callers take a new connection after a refusal: the server need not have read the rest of what was refused.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from hourhand.bench.bodies import NOOP, Acknowledged, batch_of_one_kind, job_body
from hourhand.bench.course import Course
from hourhand.bench.draining import drain
from hourhand.bench.figures import per_second, percentiles
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.target import Target
from hourhand.bench.telling import curves_of, read_ours, told
from hourhand.bench.wire import ANSWER_SECONDS_MAX, Wire, expect
from hourhand.bench.witness import Witnessed
from hourhand.model.errors import WorldError

ROOM_BYTES: Final = 16 << 20
CALM_CONNECTIONS: Final = 3
TIMES_MORE: Final = 3
IMPATIENT_EVERY: Final = 4
AFTERWARDS: Final = 50
"""Single jobs, one after the other, when it is over."""
KEPT_RATE_MIN: Final = 0.5
"""The share of the calm rate that must be left when far more is asked for: of what is accepted, and of what starts."""
ROLES: Final = ("api", "scheduler", "executor")
MEMORY_MORE_MAX: Final = 1.25
"""What each may take of memory with three times the callers, beside what it took with the first."""
_MEMORY_SPARE_MB: Final = 20.0
_ALIVE_SECONDS: Final = 0.2
_REFUSALS: Final = (429, 503)
_FILLER: Final = "x" * 300


@dataclass(frozen=True, slots=True)
class Overload:
    seconds: float = 10.0
    """Of each stretch."""
    connections: int = 64
    batch: int = 1000

    @property
    def most(self) -> int:
        return self.connections * TIMES_MORE


def settings_for() -> dict[str, str]:
    return {"api.bodies_bytes_max": str(ROOM_BYTES)}


@dataclass(slots=True)
class Stretch:
    """What came of the calls within a stretch of time."""

    began: float = field(default_factory=time.time)
    seconds: float = 0.0
    jobs: int = 0
    accepted: int = 0
    refused: int = 0
    unsaid: int = 0
    """Refused without a word when to come back."""
    broken: int = 0
    """Answered otherwise, or not at all."""
    last_fault: str = ""

    @property
    def per_second(self) -> float:
        return per_second(self.jobs, self.seconds)

    def starts_per_second(self, starts: Iterable[int]) -> float:
        """Of those that lie within it. In microseconds since 1970."""
        begin, end = int(self.began * 1e6), int((self.began + self.seconds) * 1e6)
        return per_second(sum(begin <= start < end for start in starts), self.seconds)


async def measure_overload(target: Target, asked: Overload, progress: Progress) -> Measured:
    assert target.cluster is not None, "the room of a cluster of its own is made small"
    callers = _Callers(asked)
    async with target.wire(asked.most + 2) as wire, Course(target, progress) as course:
        began = time.monotonic()
        alive = asyncio.create_task(callers.keep_asking(wire))
        try:
            calm = await callers.call(wire, CALM_CONNECTIONS, progress)
            many = await callers.call(wire, asked.connections, progress)
            more = await callers.call(wire, asked.most, progress)
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
        alone = Stretch()
        await drain(target, course.lines, callers.acknowledged.count, callers.acknowledged.latest())
        alone.seconds = time.time() - alone.began
        seconds = time.monotonic() - began
        after_ms = await callers.call_singly(wire)
        await drain(target, course.lines, callers.acknowledged.count, [])
    witnessed = await read_ours(target, course, callers.acknowledged)
    facts: Facts = {
        "bench": "overload",
        "mode": "overload",
        "connections": asked.connections,
        "jobs": callers.acknowledged.count,
        "seconds": seconds,
        "jobs_per_second": per_second(callers.acknowledged.count, seconds),
        **_told_of(calm, many, more),
        **_starts_of(witnessed, calm, many, more),
        "alone_starts_per_second": alone.starts_per_second(witnessed.starts),
        **_memory_of(course, many, more),
        "alive_ms": percentiles(callers.alive_ms),
        "not_alive": callers.not_alive,
        "after_ms": percentiles(after_ms),
        **told(course, callers.acknowledged, witnessed),
    }
    return Measured({**facts, "sound": is_sound(facts)}, curves_of(course, witnessed))


def _told_of(calm: Stretch, many: Stretch, more: Stretch) -> Facts:
    every = (calm, many, more)
    kept = min(many.per_second, more.per_second) / calm.per_second if calm.per_second else 0.0
    return {
        "submit_per_second": calm.per_second,
        "calm_per_second": calm.per_second,
        "flood_per_second": many.per_second,
        "more_per_second": more.per_second,
        "kept_rate": round(kept, 3),
        "accepted": sum(each.accepted for each in every),
        "refused": sum(each.refused for each in every),
        "refused_unsaid": sum(each.unsaid for each in every),
        "broken": sum(each.broken for each in every),
        "last_fault": next((each.last_fault for each in reversed(every) if each.last_fault), None),
    }


def _starts_of(witnessed: Witnessed, calm: Stretch, many: Stretch, more: Stretch) -> Facts:
    """Runs that began within each stretch, a second: whoever is busy refusing must not forget what was accepted."""
    rates = [each.starts_per_second(witnessed.starts) for each in (calm, many, more)]
    return {
        "calm_starts_per_second": rates[0],
        "flood_starts_per_second": rates[1],
        "more_starts_per_second": rates[2],
        "kept_starts": round(min(rates[1:]) / rates[0], 3) if rates[0] else 0.0,
    }


def is_sound(facts: Facts) -> bool:
    """Refused at the door and nowhere else, no collapse, memory that does not grow with the callers, nothing lost."""
    whole = facts["lost"] == facts["doubled"] == facts["early"] == 0
    answered = facts["broken"] == facts["refused_unsaid"] == facts["not_alive"] == 0
    bounded = all(
        0 < facts[f"{role}_more_mb"] <= facts[f"{role}_mb"] * MEMORY_MORE_MAX + _MEMORY_SPARE_MB  # 0: was not seen
        for role in ROLES
    )
    kept = min(facts["kept_rate"], facts["kept_starts"]) >= KEPT_RATE_MIN
    return bool(whole and answered and bounded and kept and facts["refused"] > 0)


def _memory_of(course: Course, many: Stretch, more: Stretch) -> Facts:
    """Megabytes of the processes of each role, at most, within each of the stretches."""
    found: Facts = {}
    for role in ROLES:
        found[f"{role}_mb"], found[f"{role}_more_mb"] = (_most_of(role, course, stretch) for stretch in (many, more))
    return found


def _most_of(role: str, course: Course, stretch: Stretch) -> float:
    ended = stretch.began + stretch.seconds + 1
    seen = [sample.memory.get(role, 0.0) for sample in course.samples if stretch.began <= sample.at <= ended]
    return round(max(seen, default=0.0), 1)


class _Callers:
    def __init__(self, asked: Overload) -> None:
        self._asked = asked
        self._body = batch_of_one_kind(job_body(payload={**NOOP, "filler": _FILLER}), asked.batch)
        self.acknowledged = Acknowledged(read_at_once=True)
        self.alive_ms: list[float] = []
        self.not_alive = 0

    async def call(self, wire: Wire, connections: int, progress: Progress) -> Stretch:
        """So many callers for a stretch, each with one request at a time."""
        progress.note(f"{connections} callers at once for {self._asked.seconds:g} s")
        stretch, began = Stretch(), time.monotonic()
        request, until = wire.request("POST", "/api/v1/jobs/batch", self._body), began + self._asked.seconds
        async with asyncio.TaskGroup() as group:
            for number in range(connections):
                group.create_task(self._one_caller(wire, request, until, stretch, number % IMPATIENT_EVERY == 0))
        stretch.seconds = time.monotonic() - began
        progress.note(f"{stretch.accepted:,} accepted, {stretch.refused:,} refused, {stretch.broken:,} otherwise")
        return stretch

    async def _one_caller(self, wire: Wire, request: bytes, until: float, stretch: Stretch, impatient: bool) -> None:
        while time.monotonic() < until:
            rest = await self._one_call(wire, request, stretch)
            await asyncio.sleep(0 if impatient else min(rest, max(until - time.monotonic(), 0.0)))

    async def _one_call(self, wire: Wire, request: bytes, stretch: Stretch) -> float:
        """Says how long to wait before the next."""
        try:
            async with wire.connection() as connection, asyncio.timeout(ANSWER_SECONDS_MAX):
                answered = await connection.ask(request)
                if answered.status != 202:
                    connection.close()
        except (WorldError, TimeoutError) as fault:
            stretch.broken += 1
            stretch.last_fault = f"{type(fault).__name__}: {fault}"
            return 0.1
        if answered.status == 202:
            stretch.accepted += 1
            stretch.jobs += self._asked.batch
            self.acknowledged.add_batch(answered.body, self._asked.batch)
            return 0.0
        if answered.status not in _REFUSALS:
            stretch.broken += 1
            stretch.last_fault = f"{answered.status}: {answered.body[:200].decode(errors='replace')}"
            return 0.1
        stretch.refused += 1
        stretch.unsaid += answered.retry_after is None
        return float(answered.retry_after or 1)

    async def keep_asking(self, wire: Wire) -> None:
        """Whether the server is alive, as whoever watches over it would."""
        while True:
            began = time.monotonic()
            try:
                status = (await wire.get("/livez")).status
            except (WorldError, TimeoutError):
                status = 0
            self.alive_ms.append((time.monotonic() - began) * 1000)
            self.not_alive += status != 200
            await asyncio.sleep(_ALIVE_SECONDS)

    async def call_singly(self, wire: Wire) -> list[float]:
        """Milliseconds that single jobs take to be acknowledged, one after the other."""
        took: list[float] = []
        request = wire.request("POST", "/api/v1/jobs", job_body())
        for _ in range(AFTERWARDS):
            began = time.monotonic()
            self.acknowledged.add_one(expect(await wire.ask(request), 202, "a job"))
            took.append((time.monotonic() - began) * 1000)
        return took
