"""When a job was certainly active, and under which version, according to what its clients were told.

A change takes effect somewhere between its request and its answer; one whose answer was lost may or may not have been
applied. In these stretches nothing is certain, and nothing is demanded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tests.chaos.history import ClientCall, JobRow, Settings
from tests.chaos.windows import Window

UNHEARD_SECONDS: Final = 30.0
"""How long a request whose answer was lost may still be on its way."""

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Change(Generic[_Value]):
    """Something became `value` at a moment between `start` and `end`; or perhaps not, if it is not sure."""

    start: float
    end: float
    value: _Value
    sure: bool


@dataclass(frozen=True, slots=True)
class Active:
    """A version of a job was certainly active: its due times in (start, end] must be accounted for."""

    window: Window
    version: int


def active_stretches(calls: Sequence[ClientCall], row: JobRow | None, settings: Settings) -> list[Active]:
    """From the calls on one job, in the order of their requests."""
    statuses: list[Change[bool]] = []
    versions: list[Change[int]] = []
    for call in calls:
        if call.outcome == "fail":
            continue
        end = applied_until(call)
        sure = call.outcome == "ok"
        if call.op in {"submit", "resume"}:
            statuses.append(Change(call.invoked_at, end, True, sure))
        elif call.op == "pause" or (call.op == "delete" and not _certainly_not_deleted(call, row)):
            statuses.append(Change(call.invoked_at, end + settings.claim_ahead_seconds, False, sure))
        if call.op == "submit":
            versions.append(Change(call.invoked_at, end, call.version or 1, sure))
        elif call.op == "update":
            version = call.version or 0
            versions.append(
                Change(call.invoked_at, end + settings.claim_ahead_seconds, version, sure and bool(version))
            )
    return [
        Active(Window(max(on.start, asked.start), min(on.end, asked.end)), version)
        for on, active in _known(statuses, settings.read_at)
        if active
        for asked, version in _known(versions, settings.read_at)
        if max(on.start, asked.start) < min(on.end, asked.end)
    ]


def applied_until(call: ClientCall) -> float:
    """When a call that was not refused had taken effect, if it did."""
    return call.ended_at if call.outcome == "ok" and call.ended_at is not None else call.invoked_at + UNHEARD_SECONDS


def _certainly_not_deleted(call: ClientCall, row: JobRow | None) -> bool:
    return call.outcome == "info" and row is not None and row.status != "cancelled"


def _known(changes: Sequence[Change[_Value]], until: float) -> list[tuple[Window, _Value]]:
    """The stretches in which the value is certain."""
    known: list[tuple[Window, _Value]] = []
    for place, change in enumerate(changes):
        following = changes[place + 1].start if place + 1 < len(changes) else until
        under_way = [earlier for earlier in changes[:place] if earlier.end > change.start]
        # Changes at the same time may have been applied in any order: only if they agree is the end of them known.
        settled = all(earlier.value == change.value for earlier in under_way)
        start = max([change.end, *(earlier.end for earlier in under_way)])
        if change.sure and settled and start < following:
            known.append((Window(start, following), change.value))
    return known
