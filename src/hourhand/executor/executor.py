"""The rooms of an executor put together: what claims, runs and records, and the loops that keep them going."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from hourhand.executor.attempts import Attempts, offers_of
from hourhand.executor.callbacks import LOOK_SECONDS, Callbacks
from hourhand.executor.capacity import Capacity
from hourhand.executor.duty import Duty
from hourhand.executor.fan_out import FAN_OUT, FanOut
from hourhand.executor.journal import Journal
from hourhand.executor.keeper import Keeper
from hourhand.executor.last_resort import LastResort
from hourhand.executor.lost_claims import INTERVAL_SECONDS, LostClaims
from hourhand.executor.outputs import Outputs
from hourhand.executor.progress import ProgressKeeper
from hourhand.executor.receiver import Lanes, Receiver
from hourhand.executor.recorder import Recorder
from hourhand.executor.self_fence import SelfFence
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.transactions import Transactions
from hourhand.executor.weighing import things_of
from hourhand.model.outcome import Cancelled
from hourhand.ports.blobs import Blobs
from hourhand.ports.callback_stores import CallbackStore
from hourhand.ports.job_kind import JobKind, SlotClass
from hourhand.ports.log_stores import LogStore
from hourhand.ports.part_stores import PartStore
from hourhand.ports.progress_stores import ProgressStore
from hourhand.ports.stores import CompletionStore, LiveRunStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.loops import Loop
from hourhand.runtime.membership import Membership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

WRITE_SECONDS_MAX: Final = 5.0
"""How long the last outcomes may take to be written before they are left to the journal."""
_OFFERS_TOLD_MAX: Final = 1000
"""Of each room; they go with every heartbeat, and tell those who ask why a run waits."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Claims, records and transactions have connections of their own: none waits for another."""

    claims: LiveRunStore
    names: Lanes
    records: LiveRunStore
    logs: LogStore
    completions: CompletionStore
    progress: ProgressStore
    callbacks: CallbackStore
    parts: PartStore


class MakeLoop(Protocol):
    def __call__(self, name: str, run_once: Callable[[], Awaitable[float | None]], seconds: float) -> Loop: ...


