"""The short road for what is submitted most: one job that runs once and says nothing beyond the basics.

What is plain is judged by the same rules as in `definition.py`, in a fraction of its time, because everything else is
left alone: whatever is unusual, let alone wrong, is None here and takes the long road, which says what there is to say.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol
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

_FIELDS: Final = frozenset({"name", "kind", "payload", "schedule", "queue", "priority"})
SLICE: Final = 500
"""Jobs of a batch that are looked at in one go."""
_KINDS: Final = frozenset({"python", "command"})
"""Those whose jobs name nothing that must exist, and which every executor has."""


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def new_id(self, now: datetime) -> UUID: ...


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

    def read(self, caller: Caller, given: Mapping[str, Any]) -> NewJob | None:
        """The job that a decoded body describes; None unless it is plain and all of it is right."""
        now = self._clock.now()
        new = self._read(caller, given, now, now + self._horizon)
        if new is not None and self._offers.lack(new.definition.queue, new.definition.needs):
            return None  # whoever submits it is warned, which answers of the short road have no place for
        return new

    async def read_many(self, caller: Caller, items: Sequence[Any]) -> list[NewJob] | None:
        """The same of a batch, whose jobs are all submitted at one instant; None as soon as one is not plain."""
        now = self._clock.now()
        soon = now + self._horizon
        news: list[NewJob] = []
        for place, given in enumerate(items):
            if place % SLICE == SLICE - 1:  # a large batch must not keep everybody else waiting
                await asyncio.sleep(0)
            new = self._read(caller, given, now, soon) if type(given) is dict else None
            if new is None:
                return None
            news.append(new)
        return news

    async def store_many(self, news: Sequence[NewJob]) -> None:
        """Stores all or none, in a transaction of their own, and wakes executors if any is due."""
        await self._insert(news)
        if any(new.fires for new in news):
            self._bus.publish(Topic.READY)

    def _read(self, caller: Caller, given: Mapping[str, Any], now: datetime, soon: datetime) -> NewJob | None:
        """What is due until `soon` gets its run at once, the rest a cursor."""
        get = given.get
        name, payload, schedule = get("name"), get("payload"), get("schedule")
        if payload is None:
            payload = {}
        if type(name) is not str or type(payload) is not dict or not given.keys() <= _FIELDS:
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
        encoded = plain_payload(payload)
        judge = self._kinds.get(kind)
        if encoded is None or judge is None or judge.check(payload):
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
        definition = JobDefinition(
            name, kind, payload, timing, judge.needs(payload, name), queue, priority, owner=caller.name
        )
        fires, next_due = ((due,), None) if due <= soon else ((), due)
        return NewJob(
            self._ids.new_id(now), caller.namespace_id, definition, now, caller.name, fires, next_due, None, encoded
        )

    def store(self, new: NewJob) -> "asyncio.Future[None]":
        """Done once the job is durable. Raises `Overloaded`."""
        return self._group.put(new)

    def tell(self, new: NewJob) -> None:
        """Wakes executors for a job that is stored, if it is due."""
        if new.fires:
            self._bus.publish(Topic.READY)
