"""Leads a run that goes to all executors, or to several: makes its parts, watches over them, says what they came to.

Whoever claims such a run leads it. Should its executor die, the run goes back to the queue like any other, the next
leader finds the parts there and goes on: parts are made in one statement, under ids that follow from that of the run.
Nothing is kept here. Parts are claimed, tried again, recorded and returned as all runs are; the leader only decides for
which executor they are, and waits.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec

from hourhand.model.demands import Demands
from hourhand.model.errors import Fault, RequestError, WorldError
from hourhand.model.outcome import Failed, Outcome
from hourhand.model.parts import PARTS_MAX, decide, outcome_of
from hourhand.model.run import Claim
from hourhand.model.states import Reason, RunState
from hourhand.ports.job_kind import SlotClass, Task
from hourhand.ports.part_stores import FanOutFacts, PartStore
from hourhand.runtime.clock import DatabaseClock

FAN_OUT: Final = "fan-out"
"""The kind, and the need, of a run while it is led. Nobody can submit a job of it."""
LEADING: Final = Demands(fan=True)
"""What leading takes: a place among what runs inside the executor."""
LOOK_SECONDS: Final = 0.5
LOOK_SECONDS_MAX: Final = 5.0
"""Looks at parts that go on for long become rarer: a look that finds an end is asked for by whoever wrote that."""
LOOK_SECONDS_MIN: Final = 0.05
"""Between two looks, however often they are asked for."""
AWAY: Final = (WorldError, OSError, TimeoutError)


def as_leading(claim: Claim) -> Claim:
    """The same run, to be led instead of run. Its timeout is that of each part."""
    return msgspec.structs.replace(claim, kind=FAN_OUT, needs=FAN_OUT, timeout_seconds=None)


class FanOut:
    """A kind like others, for runs of those kinds that are to be led."""

    name = FAN_OUT

    def __init__(self, parts: PartStore, clock: DatabaseClock) -> None:
        self._parts = parts
        self._clock = clock
        self.wake_all: Callable[[], None] = lambda: None
        """Called when parts are there to be claimed by whom they are for."""
        self._news = asyncio.Event()

    def slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.INLINE

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return []

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return FAN_OUT

    def offers(self) -> Sequence[str]:
        return ()

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def hear(self) -> None:
        """Somewhere a part has ended: whoever leads looks now."""
        self._news.set()
        self._news = asyncio.Event()  # for the next one; those who wait have the old one

    async def run(self, task: Task) -> Outcome:
        try:
            return await self._lead(task)
        except asyncio.CancelledError:
            await self._let_go(task)
            raise

    async def _lead(self, task: Task) -> Outcome:
        facts, wait = None, LOOK_SECONDS
        while True:
            news = self._news  # before the look, which may not see any more what is told meanwhile
            try:
                # The first look, and the first after the database was away.
                facts = facts or await self._parts.fan_out_facts(task.run_id, task.fence)
                outcome = None if facts is None else await self._look(task, facts)
            except RequestError as refused:  # too many different demands
                return Failed(Reason.PARTS, str(refused), retryable=False)
            except AWAY:
                outcome = None  # the parts go on without their leader; so does the leader when the database is back
            if outcome is not None:
                return outcome
            await asyncio.sleep(min(wait, LOOK_SECONDS_MIN))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):  # `wait_for` may swallow that its task is cancelled
                    await news.wait()
            wait = min(wait * 1.2, LOOK_SECONDS_MAX)

    async def _look(self, task: Task, facts: FanOutFacts) -> Outcome | None:
        parts = await self._parts.parts_of(task.run_id)
        if not parts:
            await self._make(task, facts)
            return None
        outcome = outcome_of(parts)
        if outcome is not None:
            await self._parts.close_parts(task.run_id)
            return outcome
        if all(part.state.is_final or (part.node_id is not None and not part.gone) for part in parts):
            return None
        able = [] if facts.on is None else await self._able(facts)
        orders = decide(parts, facts.on is None, able)
        if orders.give and await self._parts.give_parts(task.run_id, task.fence, orders.give):
            self.wake_all()
        if orders.lose:
            await self._parts.lose_parts(task.run_id, task.fence, orders.lose, self._clock.now())
        return None

    async def _make(self, task: Task, facts: FanOutFacts) -> None:
        able = await self._able(facts)
        wanted = len(able) if facts.on is None else facts.on
        if not able:  # this executor itself may just have been cordoned: whoever is there next is meant
            return
        nodes: list[int | None] = [*able[:wanted], *[None] * (wanted - len(able))]
        now = self._clock.now()
        until = None if task.timeout_seconds is None else now + timedelta(seconds=task.timeout_seconds)
        if await self._parts.fan_out(task.run_id, task.fence, facts, nodes[:PARTS_MAX], now, until):
            self.wake_all()

    async def _able(self, facts: FanOutFacts) -> list[int]:
        """The least busy first; of all, in the order of their numbers, so that an index means the same to each."""
        able = await self._parts.able(facts)
        order = sorted(able, key=lambda each: (0.0 if facts.on is None else each.used, each.node_id))
        return [each.node_id for each in order]

    async def _let_go(self, task: Task) -> None:
        """Of a run that is cancelled nothing may be left. Of one that is handed on, or has run out of time, the parts
        go on: the next leader finds them, and they have the same deadline."""
        try:
            if await self._parts.run_state(task.run_id, task.fence) is not RunState.CANCELLING:
                return
            while await self._parts.cancel_parts(task.run_id, self._clock.now()):  # each says it again
                with suppress(TimeoutError):
                    # Not `asyncio.timeout`: in a task that has been cancelled, as here, up to Python 3.11.2 it raises
                    # CancelledError when its time is over. That this may swallow a second cancel does no harm.
                    await asyncio.wait_for(self._news.wait(), LOOK_SECONDS)
        except AWAY:
            return  # they are found and cancelled by the schedulers
