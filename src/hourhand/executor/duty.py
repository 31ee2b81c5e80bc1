"""Whether an executor takes work, and how it parts with what it has: on orders, when held for dead, at its end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hourhand.executor.attempts import Attempts
from hourhand.executor.receiver import Receiver
from hourhand.model.node import Orders
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

FORCE_SECONDS: Final = 0.05
"""How soon attempts that end by force are told again: the second time cuts their grace short."""
_PATIENCE_SECONDS: Final = 5.0
"""Beyond the grace. A handler that has not ended then is left behind; it dies with this process."""


class Duty:
    def __init__(
        self,
        receiver: Receiver,
        attempts: Attempts,
        wake_receiver: Callable[[], None],
        stop_seconds: float,
        grace_seconds: float,
    ) -> None:
        self._receiver = receiver
        self._attempts = attempts
        self._wake_receiver = wake_receiver
        self._stop_seconds = stop_seconds
        self._end_seconds_max = grace_seconds + _PATIENCE_SECONDS
        self._orders = Orders.WORK
        self._is_leaving = False
        self._is_letting_go = False
        self._draining: asyncio.Task[None] | None = None

    def obey(self, orders: Orders) -> None:
        emit(Event.ORDERS_CHANGED, orders=orders.value)
        self._orders = orders
        self._decide()
        if self._draining is not None:
            self._draining.cancel()
            self._draining = None
        if orders is Orders.DRAIN and not self._is_leaving:
            self._draining = asyncio.create_task(self._drain(), name="drain")

    async def let_go(self) -> None:
        """Others have got the runs of the old number; going on with them here would only double their effects."""
        self._is_letting_go = True
        self._decide()
        self._attempts.stop_all(lease_unsure=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._end_seconds_max):
                await self._receiver.claims_answered()
                while self._attempts.end_all():  # noqa: ASYNC110 - no grace: another may be at the same work already
                    await asyncio.sleep(FORCE_SECONDS)
                await self._attempts.all_ended()
        self._is_letting_go = False
        self._decide()

    def take_nothing(self) -> None:
        """The executor is leaving."""
        self._is_leaving = True
        self._decide()

    async def finish(self, urged: asyncio.Event) -> None:
        """Lets attempts end within their time, and gives back the rest. `urged` leaves them no time at all."""
        if self._draining is not None:
            self._draining.cancel()
        self._attempts.give_back_unstarted()
        await self._ended_or(urged, self._stop_seconds)
        self._attempts.stop_all()
        await self._ended_or(urged, self._end_seconds_max)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while self._attempts.end_all():  # noqa: ASYNC110 - each turn says it again
                    await asyncio.sleep(FORCE_SECONDS)
        if len(self._attempts):
            emit(Event.ATTEMPTS_STUCK, attempts=len(self._attempts))

    def _decide(self) -> None:
        self._receiver.claiming = self._orders is Orders.WORK and not self._is_leaving and not self._is_letting_go
        if self._receiver.claiming:
            self._wake_receiver()

    async def _drain(self) -> None:
        self._attempts.give_back_unstarted()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._all_ended(), self._stop_seconds)
        self._attempts.stop_all()
        # A claim that was slower than all that: what it brings has no time left.
        await self._receiver.claims_answered()
        self._attempts.stop_all()

    async def _all_ended(self) -> None:
        """Also what a claim brings that was under way when the orders came."""
        await self._receiver.claims_answered()
        self._attempts.give_back_unstarted()
        await self._attempts.all_ended()

    async def _ended_or(self, urged: asyncio.Event, seconds: float) -> None:
        waits = [asyncio.ensure_future(self._attempts.all_ended()), asyncio.ensure_future(urged.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
