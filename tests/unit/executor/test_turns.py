"""Attempts that are due take their first steps in turn, and none of them notices the others."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from hourhand.executor.attempts import TURN_MAX, Attempts
from hourhand.executor.capacity import Capacity
from hourhand.model.outcome import NOTHING_SAID, Cancelled, Failed, Outcome, Succeeded
from hourhand.model.run import Claim
from hourhand.ports.job_kind import SlotClass, Task
from hourhand.runtime.clock import DatabaseClock

NEED = "python:any"
Work = Callable[[Task], Awaitable[Outcome]]


class _Kind:
    """Runs attempts by what their payload says."""

    def __init__(self, works: dict[str, Work]) -> None:
        self._works = works

    async def run(self, task: Task) -> Outcome:
        return await self._works[task.payload["work"]](task)


class _Book:
    """A recorder that remembers what it was told."""

    def __init__(self) -> None:
        self.outcomes: dict[int, Outcome] = {}

    def started(self, *_: Any) -> None: ...

    def ended(self, claim: Claim, started_at: Any, ended_at: Any, outcome: Outcome, *_: Any) -> None:
        assert claim.fence not in self.outcomes, "each ends once"
        self.outcomes[claim.fence] = outcome


class Site:
    def __init__(self, **works: Work) -> None:
        works["at_once"] = _at_once
        self.book = _Book()
        self.capacity = Capacity({SlotClass.INLINE: 10_000})
        kinds: Any = {"python": _Kind(works)}
        recorder: Any = self.book
        self.attempts = Attempts(kinds, {NEED: SlotClass.INLINE}, self.capacity, recorder, DatabaseClock(), 10)
        self._fence = 0

    def claims(self, *works: str) -> list[Claim]:
        due = datetime.now(UTC) - timedelta(seconds=5)
        claims = []
        for work in works:
            self._fence += 1
            claims.append(
                Claim(
                    uuid4(),
                    uuid4(),
                    "default",
                    "any",
                    "python",
                    NEED,
                    {"work": work},
                    due,
                    due,
                    self._fence,
                    1,
                    0,
                    0,
                    0,
                    None,
                    None,
                )
            )
        self.capacity.take(SlotClass.INLINE, len(claims))
        return claims

    async def known_to_end_at_once(self) -> "Site":
        self.attempts.start(*self.claims("at_once"))
        await self.attempts.all_ended()
        self.book.outcomes.clear()
        return self

    async def run(self, *works: str) -> list[Outcome]:
        """What they come to, in their order."""
        claims = self.claims(*works)
        self.attempts.start(*claims)
        async with asyncio.timeout(10):
            await self.attempts.all_ended()
        return [self.book.outcomes[claim.fence] for claim in claims]


async def _at_once(_: Task) -> Outcome:
    return NOTHING_SAID


async def test_what_a_handler_leaves_in_its_context_no_other_finds() -> None:
    word = ContextVar("word", default="nothing")
    tasks = set[Any]()

    async def leave(task: Task) -> Outcome:
        tasks.add(asyncio.current_task())
        found = word.get()
        word.set("left behind")
        return Succeeded(found)

    async def leave_late(task: Task) -> Outcome:
        await asyncio.sleep(0)
        found = word.get()
        word.set("left behind")
        await asyncio.sleep(0)
        return Succeeded([found, word.get()])

    site = await Site(leave=leave, leave_late=leave_late).known_to_end_at_once()
    assert await site.run("leave", "leave", "leave") == [Succeeded("nothing")] * 3
    assert len(tasks) == 1, "else this shows nothing"
    found = await site.run("leave", "leave_late", "leave", "leave_late", "leave")
    assert found[0::2] == [Succeeded("nothing")] * 3
    assert found[1::2] == [Succeeded(["nothing", "left behind"])] * 2


async def test_an_attempt_that_cancels_its_own_task_cancels_no_other() -> None:
    async def cancel_itself(_: Task) -> Outcome:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return Succeeded("done")

    async def wait(_: Task) -> Outcome:
        await asyncio.sleep(0)
        return Succeeded("waited")

    site = await Site(cancel_itself=cancel_itself, wait=wait).known_to_end_at_once()
    found = await site.run("cancel_itself", "wait", "at_once", "cancel_itself", "wait")
    assert found[1:3] == [Succeeded("waited"), NOTHING_SAID]
    assert found[4] == Succeeded("waited")


async def test_a_timeout_of_one_attempt_ends_no_other() -> None:
    async def give_up(_: Task) -> Outcome:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return Succeeded("gave up")
        raise AssertionError

    async def wait(_: Task) -> Outcome:
        await asyncio.sleep(0.05)
        return Succeeded("waited")

    site = await Site(give_up=give_up, wait=wait).known_to_end_at_once()
    found = await site.run("at_once", "give_up", "wait", "at_once", "give_up", "wait")
    assert found == [NOTHING_SAID, Succeeded("gave up"), Succeeded("waited")] * 2


async def test_those_that_wait_do_not_wait_for_each_other() -> None:
    began: list[int] = []
    all_began = asyncio.Event()

    async def meet(task: Task) -> Outcome:
        began.append(task.fence)
        if len(began) == 100:
            all_began.set()
        await all_began.wait()
        return NOTHING_SAID

    site = await Site(meet=meet).known_to_end_at_once()
    claims = site.claims(*["meet"] * 100)
    site.attempts.start(*claims)
    for _ in range(2):  # turns of the loop: the first one finds out that they wait, the others begin in the next
        await asyncio.sleep(0)
    assert len(began) == 100
    await site.attempts.all_ended()


async def test_an_attempt_that_is_stopped_before_its_turn_takes_no_step() -> None:
    steps: list[int] = []

    async def step(task: Task) -> Outcome:
        steps.append(task.fence)
        return NOTHING_SAID

    for known in (False, True):
        site = Site(step=step)
        if known:
            await site.known_to_end_at_once()
        claims = site.claims("step", "step", "step")
        site.attempts.start(*claims)
        assert site.attempts.stop(claims[1].run_id, claims[1].fence, Cancelled())
        assert not site.attempts.stop(claims[0].job_id, claims[0].fence, Cancelled()), "of another run"
        await site.attempts.all_ended()
        assert steps == [claims[0].fence, claims[2].fence]
        assert site.book.outcomes[claims[1].fence] == Cancelled()
        steps.clear()


async def test_what_breaks_in_one_attempt_leaves_the_others_their_turn() -> None:
    async def fail(_: Task) -> Outcome:
        raise ValueError("no")

    async def wait_and_fail(_: Task) -> Outcome:
        await asyncio.sleep(0)
        raise ValueError("late")

    site = await Site(fail=fail, wait_and_fail=wait_and_fail).known_to_end_at_once()
    found = await site.run("fail", "at_once", "wait_and_fail", "at_once")
    assert [isinstance(outcome, Failed) for outcome in found] == [True, False, True, False]
    assert site.capacity.free(SlotClass.INLINE) == 10_000


async def test_a_crowd_lets_others_have_their_turn_in_between() -> None:
    order: list[str] = []

    async def step(_: Task) -> Outcome:
        order.append("step")
        return NOTHING_SAID

    site = await Site(step=step).known_to_end_at_once()
    site.attempts.start(*site.claims(*["step"] * (2 * TURN_MAX)))
    asyncio.get_running_loop().call_soon(order.append, "other")
    await site.attempts.all_ended()
    assert 0 < order.index("other") <= TURN_MAX
