"""Questions of one kind that arrive together are asked together.

While questions are under way the next ones gather; alone, a question waits for nobody. Whoever asks is answered by a
question that was sent after he asked, so he sees everything that was answered before. Planning and sending a statement
costs many times what one more row does. One that cannot be answered does not fail its neighbours: they are then asked
for one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, TypeVar, cast

from hourhand.model.errors import DatabaseUnavailable, Overloaded

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

BATCH_MAX: Final = 200
UNDER_WAY_MAX: Final = 2
"""Questions at a time: one connection that has died without a word must not keep everybody waiting."""
WAITING_MAX: Final = 20_000
"""Questions that may wait; more are refused at the door."""


class GroupRead(Generic[K, T]):
    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._read = read
        self._waiting: dict[K, asyncio.Future[T | None]] = {}
        self._reading: set[asyncio.Task[None]] = set()

    async def get(self, key: K) -> T | None:
        """What there is under the key, or None."""
        answer = self._waiting.get(key)
        if answer is None:
            if len(self._waiting) >= WAITING_MAX:
                raise Overloaded(f"{WAITING_MAX} questions are waiting for the database")
            answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        if len(self._reading) < UNDER_WAY_MAX:
            reading = asyncio.create_task(self._read_all(), name="group read")
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)  # for one that is cancelled before its first step
        # Shielded: several may wait for one answer, and one of them may give up.
        return await asyncio.shield(answer)

    async def _read_all(self) -> None:
        asked: dict[K, asyncio.Future[T | None]] = {}
        try:
            while self._waiting:
                asked = {key: self._waiting.pop(key) for key in list(self._waiting)[:BATCH_MAX]}
                await self._answer(asked)
        except asyncio.CancelledError:
            for answer in (*asked.values(), *self._waiting.values()):  # nobody else would ever tell them
                answer.cancel()
            self._waiting.clear()
            raise
        finally:
            # In the same step in which nothing was waiting any more: the callback comes a turn later, and who asks in
            # between would count on one who does not look again, and wait until somebody else asks.
            self._reading.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _answer(self, asked: Mapping[K, "asyncio.Future[T | None]"]) -> None:
        try:
            found = await self._read(list(asked))
        except Exception as fault:  # told to whoever asked; nothing is swallowed
            if len(asked) > 1 and not isinstance(fault, DatabaseUnavailable):  # one of them may be the cause
                for key, answer in asked.items():
                    await self._answer({key: answer})
                return
            for answer in asked.values():
                answer.set_exception(fault)
                answer.exception()  # perhaps nobody waits any more
            return
        for key, answer in asked.items():
            answer.set_result(found.get(key))
