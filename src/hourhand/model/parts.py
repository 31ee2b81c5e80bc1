"""A run that goes to all executors, or to several: its parts, who gets which, and what they come to together.

The run itself stands for its due time in the ledger, in limits and before the overlap policy; its parts are runs that
only it knows of. Which executor a part is for is decided here, and only under the fence of the run.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from hourhand.model.outcome import Failed, Outcome, Succeeded
from hourhand.model.states import Reason, RunState

PARTS_MAX: Final = 1000
TOLD_MAX: Final = 20
"""Parts that did not succeed and are named in the result of their run."""
_VERSION_8: Final = 8 << 76
_VARIANT: Final = 2 << 62


def part_id(parent_id: UUID, place: int) -> UUID:
    """The same whoever computes it. Its leading bits are the time of the run, its version is that of parts alone."""
    chance = int.from_bytes(hashlib.sha256(parent_id.bytes + place.to_bytes(4, "big")).digest()[:10], "big")
    head = parent_id.int >> 80 << 80
    return UUID(int=head | _VERSION_8 | (chance >> 62 & 0xFFF) << 64 | _VARIANT | chance & ((1 << 62) - 1))


def is_part(run_id: UUID) -> bool:
    """SQL has the same rule in the function `hourhand.is_part`."""
    return run_id.int >> 76 & 0xF == 8


@dataclass(frozen=True, slots=True)
class Part:
    run_id: UUID
    place: int
    total: int
    node_id: int | None
    node: str | None
    gone: bool
    """Its executor has ended."""
    state: RunState
    attempt: int = 0
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    error: str | None = None
    result: Any = None


@dataclass(frozen=True, slots=True)
class Orders:
    """What is to be done about parts now."""

    give: Mapping[UUID, int] = field(default_factory=dict)
    """Parts that get another executor."""
    lose: Sequence[UUID] = ()
    """Parts whose executor is gone and that are for no other."""


def decide(parts: Sequence[Part], on_all: bool, able: Sequence[int]) -> Orders:
    """`able`: executors that may take parts, the best first. A part of `all` ends with its executor. A part of `n` that
    has lost its executor goes to one that has none yet, else to the one with the fewest; one that never had any waits
    for a further executor, because `n` of them are meant, not the same several times."""
    waiting = [part for part in parts if part.state in (RunState.QUEUED, RunState.WAITING)]
    stranded = [part for part in waiting if part.node_id is not None and part.gone]
    if on_all:
        return Orders(lose=[part.run_id for part in stranded])
    load = Counter(dict.fromkeys(able, 0))
    load.update(part.node_id for part in parts if part.node_id is not None and part.node_id in load)
    give: dict[UUID, int] = {}
    for part in (*stranded, *(part for part in waiting if part.node_id is None)):
        least = min(able, key=lambda node_id: load[node_id], default=None)
        if least is None or (part.node_id is None and load[least]):
            continue
        give[part.run_id] = least
        load[least] += 1
    return Orders(give)


def outcome_of(parts: Sequence[Part]) -> Outcome | None:
    """What a run comes to by its parts; None while some have not ended."""
    if not all(part.state.is_final for part in parts):
        return None
    counts = Counter(part.state.word for part in parts)
    bad = [part for part in parts if part.state is not RunState.SUCCEEDED]
    result = {"parts": len(parts), **dict(sorted(counts.items()))}
    if not bad:
        return Succeeded(result)
    told = [
        {"index": part.place, "run_id": str(part.run_id), "status": part.state.word, "reason": part.reason}
        for part in bad[:TOLD_MAX]
    ]
    of = ", ".join(f"{part.place} ({part.state.word}{f' on {part.node}' if part.node else ''})" for part in bad[:5])
    more = f" and {len(bad) - 5} more" if len(bad) > 5 else ""
    error = f"{len(bad)} of {len(parts)} parts did not succeed: {of}{more}"
    return Failed(Reason.PARTS, error, retryable=False, result={**result, "not_succeeded": told})