class Executor:
    def __init__(
        self,
        stores: Stores,
        kinds: Mapping[str, JobKind],
        membership: Membership,
        clock: DatabaseClock,
        chance: Callable[[], float],
        journal: Journal,
        settings: ExecutorSettings,
        grace_seconds: float,
        blobs: Blobs,
        api_url: str,
    ) -> None:
        """`api_url`: where those whom HTTP jobs call can reach the API."""
        self._stores = stores
        self._kinds = kinds
        self._membership = membership
        self._journal = journal
        self._settings = settings
        offers = self._offers = offers_of(kinds)
        self._offered = _told(offers)
        slots = {SlotClass.INLINE: settings.slots_inline, SlotClass.PROCESS: settings.slots_process}
        self.capacity = Capacity(slots, things_of(settings))
        self.recorder = Recorder(stores.records, stores.logs, clock, chance, Keeper(journal))
        outputs = Outputs(blobs, clock, settings)
        self.fan_out = FanOut(stores.parts, clock)
        kinds = {**kinds, FAN_OUT: cast("JobKind", self.fan_out)}
        offers[FAN_OUT] = SlotClass.INLINE
        self.attempts = Attempts(
            kinds, offers, self.capacity, self.recorder, clock, settings.log_lines_max, settings.log_bytes_max, outputs
        )
        self.receiver = Receiver(
            stores.claims, stores.names, offers, self.capacity, self._node_id, clock, self.attempts.start, settings
        )
        self.duty = Duty(self.receiver, self.attempts, self._wake_receiver, settings.stop_seconds, grace_seconds)
        self._lost_claims = LostClaims(stores.claims, self.attempts, self.recorder, self._node_id, clock, self.receiver)
        self._fence = SelfFence(
            self.attempts,
            lambda: membership.confirmed_at,
            self._lease_changed,
            settings.self_fence_seconds,
            settings.self_fence_kill_seconds,
        )
        self._last_resort = LastResort(
            self.attempts.has_careful,
            lambda: membership.confirmed_at,
            settings.self_fence_seconds,
            settings.self_fence_kill_seconds,
            settings.lease_seconds,
        )
        self.attempts.lease_is_sure = self._fence.lease_is_sure
        self.attempts.transactions = Transactions(
            stores.completions, self.recorder, clock, settings.transaction_connections, outputs
        )
        self.attempts.progress = self.progress = ProgressKeeper(stores.progress, clock.now)
        self.attempts.callbacks = self.callbacks = Callbacks(stores.callbacks, api_url)

    def make_loops(self, make: MakeLoop) -> None:
        make("self fence", self._fence.run_once, self._settings.self_fence_seconds)
        make("lost claims", self._lost_claims.run_once, INTERVAL_SECONDS)
        recording = make("recorder", self.recorder.run_once, 1.0)
        self.receiving = make("receiver", self.receiver.run_once, self._settings.poll_seconds)
        self.learning = make("lanes", self._learn_lanes, 2.0)
        self.cancelling = make("cancelling", self._cancel_asked, self._settings.poll_seconds)
        self.recorder.wake = recording.wake
        self.hearing = make("callbacks", self.callbacks.run_once, LOOK_SECONDS)
        self.callbacks.wake = self.hearing.wake
        self.progress.wake = make("progress", self.progress.run_once, 5.0).wake
        self.capacity.wake = self.receiver.looking.on_found = self.receiving.wake

    async def open(self) -> None:
        """Makes the kinds ready, and delivers what executors that ended without a database have left."""
        self._last_resort.open()
        for kind in self._kinds.values():
            await kind.open()
        # Some know only now what they can run: which interpreters are here, whether there is an engine for containers.
        self._offers.update(offers_of(self._kinds))
        self._offered = _told(self._offers)
        if fault := await asyncio.to_thread(self._journal.fault):
            emit(Event.JOURNAL_UNUSABLE, error=fault)
        for orphan in await asyncio.to_thread(lambda: list(self._journal.orphans())):
            if not await self.recorder.deliver(orphan.entries):
                orphan.release()  # left for the next executor that starts here
                continue
            await asyncio.to_thread(orphan.remove)
            emit(Event.OUTCOMES_ADOPTED, outcomes=len(orphan.entries), unreadable=orphan.unreadable)

    async def finish(self, urged: asyncio.Event) -> None:
        """Takes nothing new, lets attempts end within their time, gives back the rest. `urged`: at once."""
        self.duty.take_nothing()
        await self.receiving.stop()
        await self.receiver.looking.stop()
        await self.duty.finish(urged)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.recorder.all_written(), WRITE_SECONDS_MAX)

    @property
    def is_stuck(self) -> bool:
        """Whether attempts are left that will not end."""
        return len(self.attempts) > 0

    async def close(self) -> None:
        """The loops have ended."""
        self._last_resort.close()
        await self.recorder.keep_rest()
        await asyncio.to_thread(self._journal.close)
        for kind in self._kinds.values():
            await kind.close()

    def facts(self) -> dict[str, Any]:
        """What others may know. Asked for from another thread."""
        return {
            "pid": os.getpid(),
            "queues": list(self._settings.queues),
            "labels": list(self._settings.labels),
            "slots": self.capacity.facts(),
            "resources": self.capacity.things(),
            "offers": self._offered,
            "late_outcomes": self.recorder.late_outcomes,
            "bench_witness": os.environ.get("HOURHAND_BENCH_WITNESS"),
        }

    def _node_id(self) -> int:
        return self._membership.node_id

    def _wake_receiver(self) -> None:
        self.receiving.wake()

    def _lease_changed(self, is_sure: bool) -> None:
        self.receiver.claiming_carefully = is_sure

    async def _learn_lanes(self) -> float | None:
        before = set(self.receiver.lanes)
        await self.receiver.learn_lanes()
        if set(self.receiver.lanes) - before:
            self.receiving.wake()
        return None

    async def _cancel_asked(self) -> float | None:
        if not len(self.attempts):
            return None
        for run_id, fence in await self._stores.claims.cancelling_runs(self._node_id()):
            self.attempts.stop(run_id, fence, Cancelled())
        return None


def _told(offers: Mapping[str, SlotClass]) -> dict[str, list[str]]:
    return {
        room.value: sorted(need for need in offers if offers[need] is room and need != FAN_OUT)[:_OFFERS_TOLD_MAX]
        for room in SlotClass
    }
