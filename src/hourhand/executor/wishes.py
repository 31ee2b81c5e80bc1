"""What to ask for, given what is due and how much room there is.

Within a namespace priority goes first; but what has waited longer than a bound because of it gets a quarter of the
room, so that nothing waits for ever. Between namespaces the room is shared by weight. One namespace alone gets all.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from hourhand.model.fair_share import allot, whole_places
from hourhand.ports.stores import Head, Lane, Wish

OVERDUE_PART = 4
"""One place in so many goes to runs that have waited too long."""


class Sharing:
    """Remembers what each namespace is owed from one claim to the next."""

    def __init__(self, wait_max: timedelta) -> None:
        self._wait_max = wait_max
        self._credit: dict[int, float] = {}
        self._given: dict[int, int] = {}
        self._few: dict[int, int] = {}

    def wishes(self, heads: Sequence[Head], lanes: Mapping[int, Lane], places: int, now: datetime) -> list[Wish]:
        """`heads` are in order of priority and age; `places` is more than none."""
        by_namespace: dict[int, list[Head]] = {}
        for head in heads:
            by_namespace.setdefault(lanes[head.lane_id].namespace_id, []).append(head)
        if len(by_namespace) == 1:
            self._credit, self._given = {}, dict.fromkeys(by_namespace, places)
        else:
            weights = {namespace_id: lanes[of[0].lane_id].weight for namespace_id, of in by_namespace.items()}
            self._credit = allot(weights, places, self._credit)
            self._given = whole_places(self._credit, places)
        return [
            wish
            for namespace_id, of in by_namespace.items()
            if self._given[namespace_id] > 0
            for wish in self._within(namespace_id, of, self._given[namespace_id], now)
        ]

    def settle(self, claimed: Mapping[int, int]) -> None:
        """Takes how many runs of each share came of the wishes."""
        for namespace_id in self._credit:
            got = sum(claimed.get(share, 0) for share in (2 * namespace_id, 2 * namespace_id + 1))
            # Who could not use what it was given is owed nothing: it would take it from others when it can.
            used = got >= self._given[namespace_id]
            self._credit[namespace_id] = self._credit[namespace_id] - got if used else 0.0

    def _within(self, namespace_id: int, heads: Sequence[Head], places: int, now: datetime) -> list[Wish]:
        overdue = [head for head in heads if head.ready_at < now - self._wait_max and head.priority < heads[0].priority]
        part = self._part(namespace_id, places) if overdue else 0
        if part == 0:
            return [Wish(head, 2 * namespace_id, places) for head in heads]
        others = [head for head in heads if head not in overdue]
        if part == places:
            return [Wish(head, 2 * namespace_id, places) for head in (*overdue, *others)]
        # First: before a gate that has one place left they would else come second for ever.
        late = [Wish(head, 2 * namespace_id + 1, part) for head in overdue]
        return late + [Wish(head, 2 * namespace_id, places - part) for head in others]

    def _part(self, namespace_id: int, places: int) -> int:
        """What those that waited too long get; of few places one now and then."""
        counted = self._few.get(namespace_id, 0) + places
        self._few[namespace_id] = counted % OVERDUE_PART
        return counted // OVERDUE_PART


def in_turn(wishes: Sequence[Wish], lanes: Mapping[int, Lane]) -> Iterator[list[Wish]]:
    """Wishes in parts that can be asked for at once, the most urgent first: runs of plain lanes and those of lanes with
    gates are claimed in different ways, and neither sort goes before the other as such."""
    queues: dict[int, deque[Wish]] = {}
    for wish in wishes:
        queues.setdefault(wish.share, deque()).append(wish)
    while queues:
        first = min((queue[0].head for queue in queues.values()), key=lambda head: (-head.priority, head.ready_at))
        careful = lanes[first.lane_id].careful
        part: list[Wish] = []
        for share, queue in list(queues.items()):
            while queue and lanes[queue[0].head.lane_id].careful is careful:
                part.append(queue.popleft())
            if not queue:
                del queues[share]
        yield part


def by_urgency(heads: Sequence[Head], lanes: Mapping[int, Lane]) -> list[Head]:
    """By priority and age; within a priority those of plain lanes and those with gates stand together."""
    oldest: dict[tuple[int, bool], datetime] = {}
    for head in heads:
        sort = head.priority, lanes[head.lane_id].careful
        oldest[sort] = min(oldest.get(sort, head.ready_at), head.ready_at)

    def urgency(head: Head) -> tuple[int, datetime, bool, datetime]:
        careful = lanes[head.lane_id].careful
        return -head.priority, oldest[head.priority, careful], careful, head.ready_at

    return sorted(heads, key=urgency)
