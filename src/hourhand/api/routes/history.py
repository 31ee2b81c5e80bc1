"""/api/v1/jobs/{job_id}/history: what became of every due time, and why."""

from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter
from hourhand.model.errors import InvalidParameter
from hourhand.model.ledger import Key, LedgerEntry
from hourhand.model.local_time import InstantFault, parse_instant
from hourhand.operations.history import HistoryOperations

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = timedelta(microseconds=1)
_TIME: Final = {"type": "string", "format": "date-time"}
_PARAMETERS: Final = (
    Parameter("from", "Due times from this one on; by default a day before `to`.", _TIME),
    Parameter("to", "Due times up to this one; by default, and at most, now.", _TIME),
    limit_parameter(100, 1000),
    CURSOR,
    Parameter("compact", "Due times in a row that made no run as one entry with a count.", {"type": "boolean"}),
)


class HistoryEntryView(msgspec.Struct, kw_only=True):
    due_at: datetime
    last_due: datetime
    """The same as due_at unless the entry stands for several."""
    count: int
    status: str
    """The state of its run, or missed, paused, excluded, dst_gap, unplanned."""
    reason: str | None
    why: str | None
    run_id: UUID | None
    started_at: datetime | None
    ended_at: datetime | None


class HistoryView(msgspec.Struct, kw_only=True):
    job_id: UUID
    begin: datetime = msgspec.field(name="from")
    until: datetime = msgspec.field(name="to")
    entries: list[HistoryEntryView]
    """In the order of time."""
    next_cursor: str | None


class HistoryRoutes:
    def __init__(self, history: HistoryOperations) -> None:
        self._history = history

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/api/v1/jobs/{job_id}/history",
                self.history,
                "jobs",
                "What became of every due time, and why",
                HistoryView,
                parameters=_PARAMETERS,
            )
        ]

    async def history(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        query = call.query
        bound_to = f"history {call.caller.namespace} {job_id} {query.filters('cursor', 'limit', 'namespace')}"
        after = _key(read_cursor(query.text("cursor"), bound_to))
        page = await self._history.page(
            call.caller,
            job_id,
            _instant(query.text("from"), "from"),
            _instant(query.text("to"), "to"),
            after,
            query.integer("limit", 100, 1, 1000),
            query.text("compact") == "true",
        )
        cursor = None if page.next_after is None else make_cursor(_as_id(page.next_after), bound_to)
        entries = [_entry(entry) for entry in page.entries]
        view = HistoryView(job_id=job_id, begin=page.begin, until=page.until, entries=entries, next_cursor=cursor)
        return json_answer(view)


def _entry(entry: LedgerEntry) -> HistoryEntryView:
    return HistoryEntryView(
        due_at=entry.due_at,
        last_due=entry.last_due,
        count=entry.count,
        status=entry.status,
        reason=entry.reason,
        why=entry.why,
        run_id=entry.run_id,
        started_at=entry.started_at,
        ended_at=entry.ended_at,
    )


def _instant(text: str | None, name: str) -> datetime | None:
    try:
        return None if text is None else parse_instant(text)
    except InstantFault as fault:
        raise InvalidParameter(name, str(fault)) from None


def _as_id(key: Key) -> UUID:
    """Cursors hold an id; a key is a time and a small number."""
    due, place = key
    return UUID(int=((due - _EPOCH) // _TICK) << 8 | place)


def _key(given: UUID | None) -> Key | None:
    return None if given is None else (_EPOCH + (given.int >> 8) * _TICK, given.int & 0xFF)
