"""What to ask for, given what is due and how much room there is.

Within a namespace priority goes first; but what has waited longer than a bound because of it gets a quarter of the
room, so that nothing waits for ever. Between namespaces the room is shared by weight. One namespace alone gets all.
"""

from collections.abc import Mapping, Sequence
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
        self._few = 0

    def wishes(self, heads: Sequence[Head], lanes: Mapping[int, Lane], places: int, now: datetime) -> list[Wish]:
        """`heads` are in order of priority and age; `places` is more than none."""
        by_namespace: dict[int, list[Head]] = {}
        for head in heads:
            by_namespace.setdefault(lanes[head.lane_id].namespace_id, []).append(head)
        if len(by_namespace) == 1:
            self._credit, given = {}, dict.fromkeys(by_namespace, places)
        else:
            weights = {namespace_id: lanes[of[0].lane_id].weight for namespace_id, of in by_namespace.items()}
            self._credit = allot(weights, places, self._credit)
            given = whole_places(self._credit, places)
        return [
            wish
            for namespace_id, of in by_namespace.items()
            if given[namespace_id] > 0
            for wish in self._within(namespace_id, of, given[namespace_id], now)
        ]

    def settle(self, claimed: Mapping[int, int]) -> None:
        """Takes how many runs of each namespace came of the wishes."""
        for namespace_id in self._credit:
            self._credit[namespace_id] -= claimed.get(namespace_id, 0)

    def _within(self, namespace_id: int, heads: Sequence[Head], places: int, now: datetime) -> list[Wish]:
        overdue = [head for head in heads if head.ready_at < now - self._wait_max and head.priority < heads[0].priority]
        if not overdue:
            return [Wish(head, 2 * namespace_id, places) for head in heads]
        part = places // OVERDUE_PART
        if places < OVERDUE_PART:  # of so few they get one now and then
            self._few = (self._few + places) % OVERDUE_PART
            part = 1 if self._few < places else 0
        usual = [Wish(head, 2 * namespace_id, places - part) for head in heads if head not in overdue]
        late = [Wish(head, 2 * namespace_id + 1, part) for head in overdue]
        return [wish for wish in usual + late if wish.limit > 0]
