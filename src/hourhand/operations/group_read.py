"""Questions of one kind that arrive together are asked together.

While one question is under way the next ones gather; alone, a question waits for nobody. Whoever asks is answered by a
question that was sent after he asked, so he sees everything that was answered before. Planning and sending a statement
costs many times what one more row does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from hourhand.model.errors import Overloaded

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

BATCH_MAX: Final = 200
WAITING_MAX: Final = 20_000
"""Questions that may wait; more are refused at the door."""


class GroupRead(Generic[K, T]):
    def __init__(self, read: Callable[[Sequence[K]], Awaitable[Mapping[K, T]]]) -> None:
        self._read = read
        self._waiting: dict[K, asyncio.Future[T | None]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def get(self, key: K) -> T | None:
        """What there is under the key, or None."""
        answer = self._waiting.get(key)
        if answer is None:
            if len(self._waiting) >= WAITING_MAX:
                raise Overloaded(f"{WAITING_MAX} questions are waiting for the database")
            answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(), name="group read")
        # Shielded: several may wait for one answer, and one of them may give up.
        return await asyncio.shield(answer)

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                keys = list(self._waiting)[:BATCH_MAX]
                await self._answer({key: self._waiting.pop(key) for key in keys})
        finally:
            self._reading = None

    async def _answer(self, asked: Mapping[K, "asyncio.Future[T | None]"]) -> None:
        try:
            found = await self._read(list(asked))
        except asyncio.CancelledError:
            for answer in asked.values():
                answer.cancel()
            raise
        except Exception as fault:  # told to everybody who asked; nothing is swallowed
            for answer in asked.values():
                answer.set_exception(fault)
                answer.exception()  # perhaps nobody waits any more
            return
        for key, answer in asked.items():
            answer.set_result(found.get(key))
