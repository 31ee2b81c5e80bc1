"""What a caller may ask of queues and namespaces: how full they are, pause and resume, limits, rates, shares."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Protocol

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from hourhand.model.errors import Fault, Forbidden, InvalidFields, InvalidParameter, NotFound
from hourhand.model.policy import Rate, format_rate
from hourhand.operations.cluster_requests import NamespaceRequest, NamespaceStatus, QueueRequest, QueueStatus
from hourhand.operations.pausing import pause_faults, read_pause, read_resume
from hourhand.operations.policy import LIMIT_MAX, read_rate
from hourhand.operations.requests import Caller, PauseRequest, ResumeRequest
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.operator_stores import LimitChange, QueueRow, QueueStore
from hourhand.ports.pause_stores import PauseStore, PauseTarget

WEIGHT_MAX: Final = 1000
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}")


class Namespaces(Protocol):
    async def find_namespace(self, name: str) -> int | None: ...


class Clock(Protocol):
    def now(self) -> datetime: ...


Faults = list[Fault]  # inside a class with a method `list`, that word is the method


class QueueOperations:
    def __init__(self, store: QueueStore, names: Namespaces, bus: EventBus, pauses: PauseStore, clock: Clock) -> None:
        self._store = store
        self._pauses = pauses
        self._clock = clock
        self._names = names
        self._bus = bus

    async def list(self, caller: Caller) -> Sequence[QueueStatus]:
        return [_status(row) for row in await self._store.list_queues(caller.namespace_id)]

    async def get(self, caller: Caller, queue: str) -> QueueStatus:
        row = await self._store.get_queue(caller.namespace_id, _checked(queue))
        if row is None:
            raise NotFound("queue", queue)
        return _status(row)

    async def set(self, caller: Caller, queue: str, request: QueueRequest) -> QueueStatus:
        """Limits of a queue, also of one that no job has named yet."""
        _checked(queue)
        change, faults = _queue_change(request)
        if faults:
            raise InvalidFields(faults)
        if change.says_something:
            await self._store.limit_queue(caller.namespace_id, queue, change)
            self._tell()
        return await self._now(caller, queue)

    def faults_of_set(self, request: QueueRequest) -> Faults:
        """What `set` would refuse; nothing is stored. For requests with faults elsewhere, to tell all at once."""
        return _queue_change(request)[1]

    async def pause(self, caller: Caller, queue: str, request: PauseRequest) -> QueueStatus:
        """Nothing of the queue is started until it is resumed; what runs goes on. Due times of recurring jobs make no
        runs meanwhile. May be repeated."""
        _checked(queue)
        now = self._clock.now()
        wish = read_pause(request, now)
        target = PauseTarget(caller.namespace_id, queue)
        done = await self._pauses.pause(target, caller.name, wish.reason, wish.until, now)
        self._tell()
        self._bus.publish(Topic.PAUSES)
        return replace(await self._now(caller, queue), too_late=done.too_late)

    def faults_of_pause(self, request: PauseRequest) -> Faults:
        """The same of `pause`."""
        return pause_faults(request, self._clock.now())

    async def resume(self, caller: Caller, queue: str, request: ResumeRequest) -> QueueStatus:
        await self.get(caller, queue)
        target = PauseTarget(caller.namespace_id, queue)
        await self._pauses.resume(target, caller.name, read_resume(request), self._clock.now())
        self._tell()
        self._bus.publish(Topic.PAUSES)
        return await self._now(caller, queue)

    async def namespace(self, caller: Caller, name: str) -> NamespaceStatus:
        return await self._namespace(await self._namespace_id(caller, name))

    async def set_namespace(self, caller: Caller, name: str, request: NamespaceRequest) -> NamespaceStatus:
        """A limit and a share are set by whoever sees all namespaces, since they are at the cost of the others."""
        if not caller.cluster_wide:
            raise Forbidden("this token is bound to one namespace; limits and shares are set by tokens that are not")
        namespace_id = await self._namespace_id(caller, name)
        faults = self.faults_of_namespace(request)
        if faults:
            raise InvalidFields(faults)
        change = LimitChange(request.max_concurrency)
        weight = None if request.weight is UNSET else request.weight
        if weight is not None or change.says_something:
            await self._store.change_namespace(namespace_id, weight, change)
            self._tell()
        return await self._namespace(namespace_id)

    def faults_of_namespace(self, request: NamespaceRequest) -> Faults:
        """What `set_namespace` would refuse."""
        faults = _limit_faults(request.max_concurrency)
        if isinstance(request.weight, int) and not 1 <= request.weight <= WEIGHT_MAX:
            faults.append(Fault("/weight", "out-of-range", f"weight is 1 to {WEIGHT_MAX}"))
        return faults

    async def _namespace_id(self, caller: Caller, name: str) -> int:
        if name != caller.namespace and not caller.cluster_wide:
            raise Forbidden(f"this token is for namespace {caller.namespace!r} only")
        namespace_id = await self._names.find_namespace(name)
        if namespace_id is None:
            raise NotFound("namespace", name)
        return namespace_id

    async def _namespace(self, namespace_id: int) -> NamespaceStatus:
        row = await self._store.get_namespace(namespace_id)
        return NamespaceStatus(name=row.name, max_concurrency=row.capacity, weight=row.weight, running=row.running)

    async def _now(self, caller: Caller, queue: str) -> QueueStatus:
        """As it is after a change; a queue of which nothing is left to say is empty and free."""
        row = await self._store.get_queue(caller.namespace_id, queue)
        return _status(row or QueueRow(queue, None, None, None, None, None, 0, 0, 0))

    def _tell(self) -> None:
        self._bus.publish(Topic.LANES)
        self._bus.publish(Topic.READY)


def _checked(queue: str) -> str:
    if not _NAME.fullmatch(queue):
        raise InvalidParameter("queue", "a queue's name has 1 to 63 letters, digits, dots, dashes or underscores")
    return queue


def _queue_change(request: QueueRequest) -> tuple[LimitChange, list[Fault]]:
    faults = _limit_faults(request.max_concurrency)
    return LimitChange(request.max_concurrency, _rate(request.rate_limit, faults)), faults


def _rate(given: str | UnsetType | None, faults: list[Fault]) -> Rate | UnsetType | None:
    return read_rate(given, "/rate_limit", faults.append) if isinstance(given, str) else given


def _limit_faults(given: int | UnsetType | None) -> list[Fault]:
    if not isinstance(given, int) or 1 <= given <= LIMIT_MAX:
        return []
    message = f"max_concurrency is 1 to {LIMIT_MAX}; null takes the limit away"
    return [Fault("/max_concurrency", "out-of-range", message)]


def _status(row: QueueRow) -> QueueStatus:
    return QueueStatus(
        name=row.queue,
        paused=row.paused_at is not None,
        paused_at=row.paused_at,
        paused_by=row.paused_by,
        pause_reason=row.pause_reason,
        pause_until=row.pause_until,
        max_concurrency=row.capacity,
        rate_limit=None if row.rate is None else format_rate(row.rate),
        waiting=row.waiting,
        later=row.later,
        running=row.running,
    )
