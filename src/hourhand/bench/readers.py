"""People who look while others work: lists and searches at a fixed rate, each answered within a time that is noted."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final, Self

from hourhand.bench.figures import percentiles
from hourhand.bench.report import Facts
from hourhand.bench.target import Target
from hourhand.bench.wire import Wire, expect

QUESTIONS: Final[Sequence[tuple[str, str]]] = (
    ("list", "/api/v1/jobs?limit=50"),
    ("search", "/api/v1/jobs?name=bench&status=scheduled&limit=50"),
    ("list_runs", "/api/v1/runs?limit=50"),
    ("search_runs", "/api/v1/runs?status=failed&limit=50"),
)


class Readers:
    """Asks one question after the other, so many a second. Use it as a context manager round what is measured."""

    def __init__(self, target: Target, rate: float) -> None:
        self._target = target
        self._rate = rate
        self._asking: asyncio.Task[None] | None = None
        self._took: dict[str, list[float]] = {name: [] for name, _ in QUESTIONS}

    async def __aenter__(self) -> Self:
        if self._rate > 0:
            self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
            if not self._asking.cancelled() and (fault := self._asking.exception()) is not None:
                raise fault

    def facts(self) -> Facts:
        """How long answers took, by question; nothing when nobody asked."""
        return {f"{name}_ms": percentiles(took) for name, took in self._took.items() if took}

    async def _ask(self) -> None:
        began = time.monotonic()
        async with self._target.wire() as wire, asyncio.TaskGroup() as group:
            for number in range(1 << 31):
                await asyncio.sleep(max(began + number / self._rate - time.monotonic(), 0.0))
                name, path = QUESTIONS[number % len(QUESTIONS)]
                group.create_task(self._one(wire, name, path))

    async def _one(self, wire: Wire, name: str, path: str) -> None:
        began = time.monotonic()
        expect(await wire.get(path), 200, f"GET {path}")
        self._took[name].append((time.monotonic() - began) * 1000)
