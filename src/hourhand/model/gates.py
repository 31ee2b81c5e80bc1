"""Which of the runs that are due may start now: the pure decision over limits and rates.

A gate has a capacity (how many may hold it at once), a rate (how many may start in a stretch of time), or both. A run
starts only when every gate of it has room; then it takes a place in each. What does not fit waits on the first gate
that has no room. Order is the caller's: priority first, then who waits longest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from hourhand.model.ids import microseconds_since_epoch
from hourhand.model.policy import Rate

PRIORITY_WAIT: Final = timedelta(seconds=30)
"""Who has waited longer because of a priority gets a turn now and then; unless it is configured otherwise."""
SLICES: Final = 60
"""A rate is counted in slices of its stretch. A slice counts until all of it is too old, so that no stretch of
that length ever has more starts than allowed; it may have up to a sixtieth less."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Starts:
    """What has started lately: the newest slice with a start, and the counts per slice, newest first."""

    newest: int = 0
    counts: tuple[int, ...] = ()

    def at(self, slice_now: int) -> "Starts":
        """The same, seen from a later slice."""
        gone = slice_now - self.newest
        if gone <= 0:
            return self
        return Starts(slice_now, ((0,) * min(gone, SLICES + 1) + self.counts)[: SLICES + 1])

    def plus_one(self) -> "Starts":
        first = self.counts[0] if self.counts else 0
        return Starts(self.newest, (first + 1, *self.counts[1:]))


@dataclass(frozen=True, slots=True)
class Gate:
    gate_id: int
    capacity: int | None = None
    held: int = 0
    rate: Rate | None = None
    starts: Starts = Starts()
    promised: frozenset[UUID] = frozenset()
    """Runs that have waited for a place and were told of one; others get what is left besides."""

    def has_place(self, run_id: UUID) -> bool:
        if self.capacity is None:
            return True
        kept = 0 if run_id in self.promised else len(self.promised)
        return self.held + kept < self.capacity


@dataclass(frozen=True, slots=True)
class Candidate:
    run_id: UUID
    gate_ids: tuple[int, ...]
    share: int = 0
    """Those of one share have a common number of places."""


@dataclass(frozen=True, slots=True)
class Verdict:
    admitted: Sequence[UUID]
    waiting: Sequence[tuple[UUID, int]]
    """Runs that wait for a place, and the gate."""
    later: Sequence[tuple[UUID, int, datetime]]
    """Runs that may try again at a time, by a rate, and the gate."""
    gates: Mapping[int, Gate]
    """The gates afterwards."""


def admit(
    candidates: Sequence[Candidate], gates: Mapping[int, Gate], places: Mapping[int, int], now: datetime
) -> Verdict:
    """Lets through at most as many candidates as their share has places, in their order; those beyond that are left
    where they are. Gates that are not in the mapping hold nobody up."""
    left = dict(places)
    state = {gate_id: _seen_from(gate, now) for gate_id, gate in gates.items()}
    admitted: list[UUID] = []
    waiting: list[tuple[UUID, int]] = []
    later: list[tuple[UUID, int, datetime]] = []
    delayed: dict[int, int] = {}
    for candidate in candidates:
        mine = [state[gate_id] for gate_id in candidate.gate_ids if gate_id in state]
        full = next((gate for gate in mine if not gate.has_place(candidate.run_id)), None)
        if full is not None:
            waiting.append((candidate.run_id, full.gate_id))
            _settle_promises(state, mine, candidate.run_id)
            continue
        slow = next((gate for gate in mine if gate.rate is not None and _left(gate.rate, gate.starts) <= 0), None)
        if slow is not None:
            ahead = delayed[slow.gate_id] = delayed.get(slow.gate_id, -1) + 1
            assert slow.rate is not None
            later.append((candidate.run_id, slow.gate_id, next_start(slow.rate, slow.starts, now, ahead)))
            _settle_promises(state, mine, candidate.run_id)
            continue
        if left[candidate.share] <= 0:
            continue
        left[candidate.share] -= 1
        admitted.append(candidate.run_id)
        for gate in mine:
            starts = gate.starts if gate.rate is None else gate.starts.plus_one()
            state[gate.gate_id] = replace(gate, held=gate.held + 1, starts=starts)
        _settle_promises(state, mine, candidate.run_id)
    return Verdict(admitted, waiting, later, state)


def _settle_promises(state: dict[int, Gate], mine: Sequence[Gate], run_id: UUID) -> None:
    """Of a run that has its places, or cannot have them all: whatever it was promised, others may count on it again."""
    for gate in mine:
        if run_id in gate.promised:
            state[gate.gate_id] = replace(state[gate.gate_id], promised=gate.promised - {run_id})


def next_start(rate: Rate, starts: Starts, now: datetime, ahead: int = 0) -> datetime:
    """When a rate lets the next one start, if `ahead` others go first."""
    seen = starts.at(slice_of(rate, now))
    # A start gives its place to the one that is `count` starts later, when all of its slice is too old.
    rounds, place = divmod(ahead, rate.count)
    missing = place - _left(rate, seen)
    if missing < 0:
        return _begin_of(rate, seen.newest + rounds * (SLICES + 1)) if rounds else now
    age = len(seen.counts)
    while missing >= 0:
        age -= 1
        missing -= seen.counts[age]
    return _begin_of(rate, seen.newest - age + (rounds + 1) * (SLICES + 1))


def slice_of(rate: Rate, at: datetime) -> int:
    return microseconds_since_epoch(at) * SLICES // _microseconds(rate)


def _begin_of(rate: Rate, number: int) -> datetime:
    return _EPOCH + timedelta(microseconds=-(-number * _microseconds(rate) // SLICES))


def _microseconds(rate: Rate) -> int:
    return max(round(rate.seconds * 1_000_000), 1)


def _left(rate: Rate, starts: Starts) -> int:
    return rate.count - sum(starts.counts)


def _seen_from(gate: Gate, now: datetime) -> Gate:
    return gate if gate.rate is None else replace(gate, starts=gate.starts.at(slice_of(gate.rate, now)))
