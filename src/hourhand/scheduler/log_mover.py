"""Moves logs out of the database: large ones as soon as their run is final, all others when they are old. Done by the
leader.

A pack is announced, then its blob is written, and only then does it take the place of its rows, all in one statement
under the leader's lease. Whoever is killed in between leaves an announcement: the next leader clears the blob away and
begins again. Packs whose retention is over go the same way, blob first.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, Protocol
from uuid import UUID

from hourhand.model.ids import lowest_id_at
from hourhand.model.log import LOST_TEXT
from hourhand.model.log_pack import PackedRow, Packer
from hourhand.ports.blobs import Blobs
from hourhand.ports.log_pack_stores import LogPackStore
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler.settings import KeptLogSettings
from hourhand.telemetry import emit
from hourhand.telemetry.events import Event

FOLLOW_SECONDS: Final = 5.0
ROWS_AT_ONCE: Final = 128
PACK_BYTES: Final = 8 * 1024 * 1024
"""About how much text a pack of many runs holds; it is gathered in memory."""
PACKS_MAX: Final = 20
"""Made in one turn; then others have theirs."""
DROP_MAX: Final = 200
_NOBODY: Final = UUID(int=0)
_Key = tuple[UUID, int, int]


class Leader(Protocol):
    @property
    def epoch(self) -> int | None: ...


class LogMover:
    def __init__(
        self,
        packs: LogPackStore,
        blobs: Blobs,
        leader: Leader,
        node_id: Callable[[], int],
        clock: DatabaseClock,
        new_id: Callable[[], UUID],
        settings: KeptLogSettings,
        may_move: Callable[[], Awaitable[bool]],
    ) -> None:
        """`may_move` says whether every node can read what this one puts into the storage."""
        self._packs = packs
        self._blobs = blobs
        self._leader = leader
        self._node_id = node_id
        self._clock = clock
        self._new_id = new_id
        self._settings = settings
        self._may_move = may_move

    async def run_once(self) -> float | None:
        """Drops and moves what is due; says how long it may sleep."""
        epoch = self._leader.epoch
        if epoch is None:
            return FOLLOW_SECONDS
        await self._drop(epoch)
        if not await self._may_move():
            return None
        moved = 0
        for run_id in await self._packs.large_logs(PACKS_MAX):
            moved += await self._move_one(epoch, run_id)
        while moved < PACKS_MAX and await self._move_old(epoch):
            moved += 1
        if moved:
            emit(Event.LOGS_MOVED, packs=moved)
        return 0.1 if moved >= PACKS_MAX else None

    async def _drop(self, epoch: int) -> None:
        """Blobs first: a row that is left names what is gone, and is dropped the next time."""
        before = self._clock.now() - timedelta(days=self._settings.keep_days)
        while found := await self._packs.packs_to_drop(before, _NOBODY, DROP_MAX):
            await self._blobs.delete([key for _, key in found])
            done = await self._packs.drop_packs(self._node_id(), epoch, [pack_id for pack_id, _ in found])
            if done < len(found) or len(found) < DROP_MAX:
                return

    async def _move_old(self, epoch: int) -> bool:
        """Moves some of the oldest logs; whether there were any."""
        before_id = lowest_id_at(self._clock.now() - timedelta(days=self._settings.database_days))
        rows, is_all = await self._gather(before_id)
        if not rows:
            return False
        packed_until = await self._packs.last_packed()
        first = rows[0].run_id
        if not is_all and rows[-1].run_id != first:  # the last one may go on behind what was gathered
            rows = [row for row in rows if row.run_id != rows[-1].run_id]
        if (packed_until is not None and first <= packed_until) or rows[-1].run_id == first:
            # One that was not final when its neighbours moved gets a pack of its own: those of many never overlap.
            return await self._move_one(epoch, first)
        return await self._write(epoch, first, rows[-1].run_id, _these(rows))

    async def _gather(self, before_id: UUID) -> tuple[list[PackedRow], bool]:
        """The oldest rows, about as many as a pack holds; and whether these are all there are."""
        rows: list[PackedRow] = []
        after: _Key = (_NOBODY, 0, 0)
        size = 0
        while size < PACK_BYTES:
            page = await self._packs.rows_to_move(after, before_id, ROWS_AT_ONCE)
            rows += page
            size += sum(len(line) + 30 for row in page for line in row.lines) + 100 * len(page)
            if len(page) < ROWS_AT_ONCE:
                return rows, True
            after = _key(page[-1])
        return rows, False

    async def _move_one(self, epoch: int, run_id: UUID) -> bool:
        async def pages() -> AsyncIterator[Sequence[PackedRow]]:
            after, behind = (run_id, 0, 0), UUID(int=run_id.int + 1)
            while page := await self._packs.rows_to_move(after, behind, ROWS_AT_ONCE):
                yield page
                after = _key(page[-1])

        if not await self._packs.rows_to_move((run_id, 0, 0), UUID(int=run_id.int + 1), 1):
            await self._packs.forget_large([run_id])
            return False
        return await self._write(epoch, run_id, run_id, pages())

    async def _write(self, epoch: int, first: UUID, last: UUID, pages: AsyncIterator[Sequence[PackedRow]]) -> bool:
        pack_id, packer = self._new_id(), Packer()
        key = f"logs/{self._clock.now():%Y-%m-%d}/{pack_id}.jsonl.gz"
        if not await self._packs.begin_pack(self._node_id(), epoch, pack_id, first, last, key):
            return False

        async def content() -> AsyncIterator[bytes]:
            held: list[PackedRow] = []
            async for page in pages:
                held += page
                # The last row waits: whether its attempt ends with it is seen by the next one.
                yield await asyncio.to_thread(_packed, packer, held[:-1], held[-1])
                held = held[-1:]
            yield await asyncio.to_thread(lambda: _packed(packer, held, None) + packer.flush())

        await self._blobs.put(key, content())
        return await self._packs.finish_pack(self._node_id(), epoch, pack_id, packer)


async def _these(rows: Sequence[PackedRow]) -> AsyncIterator[Sequence[PackedRow]]:
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[begin : begin + ROWS_AT_ONCE]


def _packed(packer: Packer, rows: Sequence[PackedRow], following: PackedRow | None) -> bytes:
    """Adds rows; behind the last one of an attempt that never said that its log is whole, the mark that says so."""
    out = []
    for at, row in enumerate(rows):
        out.append(packer.add(row))
        then = rows[at + 1] if at + 1 < len(rows) else following
        ends = then is None or (then.run_id, then.attempt) != (row.run_id, row.attempt)
        if ends and row.is_last is False:
            number = row.first_line + max(len(row.lines), row.left_out)
            mark = PackedRow(row.run_id, row.attempt, number, row.at[-1:], [2], [LOST_TEXT], 0, True)
            out.append(packer.add(mark))
    return b"".join(out)


def _key(row: PackedRow) -> _Key:
    return row.run_id, row.attempt, row.first_line
