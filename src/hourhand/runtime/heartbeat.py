"""Renews a node's lease from a thread of its own, so that nothing that blocks the node's loop can end it.

The thread has its own event loop and its own connection. It ends last: as long as the node has anything in hand, its
lease is renewed. A thread and not a process, on purpose: a node whose process is stopped must be missed by the others.

An executor may be kept by a job from going round its loop, and is alive all the same. A node that runs nobody's code
has no such excuse: when its loop hangs it does nothing that others rely on, so its lease is left to end.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from hourhand.model.node import Orders
from hourhand.runtime.loops import BACKOFF_SECONDS_MAX, Loop
from hourhand.runtime.membership import Membership
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

END_SECONDS_MAX: Final = 20.0
"""How long the last renewal and the leave may take before the node ends without them."""


class Door(Protocol):
    """What the thread must open before it can renew, and closes at its end. Both are called in the thread."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...


class Heartbeat:
    def __init__(
        self,
        membership: Membership,
        door: Door,
        interval_seconds: float,
        passing_faults: tuple[type[BaseException], ...],
        hang_seconds_max: float | None = None,
    ) -> None:
        """`hang_seconds_max`: how long the node's loop may hang before its lease is renewed no more; None: for ever."""
        self._membership = membership
        self._door = door
        self._passing_faults = passing_faults
        patience = min(interval_seconds, BACKOFF_SECONDS_MAX)
        self.loop = Loop("membership", self._renew, interval_seconds, passing_faults, patience)
        self._hang_seconds_max = hang_seconds_max
        self._went_round = time.monotonic()
        self._has_told = False
        self._thread: threading.Thread | None = None
        self._thread_loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        # What follows is called on the node's own loop.
        self.on_buried: Callable[[], Awaitable[None]] = membership.on_buried
        """The node is registered anew when it has returned."""
        self.on_orders: Callable[[Orders], None] = membership.on_orders
        self.on_back: Callable[[], None] = self.loop.on_back
        self.on_death: Callable[[str, BaseException | None], None] = self.loop.on_death
        membership.on_buried = self._tell_buried
        membership.on_orders = self._tell_orders
        self.loop.on_back = self._tell_back
        self.loop.on_death = self._tell_death

    async def start(self) -> None:
        """Returns when the node is registered. What keeps it from that is raised."""
        self._node_loop = asyncio.get_running_loop()
        self._went_round = time.monotonic()
        joined: asyncio.Future[None] = self._node_loop.create_future()
        context = contextvars.copy_context()  # the role stands in every line of the log
        self._thread = threading.Thread(target=context.run, args=(self._run, joined), name="heartbeat", daemon=True)
        self._thread.start()
        await joined

    def urge(self) -> None:
        """Asks for a renewal now, which brings the newest orders. From any thread."""
        if self._thread_loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._thread_loop.call_soon_threadsafe(self.loop.urge)

    async def stop(self) -> None:
        """Renews no more, and leaves. The very last thing a node does."""
        if self._thread is None or self._thread_loop is None:
            return
        with suppress(RuntimeError):  # it has ended already
            self._thread_loop.call_soon_threadsafe(self._stopping.set)
        await asyncio.to_thread(self._thread.join, END_SECONDS_MAX)

    # --- in the thread ------------------------------------------------------------------------------------

    def _run(self, joined: "asyncio.Future[None]") -> None:
        asyncio.run(self._beat(joined))

    async def _beat(self, joined: "asyncio.Future[None]") -> None:
        self._thread_loop = asyncio.get_running_loop()
        try:
            try:
                await self._door.open()
                await self._membership.join()
            except Exception as fault:
                self._node_loop.call_soon_threadsafe(_settle, joined, fault)
                return
            self.loop.start()
            self._node_loop.call_soon_threadsafe(_settle, joined, None)
            await self._stopping.wait()
            await self.loop.stop()
            with suppress(*self._passing_faults):
                await self._membership.leave()
        finally:
            await self._door.close()

    async def _renew(self) -> float | None:
        self._node_loop.call_soon_threadsafe(self._go_round)
        hangs = time.monotonic() - self._went_round
        if self._hang_seconds_max is None or hangs <= self._hang_seconds_max:
            self._has_told = False
            return await self._membership.run_once()
        if not self._has_told:
            self._has_told = True
            emit(Event.NODE_HANGS, node_id=self._membership.node_id, seconds=round(hangs, 1))
        return None

    def _go_round(self) -> None:
        self._went_round = time.monotonic()

    async def _tell_buried(self) -> None:
        told = asyncio.run_coroutine_threadsafe(self._buried(), self._node_loop)
        await asyncio.wrap_future(told)

    async def _buried(self) -> None:
        await self.on_buried()

    def _tell_orders(self, orders: Orders) -> None:
        self._node_loop.call_soon_threadsafe(self.on_orders, orders)

    def _tell_back(self) -> None:
        self._node_loop.call_soon_threadsafe(self.on_back)

    def _tell_death(self, name: str, cause: BaseException | None) -> None:
        self._node_loop.call_soon_threadsafe(self.on_death, name, cause)


def _settle(joined: "asyncio.Future[None]", fault: Exception | None) -> None:
    if joined.done():  # whoever waited for it was cancelled
        return
    if fault is None:
        joined.set_result(None)
    else:
        joined.set_exception(fault)
