"""The same request again and again on a number of connections, one at a time on each.

Tells answers a second and how long each took. Knows nothing of what it asks, so that the product and what it is
compared with are asked by the same hand.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hourhand.bench.figures import by_interval, per_second, percentiles
from hourhand.bench.report import Line, Progress
from hourhand.bench.wire import Wire, expect

PROGRESS_SECONDS = 1.0
_MICROS = 1_000_000


@dataclass(slots=True)
class Driven:
    seconds: float = 0.0
    answers: int = 0
    answered_ms: list[float] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    """When each answer was there, in seconds since the first request."""

    @property
    def per_second(self) -> float:
        return per_second(self.answers, self.seconds)

    def latency(self) -> dict[str, float]:
        return percentiles(self.answered_ms)

    def lines_over_time(self) -> dict[str, Line]:
        """How long answers took and how many there were, second by second; without the last one, which is not whole."""
        moments = (int(at * _MICROS) for at in self.answered_at)
        took = by_interval(moments, self.answered_ms, 0, _MICROS)
        whole = [second for second in sorted(took) if second < int(self.seconds)]
        each = [percentiles(took[second]) for second in whole]
        seconds = [second + 0.5 for second in whole]
        found = {f"answered, ms/{name}": Line(seconds, [one[name] for one in each]) for name in ("p50", "p99")}
        answers = Line(seconds, [float(len(took[second])) for second in whole])
        return {**found, "throughput, per second/answers": answers} if seconds else {}


async def drive(
    wire: Wire,
    connections: int,
    seconds: float,
    request: Callable[[], bytes],
    keep: Callable[[bytes], None],
    status: int,
    progress: Progress | None = None,
) -> Driven:
    """`request` makes the next one, `keep` is given each answer's body; both must be quick."""
    driven, until = Driven(), time.monotonic() + seconds
    began = time.monotonic()

    async def work() -> None:
        async with wire.connection() as connection:
            while (sent := time.monotonic()) < until:
                keep(expect(await connection.ask(request()), status, "a request"))
                driven.answers += 1
                now = time.monotonic()
                driven.answered_ms.append((now - sent) * 1000)
                driven.answered_at.append(now - began)

    async def tell() -> None:
        while (now := time.monotonic()) < until:
            await asyncio.sleep(min(PROGRESS_SECONDS, until - now))
            if progress is not None:
                progress.update(f"{time.monotonic() - began:5.0f} s   {driven.answers:,} answers")

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(work())
        group.create_task(tell())
    driven.seconds = time.monotonic() - began
    return driven
