"""What a caller may ask of many jobs at once: pause and resume those of a label, a namespace, the cluster.

The verbs are separate and may be repeated: pausing what is paused changes who, why and until when; resuming what is not
paused changes nothing.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from hourhand.model.errors import Fault, Forbidden, InvalidParameter, NotFound
from hourhand.model.pauses import Pause, PauseScope
from hourhand.operations.pausing import pause_faults, read_pause, read_resume
from hourhand.operations.requests import Caller, PauseRequest, ResumeRequest
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.pause_stores import PauseStore, PauseTarget


class Clock(Protocol):
    def now(self) -> datetime: ...


class Namespaces(Protocol):
    async def find_namespace(self, name: str) -> int | None: ...


class PauseStatus(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    name: str
    """The label, the queue or the namespace; empty for a job and the cluster."""
    paused_at: datetime
    paused_by: str
    reason: str | None
    until: datetime | None
    ended_at: datetime | None = None
    ended_by: str | None = None
    """None when its time was over."""
    catch_up: str | None = None


class PauseDone(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    name: str
    until: datetime | None
    jobs: int
    """How many it holds that are still to fall due; counted up to 100000."""
    too_late: Sequence[UUID]
    """Runs it came too late for: an executor already had them."""


class ResumeDone(msgspec.Struct, frozen=True, kw_only=True):
    scope: str
    name: str
    was_paused: bool


class PausePage(msgspec.Struct, frozen=True):
    pauses: Sequence[PauseStatus]
    next_before: int | None


class PauseOperations:
    def __init__(self, store: PauseStore, names: Namespaces, clock: Clock, bus: EventBus) -> None:
        self._store = store
        self._names = names
        self._clock = clock
        self._bus = bus

    async def pause(self, caller: Caller, scope: PauseScope, name: str, request: PauseRequest) -> PauseDone:
        """No due time that is later than the answer makes a run. What runs goes on; a run by hand is still allowed."""
        now = self._clock.now()
        target = await self._target(caller, scope, name)
        wish = read_pause(request, now)
        done = await self._store.pause(target, caller.name, wish.reason, wish.until, now)
        self._bus.publish(Topic.PAUSES)
        return PauseDone(scope=scope.value, name=name, until=wish.until, jobs=done.jobs, too_late=done.too_late)

    def faults_of_pause(self, request: PauseRequest) -> Sequence[Fault]:
        """What `pause` would refuse; nothing is stored. For requests with faults elsewhere, to tell all at once."""
        return pause_faults(request, self._clock.now())

    async def resume(self, caller: Caller, scope: PauseScope, name: str, request: ResumeRequest) -> ResumeDone:
        """Due times that are later than this make runs again; of those in the pause only what is to be caught up."""
        target = await self._target(caller, scope, name)
        was_paused = await self._store.resume(target, caller.name, read_resume(request), self._clock.now())
        self._bus.publish(Topic.PAUSES)
        return ResumeDone(scope=scope.value, name=name, was_paused=was_paused)

    async def list(self, caller: Caller, also_over: bool, before: int | None, limit: int) -> PausePage:
        """Those that concern the namespace, newest first."""
        found = await self._store.list_pauses(caller.namespace_id, self._clock.now(), also_over, before, limit + 1)
        page = [pause_status(pause) for _, pause in found[:limit]]
        return PausePage(page, found[limit - 1][0] if len(found) > limit else None)

    async def _target(self, caller: Caller, scope: PauseScope, name: str) -> PauseTarget:
        match scope:
            case PauseScope.CLUSTER:
                if not caller.cluster_wide:
                    raise Forbidden("this token is bound to one namespace; the cluster is paused by one that is not")
                return PauseTarget()
            case PauseScope.NAMESPACE:
                if name != caller.namespace and not caller.cluster_wide:
                    raise Forbidden(f"this token is for namespace {caller.namespace!r} only")
                namespace_id = await self._names.find_namespace(name)
                if namespace_id is None:
                    raise NotFound("namespace", name)
                return PauseTarget(namespace_id)
            case PauseScope.LABEL:
                return PauseTarget(caller.namespace_id, labels=read_label(name))
            case _:
                raise AssertionError(f"{scope} is paused elsewhere")


def read_label(text: str) -> dict[str, str]:
    """Reads key:value or key=value."""
    places = [place for place in (text.find(":"), text.find("=")) if place > 0]
    if not places:
        raise InvalidParameter("label", f"must be written key:value or key=value, not {text[:60]!r}")
    return {text[: min(places)]: text[min(places) + 1 :]}


def pause_status(pause: Pause) -> PauseStatus:
    return PauseStatus(
        scope=pause.scope.value,
        name=pause.name,
        paused_at=pause.paused_at,
        paused_by=pause.paused_by,
        reason=pause.reason,
        until=pause.until,
        ended_at=pause.ended_at,
        ended_by=pause.ended_by,
        catch_up=None if pause.catch_up is None else pause.catch_up.value,
    )
