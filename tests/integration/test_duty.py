"""How an executor parts with its work: on orders, without a lease, and when it is told to end, once or twice."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crew import Executor, the_run
from sample_jobs import NAMESPACE, claim, due_job, insert, rows

from hourhand.executor.attempts import Attempts, offers_of
from hourhand.executor.capacity import Capacity
from hourhand.executor.duty import FORCE_SECONDS, Duty
from hourhand.executor.lost_claims import LostClaims
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.node import Orders
from hourhand.model.outcome import Outcome, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.run import Claim
from hourhand.model.states import RunState
from hourhand.ports.job_kind import SlotClass, Task
from hourhand.ports.operator_stores import LimitChange
from hourhand.ports.stores import Claimed
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


# --- claims under way -------------------------------------------------------------------------------------


class Answers:
    """Of claims: they come when they are let through."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self.let_through = asyncio.Event()
        for name in ("claim_runs", "claim_carefully"):
            monkeypatch.setattr(store.live_runs, name, self._late(getattr(store.live_runs, name)))

    def _late(self, really: Callable[..., Awaitable[Claimed]]) -> Callable[..., Awaitable[Claimed]]:
        async def claim(*arguments: Any) -> Claimed:
            self.asked += 1
            claimed = await really(*arguments)
            await self.let_through.wait()
            return claimed

        return claim


@pytest.fixture
def answers(store: Store, monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(store, monkeypatch)


async def claiming(store: Store, crew: Crew, answers: Answers, **fields: Any) -> "asyncio.Task[float | None]":
    """A look of the receiver whose first claim is committed and not yet answered."""
    now = crew.executor.clock.now()
    await insert(store, due_job(now, **fields), due_job(now, policy=Policy(max_concurrency=1)))
    await crew.executor.join()
    looking = asyncio.create_task(crew.executor.receiver.run_once())
    async with asyncio.timeout(10):
        while not [row for row in await rows(store, "live_runs") if row["state"] == RunState.CLAIMED]:
            await asyncio.sleep(0)
    return looking


@pytest.mark.parametrize("answer", ["in time", "after all others had to end"])
async def test_a_drained_executor_gives_back_what_a_claim_under_way_brings(
    store: Store, answers: Answers, answer: str
) -> None:
    crew = Crew(store, stop_seconds=0.05)
    looking = await claiming(store, crew, answers)
    crew.duty.obey(Orders.DRAIN)
    await asyncio.sleep(0 if answer == "in time" else 0.1)
    answers.let_through.set()
    await looking
    assert crew.duty._draining is not None
    async with asyncio.timeout(10):
        await crew.duty._draining
        await crew.executor.attempts.all_ended()
    assert await crew.written() == [RunState.QUEUED] * 2


async def test_an_executor_that_parts_with_its_runs_waits_for_a_claim_under_way(store: Store, answers: Answers) -> None:
    crew = Crew(store)
    looking = await claiming(store, crew, answers)
    parting = asyncio.create_task(crew.duty.let_go())
    await asyncio.sleep(0)
    assert not parting.done()
    answers.let_through.set()
    async with asyncio.timeout(10):
        await asyncio.gather(looking, parting)
    assert (len(crew.executor.attempts), crew.executor.kind.active) == (0, 0)


async def test_after_orders_to_take_nothing_no_further_claim_is_begun(store: Store, answers: Answers) -> None:
    crew = Crew(store)
    looking = await claiming(store, crew, answers)
    crew.duty.obey(Orders.CORDON)
    answers.let_through.set()
    await looking
    assert (answers.asked, len(crew.executor.attempts)) == (1, 1)
    crew.executor.attempts.stop_all()


async def test_a_claim_under_way_when_its_executor_is_held_for_dead_starts_nothing(
    store: Store, answers: Answers
) -> None:
    crew = Crew(store)
    executor, membership = crew.executor, crew.executor.membership
    looking = await claiming(store, crew, answers)
    membership.on_buried = crew.duty.let_go
    old = membership.node_id
    await store.nodes.mark_lost(old)
    renewing = asyncio.create_task(membership.run_once())
    async with asyncio.timeout(10):
        while membership.node_id == old:
            await asyncio.sleep(0)
        answers.let_through.set()
        await asyncio.gather(looking, renewing)
    assert membership.node_id not in (old, 0)
    assert (len(executor.attempts), executor.kind.most_active) == (0, 0)
    assert executor.capacity.facts()["inline"]["used"] == 0


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
    [ended] = await store.runs.list_attempts(gated.run_id)
    assert (ended.state, ended.reason) == ("lost", "lease_unsure")
    run = await the_run(store, once.run_id)
    assert (run.state, run.reason) == (RunState.LOST, "lease_unsure"), "it is not tried again"
    executor.attempts.stop_all()


async def test_without_a_lease_no_careful_run_is_started(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    executor.attempts.lease_is_sure = lambda: False
    gated = await in_hand(store, executor, careful=True, at_most_once=True)
    assert (len(executor.attempts), executor.kind.active) == (0, 0)
    await executor.recorder.run_once()
    assert (await the_run(store, gated.run_id)).state is RunState.QUEUED, "it has not begun: it may be tried again"
    assert executor.capacity.facts()["inline"]["used"] == 0


async def test_a_run_that_got_its_limit_after_its_claim_ends_without_a_lease_too(store: Store) -> None:
    executor = await Executor(store, for_ever).join()
    limited = await in_hand(store, executor)
    lost_claims = LostClaims(
        store.live_runs,
        executor.attempts,
        executor.recorder,
        lambda: executor.membership.node_id,
        executor.clock,
        executor.receiver,
    )
    await lost_claims.run_once()
    assert executor.attempts.end_careful() == 0, "nothing limits it"
    await store.queues.limit_queue(NAMESPACE, "default", LimitChange(capacity=1))
    await lost_claims.run_once()
    assert executor.attempts.end_careful() == 1, "its place may soon be another's"
    async with asyncio.timeout(10):
        await executor.attempts.all_ended()
    await executor.recorder.run_once()
    assert (await the_run(store, limited.run_id)).state is RunState.QUEUED


@pytest.mark.parametrize("by", ["the fence", "its burial", "a second signal"])
async def test_a_program_that_ignores_its_end_is_killed_without_grace(store: Store, tmp_path: Path, by: str) -> None:
    executor = await Executor(store, for_ever).join()
    kind = CommandKind(
        ProgramRunner(
            ProgramSettings(grace_seconds=GRACE_SECONDS, run_as=None, work_root=str(tmp_path), shared=(str(tmp_path),))
        )
    )
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
