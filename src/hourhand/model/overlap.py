"""What becomes of a run that falls due while earlier runs of its job are not finished: the pure decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum, auto
from typing import Final
from uuid import UUID

from hourhand.model.policy import OnNextDue, Overlap
from hourhand.model.states import RunState


class Fate(StrEnum):
    GO = auto()
    """Nothing is in its way."""
    WAIT = auto()
    """It waits until the earlier ones are finished."""
    SKIP = auto()
    """It is not run."""


@dataclass(frozen=True, slots=True)
class Sibling:
    """An earlier run of the same job that is not finished."""

    run_id: UUID
    state: RunState
    retrying: bool = False
    """It has failed and waits for its next attempt."""
    held_back: bool = False
    """It waits for its own turn, by the same policy."""
    ready_at: datetime | None = None
    """Since when it may start."""
    caught_up: bool = False
    """It was made after its due time."""
    first_try: bool = False
    """Nobody has tried it before, so it is not there for longer than it is ready."""


@dataclass(frozen=True, slots=True)
class Judgement:
    fate: Fate
    cancel: Sequence[UUID] = ()
    """Earlier runs that are to be cancelled."""
    supersede: Sequence[UUID] = ()
    """Earlier runs whose place it takes."""


_FEW_WAIT: Final = (Overlap.SKIP, Overlap.QUEUE_ONE)


def policy_for_caught_up(policy: Overlap, due: datetime, earlier: Sequence[Sibling]) -> Overlap:
    """What counts for a run that was made after its due time. Nobody could judge it then, and what has been made
    since was not in its way: it is one of many that somebody wants to have run, and they run one after the other."""
    if policy in _FEW_WAIT and not any(sibling.ready_at is None or sibling.ready_at <= due for sibling in earlier):
        return Overlap.QUEUE_ALL
    return policy


def policy_for_nearly_caught_up(policy: Overlap, due: datetime, earlier: Sequence[Sibling]) -> Overlap:
    """What counts for a run that was made on time, or so little later that it passes for that: it may be the last of
    many that are caught up. What was made after its due time, all the others, was not in its way then."""
    made_later = [sibling.first_try and sibling.ready_at is not None and sibling.ready_at > due for sibling in earlier]
    return Overlap.QUEUE_ALL if policy in _FEW_WAIT and made_later and all(made_later) else policy


def judge(
    policy: Overlap, waiting_max: int, on_next_due: OnNextDue, earlier: Sequence[Sibling], *, caught_up: bool = False
) -> Judgement:
    """`earlier`: every unfinished run of the job that stands for an earlier time. `caught_up`: it was itself made after
    its due time."""
    superseded: list[UUID] = []
    if on_next_due is OnNextDue.SUPERSEDE:
        superseded = [sibling.run_id for sibling in earlier if sibling.retrying]
        earlier = [sibling for sibling in earlier if not sibling.retrying]
    if not earlier or policy is Overlap.ALLOW:
        return Judgement(Fate.GO, supersede=superseded)
    before_it = sum(sibling.held_back for sibling in earlier)
    match policy:
        case Overlap.SKIP:
            return Judgement(Fate.SKIP)
        case Overlap.CANCEL_RUNNING:
            asked = [sibling.run_id for sibling in earlier if sibling.state is not RunState.CANCELLING]
            return Judgement(Fate.WAIT, asked, superseded)
        case Overlap.QUEUE_ONE:
            waiting_max = 1
            if not caught_up:  # those run one after the other, whatever comes: the one that waits is the next on time
                before_it = sum(sibling.held_back and not sibling.caught_up for sibling in earlier)
        case Overlap.QUEUE_ALL:
            pass
    # One that is not run itself takes nobody's place.
    return Judgement(Fate.SKIP) if before_it >= waiting_max else Judgement(Fate.WAIT, supersede=superseded)
