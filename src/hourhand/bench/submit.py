"""How many submissions a second are acknowledged, one job per request or many.

The jobs are due much later, so that nothing runs meanwhile: what is measured is the way from the request to the disk.
That what was acknowledged is there is checked in the database, or by asking for some of it.
"""

from dataclasses import dataclass
from typing import Final, Literal

from hourhand.bench.bodies import Acknowledged, at_batch, at_body_maker
from hourhand.bench.cluster import SCHEMA
from hourhand.bench.course import Course
from hourhand.bench.driving import Driven, drive
from hourhand.bench.figures import per_second
from hourhand.bench.report import Facts, Measured, Progress
from hourhand.bench.submitting import MICROS, now_micros
from hourhand.bench.target import Target
from hourhand.bench.telling import beside
from hourhand.bench.wire import Wire
from hourhand.bench.witness import compare

LATER_SECONDS: Final = 7200
CONNECTIONS: Final = {"single": 64, "batch": 3}


@dataclass(frozen=True, slots=True)
class Submit:
    mode: Literal["single", "batch"] = "single"
    seconds: float = 20.0
    connections: int | None = None
    batch: int = 1000

    @property
    def connections_used(self) -> int:
        return self.connections or CONNECTIONS[self.mode]


async def measure_submit(target: Target, asked: Submit, progress: Progress) -> Measured:
    progress.note(f"submitting ({asked.mode}) on {asked.connections_used} connections for {asked.seconds:g} s")
    async with target.wire(asked.connections_used) as wire, Course(target, Progress.silent()) as course:
        driven, acknowledged = await drive_submissions(wire, asked, progress)
    progress.end()
    facts: Facts = {
        "bench": "submit",
        "mode": asked.mode,
        "connections": asked.connections_used,
        "jobs": acknowledged.count,
        "seconds": driven.seconds,
        "jobs_per_second": per_second(acknowledged.count, driven.seconds),
        "submit_per_second": per_second(acknowledged.count, driven.seconds),
        "answered_ms": driven.latency(),
        "lost": await _missing(target, acknowledged),
        **beside(course, acknowledged.count),
    }
    return Measured(facts, {**driven.lines_over_time(), **course.lines_over_time()})


async def drive_submissions(
    wire: Wire, asked: Submit, progress: Progress | None = None, path: str = "/api/v1/jobs"
) -> tuple[Driven, Acknowledged]:
    """`path`: where jobs are submitted; whatever else has the same interface can be driven too."""
    acknowledged = Acknowledged()
    due, make = now_micros() + LATER_SECONDS * MICROS, at_body_maker()
    if asked.mode == "single":
        request = wire.request("POST", path, make(due))

        def keep(answer: bytes) -> None:
            acknowledged.add_one_unread(answer)
    else:
        request = wire.request("POST", f"{path}/batch", at_batch(make, [due] * asked.batch))

        def keep(answer: bytes) -> None:
            acknowledged.add_batch(answer, asked.batch)

    driven = await drive(wire, asked.connections_used, asked.seconds, lambda: request, keep, 202, progress)
    return driven, acknowledged


async def _missing(target: Target, acknowledged: Acknowledged) -> int:
    """How many of the acknowledged jobs are not there: of a temporary cluster all are looked for, of another some."""
    if target.own and target.cluster is not None:
        database = await target.cluster.connect()
        try:
            rows = await database.fetch(f"SELECT job_id FROM {SCHEMA}.jobs")
        finally:
            await database.close()
        return compare(acknowledged.lows(), [row["job_id"].int & (1 << 64) - 1 for row in rows])["lost"]
    async with target.wire() as wire:
        answers = [await wire.get(f"/api/v1/jobs/{job_id}") for job_id in acknowledged.latest()]
    return sum(answer.status != 200 for answer in answers)
