"""The short road for what is submitted most: one job that runs once and says nothing beyond the basics.

What is plain is judged by the same rules as in `definition.py`, in a fraction of its time, because everything else is
left alone: whatever is unusual, let alone wrong, is None here and takes the long road, which says what there is to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from hourhand.model.job import KIND_DEFAULT, NAME_CHARS_MAX, PRIORITY_DEFAULT, QUEUE_DEFAULT, JobDefinition
from hourhand.model.schedule import At, Timing
from hourhand.operations.definition import immediately, is_name, is_queue, plain_instant, plain_payload
from hourhand.operations.group_commit import GroupCommit
from hourhand.operations.offers import Offers
from hourhand.operations.requests import Caller
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.job_kind import JobKind
from hourhand.ports.stores import NEVER, NewJob

_FIELDS: Final = frozenset({"name", "kind", "schedule", "queue", "priority"})
"""Beside the payload."""
SLICE: Final = 500
"""Jobs of a batch that are looked at in one go."""
_KINDS: Final = frozenset({"python", "command"})
"""Those whose jobs name nothing that must exist, and which every executor has."""


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


class _Frame(NamedTuple):
    """All that a job says but its payload, judged. The jobs of a batch often share one."""

    said: Mapping[str, Any]
    name: str
    kind: str
    judge: JobKind
    queue: str
    priority: int
    timing: Timing
    fires: tuple[datetime, ...]
    next_due: datetime | None


class PlainSubmissions:
    def __init__(
        self,
        kinds: Mapping[str, JobKind],
        clock: Clock,
        ids: Ids,
        bus: EventBus,
        horizon: timedelta,
        group: GroupCommit[NewJob],
        insert: Callable[[Sequence[NewJob]], Awaitable[None]],
        offers: Offers,
    ) -> None:
        """`insert` stores jobs in a transaction of their own."""
        self._kinds = kinds
        self._clock = clock
        self._ids = ids
        self._bus = bus
        self._horizon = horizon
        self._group = group
        self._insert = insert
        self._offers = offers
        self._last: tuple[datetime | None, Any, datetime, Timing] = None, None, NEVER, immediately(NEVER)
        """The schedule that was read last, when it was, and what it says: many jobs of a batch name the same time."""

    def read(self, caller: Caller, given: dict[str, Any]) -> NewJob | None:
        """The job that a decoded body describes, of which the payload is taken out; None unless it is plain and all of
        it is right."""
        now = self._clock.now()
        payload = given.pop("payload", None)
        frame = self._frame(given, now, now + self._horizon)
        new = None if frame is None else self._read(caller, frame, payload, now)
        if new is not None and self._offers.lack(new.definition.queue, new.definition.needs):
            return None  # whoever submits it is warned, which answers of the short road have no place for
        return new

    async def read_many(self, caller: Caller, items: Sequence[Any]) -> list[NewJob] | None:
        """The same of a batch, whose jobs are all submitted at one instant; None as soon as one is not plain."""
        now = self._clock.now()
        soon = now + self._horizon
        news: list[NewJob] = []
        frame: _Frame | None = None
        for place, given in enumerate(items):
            if place % SLICE == SLICE - 1:  # a large batch must not keep everybody else waiting
                await asyncio.sleep(0)
            if type(given) is not dict:
                return None
            payload = given.pop("payload", None)
            if frame is None or not _is_alike(given, frame.said):
                frame = self._frame(given, now, soon)
            new = None if frame is None else self._read(caller, frame, payload, now)
            if new is None:
                return None
            news.append(new)
        return news

    async def store_many(self, news: Sequence[NewJob]) -> None:
        """Stores all or none, in a transaction of their own, and wakes executors if any is due."""
        await self._insert(news)
        if any(new.fires for new in news):
            self._bus.publish(Topic.READY)

    def _frame(self, given: Mapping[str, Any], now: datetime, soon: datetime) -> _Frame | None:
        """What is due until `soon` gets its run at once, the rest a cursor."""
        get = given.get
        name, schedule = get("name"), get("schedule")
        if type(name) is not str or not given.keys() <= _FIELDS:
            return None
        kind, queue, priority = (
            get("kind", KIND_DEFAULT),
            get("queue", QUEUE_DEFAULT),
            get("priority", PRIORITY_DEFAULT),
        )
        if type(kind) is not str or type(queue) is not str or type(priority) is not int:
            return None
        if len(name) > NAME_CHARS_MAX or not is_name(name) or kind not in _KINDS or not 0 <= priority <= 9:
            return None
        if queue is not QUEUE_DEFAULT and not is_queue(queue):
            return None
        judge = self._kinds.get(kind)
        if judge is None:
            return None
        if schedule is None:
            due, timing = now, immediately(now)
        elif now is self._last[0] and schedule == self._last[1]:  # of a crowd
            due, timing = self._last[2:]
        else:
            instant = plain_instant(schedule, now)
            if instant is None:
                return None
            due, timing = instant, Timing((At(instant),))
            self._last = now, schedule, due, timing
        fires, next_due = ((due,), None) if due <= soon else ((), due)
        return _Frame(given, name, kind, judge, queue, priority, timing, fires, next_due)

    def _read(self, caller: Caller, frame: _Frame, payload: Any, now: datetime) -> NewJob | None:
        if payload is None:
            payload = {}
        encoded = plain_payload(payload) if type(payload) is dict else None
        if encoded is None or frame.judge.check(payload):
            return None
        needs, name = frame.judge.needs(payload, frame.name), frame.name
        definition = JobDefinition(
            name, frame.kind, payload, frame.timing, needs, frame.queue, frame.priority, owner=caller.name
        )
        new_id = self._ids.new_id(now)
        return NewJob(
            new_id, caller.namespace_id, definition, now, caller.name, frame.fires, frame.next_due, None, encoded
        )

    def store(self, new: NewJob) -> "asyncio.Future[None]":
        """Done once the job is durable. Raises `Overloaded`."""
        return self._group.put(new)

    def tell(self, new: NewJob) -> None:
        """Wakes executors for a job that is stored, if it is due."""
        if new.fires:
            self._bus.publish(Topic.READY)


def _is_alike(said: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether both say the same. `True` and `1.0` equal 1, but are no priority."""
    return said == other and type(said.get("priority", 0)) is int
