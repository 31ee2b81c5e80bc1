"""People who look while others work: lists and searches at a fixed rate, each answered within a time that is noted.

A question that is refused is counted, and ends nothing: who measures says what that means.
"""

import asyncio
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, Self

from hourhand.bench.figures import percentiles
from hourhand.bench.report import Facts
from hourhand.bench.target import Target
from hourhand.bench.wire import Wire
from hourhand.model.errors import WorldError

QUESTIONS: Final[Sequence[tuple[str, str]]] = (
    ("list", "/api/v1/jobs?limit=50"),
    ("search", "/api/v1/jobs?name=bench&status=scheduled&limit=50"),
    ("search_name", "/api/v1/jobs?name=absent&limit=50"),
    ("list_runs", "/api/v1/runs?limit=50"),
    ("search_runs", "/api/v1/runs?status=failed&limit=50"),
)
"""No job has the name `absent`, and hardly a run fails: those two look as far as a page may look."""

UNDER_WAY_MAX: Final = 200
"""Questions that wait for their answers; further ones count as refused, or those who ask would gather without end."""


class Readers:
    """Asks one question after the other, so many a second. Use it as a context manager round what is measured."""

    def __init__(self, target: Target, rate: float) -> None:
        self._target = target
        self._rate = rate
        self._asking: asyncio.Task[None] | None = None
        self._took: dict[str, list[float]] = {name: [] for name, _ in QUESTIONS}
        self._under_way = 0
        self._refused = 0
        self._said: str | None = None

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
        """How long answers took, by question, and how many were refused; nothing when nobody asked."""
        if not self._refused and not any(self._took.values()):
            return {}
        refused: Facts = {"refused": self._refused, "refused_said": self._said}
        return {**{f"{name}_ms": percentiles(took) for name, took in self._took.items() if took}, **refused}

    async def _ask(self) -> None:
        began = time.monotonic()
        async with self._target.wire() as wire, asyncio.TaskGroup() as group:
            for number in range(1 << 31):
                await asyncio.sleep(max(began + number / self._rate - time.monotonic(), 0.0))
                name, path = QUESTIONS[number % len(QUESTIONS)]
                group.create_task(self._one(wire, name, path))

    async def _one(self, wire: Wire, name: str, path: str) -> None:
        if self._under_way >= UNDER_WAY_MAX:
            return self._refuse(f"{UNDER_WAY_MAX} questions are not answered yet")
        began = time.monotonic()
        self._under_way += 1
        try:
            answered = await wire.get(path)
        except (WorldError, TimeoutError) as fault:
            return self._refuse(f"GET {path}: {str(fault) or type(fault).__name__}")
        finally:
            self._under_way -= 1
        if answered.status != HTTPStatus.OK:
            return self._refuse(f"GET {path} was answered {answered.status}")
        return self._took[name].append((time.monotonic() - began) * 1000)

    def _refuse(self, said: str) -> None:
        """The first that is said is kept: what follows is mostly the same."""
        self._refused += 1
        self._said = self._said or said
