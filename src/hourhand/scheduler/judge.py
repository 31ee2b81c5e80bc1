"""Settles what waits: turns behind earlier runs of a job, waits that took too long, gates that have room again.

A run that falls due while an earlier one of its job is not finished waits outside the ready index, put there by the
planner or by an executor that met it. At its due instant the job's overlap policy decides. Each scheduler judges the
jobs of its own shards; every write asks for the state it expects, so that two who judge at once do no harm.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from uuid import UUID

from hourhand.model.overlap import Fate, Sibling, judge, policy_for_caught_up, policy_for_nearly_caught_up
from hourhand.model.states import EXECUTING_STATES, Reason
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.turn_stores import Turn, TurnStore, Unfinished
from hourhand.runtime.clock import DatabaseClock
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

BATCH_MAX = 1000
LOOK_SECONDS = 1.0
SOON_SECONDS = 0.1
"""How often turns are looked at while there are any: that much later than the run before it a run may start."""
STRAY_SECONDS = 30.0


class Judge:
    def __init__(self, turns: TurnStore, node_id: Callable[[], int], clock: DatabaseClock, bus: EventBus) -> None:
        self._turns = turns
        self._node_id = node_id
        self._clock = clock
        self._bus = bus
        self._sweep_at = 0.0
        self._strays_at = 0.0

    async def run_once(self) -> float | None:
        """Does what there is to do; says how long it may sleep."""
        now = self._clock.now()
        look = await self._turns.look(self._node_id(), now)
        while look.expired and await self._turns.expire_runs(now, BATCH_MAX) == BATCH_MAX:
            pass
        if look.gates and _monotonic() >= self._sweep_at:
            self._sweep_at = _monotonic() + LOOK_SECONDS
            if await self._turns.let_go_on(BATCH_MAX):
                self._bus.publish(Topic.READY)
        if _monotonic() >= self._strays_at:
            self._strays_at = _monotonic() + STRAY_SECONDS
            strays = await self._turns.free_stray_slots()
            if strays:
                emit(Event.STRAY_SLOTS_FREED, count=strays)
        if look.turns:
            return await self._judge_turns()
        return LOOK_SECONDS if look.gates or look.expired else None

    async def _judge_turns(self) -> float:
        pause, last, show_more, pages = LOOK_SECONDS, None, False, 0
        while True:
            # All of them: those that wait long must not keep the others from being looked at.
            turns = await self._turns.waiting_turns(self._node_id(), BATCH_MAX, last)
            now = self._clock.now()
            due = [turn for turn in turns if turn.ready_at <= now]
            if due:
                show_more |= await self._judge(due, now)
                # Every page is a look at all that wait: where thousands do, they must not take the processor from those
                # that run, for whose ends they wait.
                pages += 1
                pause, last = min(SOON_SECONDS * pages, LOOK_SECONDS), due[-1]
            if len(due) < BATCH_MAX:
                if not show_more:
                    break
                last, show_more = None, False
        waits = [self._clock.seconds_until(turn.ready_at) for turn in turns if turn.ready_at > now]
        return max(min([pause, *waits]), 0.001)

    async def _judge(self, due: Sequence[Turn], now: datetime) -> bool:
        """Says whether there may be more to judge at once: one that was caught up and is skipped is the first of a line
        of which only the first is shown, and what was in its way is in the way of the next, too."""
        unfinished: dict[UUID, list[Unfinished]] = defaultdict(list)
        for row in await self._turns.unfinished_of(due):
            unfinished[row.job_id].append(row)
        go: list[UUID] = []
        skips: list[tuple[UUID, Reason]] = []
        asked: list[UUID] = []
        for turn in due:
            # By their ids, which sort by due time: a retry stands for an old time and comes last all the same. What
            # runs already is in the way, whatever it stands for.
            earlier = [
                row.sibling
                for row in unfinished[turn.job_id]
                if row.sibling.run_id < turn.run_id or row.sibling.state in EXECUTING_STATES
            ]
            policy_for = policy_for_caught_up if turn.caught_up else policy_for_nearly_caught_up
            overlap = turn.overlap if turn.asked_for else policy_for(turn.overlap, turn.scheduled_for, earlier)
            # Requests and catching up have bounds of their own for how many there are.
            boundless = turn.asked_for or overlap is not turn.overlap
            waiting_max = len(earlier) + 1 if boundless else turn.policy.overlap_max
            judged = judge(overlap, waiting_max, turn.policy.on_next_due, earlier, caught_up=turn.caught_up)
            if judged.fate is Fate.SKIP:
                skips.append((turn.run_id, Reason.OVERLAP))
            elif judged.fate is Fate.GO:
                go.append(turn.run_id)
            skips += [(run_id, Reason.SUPERSEDED) for run_id in judged.supersede]
            for sibling in _named(earlier, judged.cancel):
                if sibling.state in EXECUTING_STATES:
                    asked.append(sibling.run_id)
                else:
                    skips.append((sibling.run_id, Reason.SUPERSEDED))
        await self._write(go, skips, asked, now)
        skipped = {run_id for run_id, _ in skips}
        return any(turn.caught_up and turn.run_id in skipped for turn in due)

    async def _write(
        self, go: Sequence[UUID], skips: Sequence[tuple[UUID, Reason]], asked: Sequence[UUID], now: datetime
    ) -> None:
        if asked and await self._turns.ask_to_end(asked):
            self._bus.publish(Topic.CANCEL)
        if skips:
            skipped = await self._turns.skip_runs(list(dict(skips).items()), now)
            if skipped:
                emit(Event.RUNS_SKIPPED, count=skipped)
        if go and await self._turns.let_turns_go(go):
            self._bus.publish(Topic.READY)


def _named(siblings: Sequence[Sibling], run_ids: Collection[UUID]) -> list[Sibling]:
    return [sibling for sibling in siblings if sibling.run_id in run_ids]


def _monotonic() -> float:
    return asyncio.get_running_loop().time()
