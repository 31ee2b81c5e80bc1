"""How an executor parts with its work: on orders, without a lease, and when it is told to end, once or twice."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from crew import Executor, the_run
from sample_jobs import claim, due_job, insert, rows

from hourhand.executor.attempts import Attempts, offers_of
from hourhand.executor.capacity import Capacity
from hourhand.executor.duty import FORCE_SECONDS, Duty
from hourhand.job_kinds.command import CommandKind, CommandSettings
from hourhand.model.node import Orders
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.run import Claim
from hourhand.model.states import RunState
from hourhand.ports.job_kind import SlotClass, Task
from hourhand.wiring import Store

GRACE_SECONDS = 60.0


async def for_ever(task: Task) -> Outcome:
    await asyncio.Event().wait()
    return Succeeded()


class Crew:
    """An executor that obeys."""

    def __init__(self, store: Store, stop_seconds: float = 60) -> None:
        self.store = store
        self.executor = Executor(store, for_ever)
        self.woken = 0
        self.duty = Duty(
            self.executor.receiver, self.executor.attempts, self._wake, stop_seconds=stop_seconds, grace_seconds=1
        )

    def _wake(self) -> None:
        self.woken += 1

    async def with_runs(self, count: int) -> "Crew":
        await self.executor.join()
        await insert(self.store, *(due_job(self.executor.clock.now()) for _ in range(count)))
        await self.executor.turn()
        async with asyncio.timeout(10):
            while self.executor.kind.active < count:
                await asyncio.sleep(0)
        return self

    async def written(self) -> list[int]:
        await self.executor.recorder.run_once()
        return [row["state"] for row in await rows(self.store, "live_runs")]


async def test_a_cordoned_executor_takes_nothing_new_and_goes_on_with_what_it_has(store: Store) -> None:
    crew = await Crew(store).with_runs(2)
    crew.duty.obey(Orders.CORDON)
    await insert(store, due_job(crew.executor.clock.now()))
    await crew.executor.turn()
    assert (crew.executor.kind.active, len(await rows(store, "live_runs"))) == (2, 3)
    crew.duty.obey(Orders.WORK)
    assert crew.woken == 1
    await crew.executor.turn()
    assert len(crew.executor.attempts) == 3
    crew.executor.attempts.stop_all()


async def test_a_drained_executor_gives_back_what_does_not_end_in_time_and_stays_idle(store: Store) -> None:
    crew = await Crew(store, stop_seconds=0.05).with_runs(3)
    crew.duty.obey(Orders.DRAIN)
    async with asyncio.timeout(10):
        await crew.executor.attempts.all_ended()
    assert await crew.written() == [RunState.QUEUED] * 3
    await crew.executor.turn()
    assert len(crew.executor.attempts) == 0
    crew.duty.obey(Orders.WORK)
    await crew.executor.turn()
    assert len(crew.executor.attempts) == 3
    crew.executor.attempts.stop_all()


async def test_a_drained_executor_gives_back_at_once_what_has_not_begun(store: Store) -> None:
    crew = await Crew(store).with_runs(1)
    await insert(store, due_job(crew.executor.clock.now() + timedelta(hours=1)))
    [ahead] = await claim(store, crew.executor.membership.node_id, crew.executor.clock.now() + timedelta(hours=2))
    crew.executor.capacity.take(SlotClass.INLINE, 1)
    crew.executor.attempts.start(ahead)
    crew.duty.obey(Orders.DRAIN)
    await asyncio.sleep(0)
    assert (await crew.written()).count(RunState.QUEUED) == 1
    assert (await the_run(store, ahead.run_id)).state is RunState.QUEUED
    assert crew.executor.kind.active == 1
    crew.executor.attempts.stop_all()


async def test_orders_to_work_again_save_what_was_to_be_drained(store: Store) -> None:
    crew = await Crew(store, stop_seconds=0.05).with_runs(1)
    crew.duty.obey(Orders.DRAIN)
    crew.duty.obey(Orders.WORK)
    await asyncio.sleep(0.1)
    assert crew.executor.kind.active == 1
    crew.executor.attempts.stop_all()


async def test_an_executor_that_was_held_for_dead_works_on_only_if_its_orders_say_so(store: Store) -> None:
    crew = await Crew(store).with_runs(2)
    await crew.duty.let_go()
    assert (len(crew.executor.attempts), crew.executor.receiver.claiming) == (0, True)
    crew.duty.obey(Orders.CORDON)
    await crew.duty.let_go()
    assert not crew.executor.receiver.claiming


async def test_a_stop_waits_for_attempts_and_orders_cannot_bring_work_back(store: Store) -> None:
    crew = await Crew(store, stop_seconds=0.05).with_runs(2)
    crew.duty.take_nothing()
    crew.duty.obey(Orders.WORK)
    assert not crew.executor.receiver.claiming
    async with asyncio.timeout(10):
        await crew.duty.finish(asyncio.Event())
    assert await crew.written() == [RunState.QUEUED] * 2


# --- without a lease --------------------------------------------------------------------------------------


async def in_hand(store: Store, executor: Executor, **changes: bool) -> Claim:
    """A run that the executor has started, made careful."""
    await insert(store, due_job(executor.clock.now()))
    [one] = await claim(store, executor.membership.node_id, executor.clock.now() + timedelta(seconds=1))
    one = msgspec.structs.replace(one, **changes)
    executor.capacity.take(SlotClass.INLINE, 1)
    active = executor.kind.active
    executor.attempts.start(one)
    if executor.attempts.lease_is_sure():
        async with asyncio.timeout(10):
            while executor.kind.active == active:
                await asyncio.sleep(0)
    return one


async def test_without_a_lease_careful_attempts_end_and_all_others_go_on(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    gated = await in_hand(store, executor, careful=True)
    once = await in_hand(store, executor, careful=True, at_most_once=True)
    plain = await in_hand(store, executor)
    assert executor.attempts.end_careful() == 2
    async with asyncio.timeout(10):
        while len(executor.attempts) > 1:
            await asyncio.sleep(0)
    await executor.recorder.run_once()
    assert executor.attempts.holds(plain.run_id, plain.fence)
    assert (await the_run(store, gated.run_id)).state is RunState.QUEUED, "it holds no place any more"
    run = await the_run(store, once.run_id)
    assert (run.state, run.reason) == (RunState.LOST, "executor_lost"), "it is not tried again"
    executor.attempts.stop_all()


async def test_without_a_lease_no_careful_run_is_started(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    executor.attempts.lease_is_sure = lambda: False
    gated = await in_hand(store, executor, careful=True, at_most_once=True)
    assert (len(executor.attempts), executor.kind.active) == (0, 0)
    await executor.recorder.run_once()
    assert (await the_run(store, gated.run_id)).state is RunState.QUEUED, "it has not begun: it may be tried again"
    assert executor.capacity.facts()["inline"]["used"] == 0


@pytest.mark.parametrize("by", ["the fence", "its burial", "a second signal"])
async def test_a_program_that_ignores_its_end_is_killed_without_grace(store: Store, tmp_path: Path, by: str) -> None:
    executor = await Executor(store, for_ever).join()
    kind = CommandKind(CommandSettings(grace_seconds=GRACE_SECONDS, run_as=None, work_root=str(tmp_path)))
    await kind.open()
    kinds = {"command": kind}
    capacity = Capacity({SlotClass.INLINE: 1, SlotClass.PROCESS: 1})
    attempts = Attempts(kinds, offers_of(kinds), capacity, executor.recorder, executor.clock, 100)
    mark = tmp_path / "begun"
    deaf = ["sh", "-c", f"trap '' TERM; (trap '' TERM; exec sleep 1000) & echo $! > {mark}; sleep 1000"]
    await insert(store, due_job(executor.clock.now(), payload={"argv": deaf}, kind="command", needs="command"))
    [one] = await claim(store, executor.membership.node_id, executor.clock.now() + timedelta(seconds=1))
    capacity.take(SlotClass.PROCESS, 1)
    attempts.start(msgspec.structs.replace(one, careful=True))
    async with asyncio.timeout(20):
        while not (mark.exists() and mark.read_text().strip()):
            await asyncio.sleep(0.01)
    began = time.monotonic()
    if by == "the fence":
        async with asyncio.timeout(20):
            while attempts.end_careful():
                await asyncio.sleep(FORCE_SECONDS)
    else:
        urged = asyncio.Event()
        urged.set()
        duty = Duty(executor.receiver, attempts, lambda: None, stop_seconds=60, grace_seconds=GRACE_SECONDS)
        async with asyncio.timeout(20):
            await (duty.let_go() if by == "its burial" else duty.finish(urged))
    assert time.monotonic() - began < 10, "far less than its grace"
    assert not is_alive(mark.read_text().strip()), "nor is anything left that it has started"
    await kind.close()


def is_alive(pid: str) -> bool:
    """One that is dead but that nobody has waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
