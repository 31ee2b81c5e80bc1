"""Attempts that somebody outside may end, and what was said of them. Of tokens only digests are kept."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.states import RunEvent, sources
from hourhand.ports.callback_stores import TOLD_IDS_MAX, FoundCallback, SaidCallback
from hourhand.store.jsons import from_json, to_json

_KEPT: Final = timedelta(days=7)
"""How long after its time a callback is still told that it came too late, and not that nobody knows it."""
_FOUND_MAX: Final = 20
"""Attempts of one run whose callbacks are known at once; an older one is as good as unknown."""
_STATES: Final = sources(RunEvent.SUCCEED)


class Callbacks:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "callbacks.sql", database.schema)

    async def open_callback(
        self, run_id: UUID, fence: int, token_digest: bytes, seconds: float, key_id: str | None
    ) -> None:
        await self._database.fetch(
            self._queries["open_callback"],
            run_id=run_id,
            fence=fence,
            token_digest=token_digest,
            seconds=seconds,
            key_id=key_id,
        )

    async def answer_callback(
        self, run_id: UUID, token_digest: bytes, said: Mapping[str, Any], said_digest: bytes
    ) -> bool:
        rows = await self._database.fetch(
            self._queries["answer_callback"],
            run_id=run_id,
            token_digest=token_digest,
            said=to_json(said),
            said_digest=said_digest,
            states=_STATES,
        )
        return bool(rows)

    async def tell_callback(self, run_id: UUID, token_digest: bytes, said: Mapping[str, Any]) -> None:
        await self._database.fetch(
            self._queries["tell_callback"], run_id=run_id, token_digest=token_digest, said=to_json(said)
        )

    async def find_callbacks(self, run_id: UUID, token_digest: bytes | None = None) -> list[FoundCallback]:
        rows = await self._database.fetch(
            self._queries["find_callbacks"], run_id=run_id, token_digest=token_digest, states=_STATES, most=_FOUND_MAX
        )
        return [
            FoundCallback(
                row["token_digest"],
                row["fence"],
                row["key_id"],
                row["said_digest"],
                row["current"],
                row["told_second"],
                tuple(row["told_ids"] or ()),
            )
            for row in rows
        ]

    async def mark_told(self, token_digest: bytes, second: int, message_id: bytes) -> None:
        await self._database.fetch(
            self._queries["mark_told"],
            token_digest=token_digest,
            second=second,
            message_id=message_id,
            ids_max=TOLD_IDS_MAX,
        )

    async def said_callbacks(self, attempts: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], SaidCallback]:
        rows = await self._database.fetch(
            self._queries["said_callbacks"],
            run_ids=[run_id for run_id, _ in attempts],
            fences=[fence for _, fence in attempts],
        )
        return {(row["run_id"], row["fence"]): SaidCallback(from_json(row["said"]), row["is_last"]) for row in rows}

    async def sweep(self, now: datetime) -> None:
        await self._database.fetch(self._queries["sweep_callbacks"], before=now - _KEPT)
