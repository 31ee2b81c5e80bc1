"""What an executor asks for: by priority, by weight of the namespaces, and nobody waits for ever."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.executor.wishes import Sharing, by_urgency, in_turn
from hourhand.ports.stores import Head, Lane, Wish

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
BOUND = timedelta(seconds=30)
LANES = {number: Lane(number, "default", "number", weight=number) for number in range(1, 6)}
"""Lane, namespace and weight have one number."""


def head(lane: int = 1, priority: int = 5, waits: float = 1.0) -> Head:
    return Head(lane, priority, NOW - timedelta(seconds=waits))


def sharing() -> Sharing:
    return Sharing(BOUND)


def settle(shares: Sharing, claimed: Mapping[int, int]) -> None:
    """As if so many of each namespace had come."""
    shares.settle({2 * namespace_id: count for namespace_id, count in claimed.items()})


def places_of(wishes: list[Wish]) -> Counter[int]:
    """The room of each namespace: that of its shares together."""
    limits = {wish.share: (LANES[wish.head.lane_id].namespace_id, wish.limit) for wish in wishes}
    room: Counter[int] = Counter()
    for namespace_id, limit in limits.values():
        room[namespace_id] += limit
    return room


heads = st.lists(
    st.builds(head, st.integers(1, 5), st.integers(0, 9), st.floats(0, 100)), min_size=1, max_size=20, unique=True
).map(lambda found: sorted(found, key=lambda one: (-one.priority, one.ready_at)))


def test_one_namespace_alone_gets_all_places_in_strict_order_of_priority() -> None:
    asked = [head(1, 9), head(1, 5), head(1, 0)]
    wishes = sharing().wishes(asked, LANES, 100, NOW)
    assert [wish.head for wish in wishes] == asked
    assert {(wish.share, wish.limit) for wish in wishes} == {(2, 100)}


def test_what_has_waited_too_long_because_of_its_priority_gets_a_quarter() -> None:
    asked = [head(1, 9), head(1, 5, waits=29), head(1, 0, waits=31)]
    wishes = sharing().wishes(asked, LANES, 100, NOW)
    assert [(wish.head, wish.limit) for wish in wishes] == [(asked[2], 25), (asked[0], 75), (asked[1], 75)]
    assert wishes[0].share != wishes[1].share == wishes[2].share


def test_those_of_the_highest_priority_wait_for_nobody_however_long() -> None:
    wishes = sharing().wishes([head(1, 9, waits=500), head(1, 5, waits=1)], LANES, 8, NOW)
    assert {(wish.share, wish.limit) for wish in wishes} == {(2, 8)}


@pytest.mark.parametrize("places", [1, 2, 3])
def test_of_few_places_every_fourth_goes_to_what_has_waited_too_long(places: int) -> None:
    shares = sharing()
    asked = [head(1, 9), head(1, 0, waits=60)]
    late = 0
    for _ in range(40):
        wishes = shares.wishes(asked, LANES, places, NOW)
        assert sum(places_of(wishes).values()) == places
        if len({wish.share for wish in wishes}) == 2:
            late += wishes[0].limit
        elif wishes[0].head.priority == 0:
            late += places
    assert late == 10 * places


def test_of_few_places_every_namespace_has_its_own_count() -> None:
    shares = sharing()
    asked = [head(1, 9), head(2, 9), head(1, 0, waits=60), head(2, 0, waits=60)]
    first: Counter[int] = Counter()
    even = {number: Lane(number, "default", "number") for number in (1, 2)}
    for _ in range(80):
        wishes = shares.wishes(asked, even, 2, NOW)
        seen: set[int] = set()
        for wish in wishes:
            if wish.share not in seen and wish.head.priority == 0:
                first[wish.head.lane_id] += 1
            seen.add(wish.share)
        settle(shares, {1: 1, 2: 1})
    assert first == {1: 20, 2: 20}


def test_a_place_that_nobody_late_can_use_is_open_to_the_others() -> None:
    asked = [head(1, 9), head(1, 0, waits=60)]
    for places in (1, 2, 3):
        shares = sharing()
        for _ in range(4):
            wishes = shares.wishes(asked, LANES, places, NOW)
            assert any(wish.head.priority == 9 for wish in wishes)


def test_between_namespaces_places_go_by_weight() -> None:
    wishes = sharing().wishes([head(1), head(2), head(5)], LANES, 80, NOW)
    assert places_of(wishes) == {1: 10, 2: 20, 5: 50}


@given(st.sets(st.integers(1, 5), min_size=2), st.lists(st.integers(1, 20), min_size=50, max_size=200))
def test_over_many_claims_every_namespace_comes_to_its_weight(wanting: set[int], places: list[int]) -> None:
    shares = sharing()
    got: Counter[int] = Counter()
    for free in places:
        room = places_of(shares.wishes([head(number) for number in wanting], LANES, free, NOW))
        got += room
        settle(shares, room)
    for number in wanting:
        assert got[number] == pytest.approx(sum(places) * number / sum(wanting), abs=len(wanting))


def test_a_namespace_that_could_not_use_its_places_does_not_take_them_from_others_later() -> None:
    shares = sharing()
    asked = [head(1), head(2)]
    even = {number: Lane(number, "default", "number") for number in (1, 2)}
    for _ in range(100):
        shares.wishes(asked, even, 10, NOW)
        settle(shares, {1: 1, 2: 5})
    got: Counter[int] = Counter()
    for _ in range(20):
        room = places_of(shares.wishes(asked, even, 1, NOW))
        got += room
        settle(shares, room)
    assert got == {1: 10, 2: 10}


@given(heads, st.integers(1, 50))
def test_no_more_is_asked_for_than_there_is_room_and_no_head_twice(asked: list[Head], places: int) -> None:
    wishes = sharing().wishes(asked, LANES, places, NOW)
    assert sum(places_of(wishes).values()) == places
    assert len({wish.head for wish in wishes}) == len(wishes)
    assert all(wish.limit > 0 for wish in wishes)
    assert {wish.limit for wish in wishes if wish.share == wishes[0].share} == {wishes[0].limit}


def test_what_the_late_ones_of_a_namespace_got_counts_as_its_own() -> None:
    shares = sharing()
    asked = [head(1, 9), head(2, 9), head(1, 0, waits=60)]
    even = {number: Lane(number, "default", "number") for number in (1, 2)}
    shares.wishes(asked, even, 80, NOW)
    shares.settle({2: 30, 3: 10, 4: 40})
    assert places_of(shares.wishes(asked, even, 80, NOW)) == {1: 40, 2: 40}


# --- plain lanes and those with gates ---------------------------------------------------------------------

MIXED = {number: Lane(1, f"queue-{number}", "number", careful=number % 2 == 0) for number in range(1, 6)}


def parts_of(heads: list[Head], lanes: Mapping[int, Lane] = MIXED, places: int = 100) -> list[list[tuple[int, int]]]:
    """Lane and priority of what is asked for at once."""
    wishes = sharing().wishes(by_urgency(heads, lanes), lanes, places, NOW)
    return [[(wish.head.lane_id, wish.head.priority) for wish in part] for part in in_turn(wishes, lanes)]


def test_the_sort_with_the_more_urgent_head_is_asked_for_first() -> None:
    assert parts_of([head(1, 5), head(2, 9)]) == [[(2, 9)], [(1, 5)]]
    assert parts_of([head(1, 9), head(2, 5)]) == [[(1, 9)], [(2, 5)]]
    assert parts_of([head(1, 5, waits=2), head(2, 5, waits=3)]) == [[(2, 5)], [(1, 5)]]


def test_less_urgent_runs_of_one_sort_do_not_go_before_more_urgent_ones_of_the_other() -> None:
    assert parts_of([head(1, 9), head(1, 1), head(2, 5)]) == [[(1, 9)], [(2, 5)], [(1, 1)]]


def test_those_of_one_sort_and_one_priority_are_asked_for_at_once() -> None:
    heads = [head(1, 5, 9), head(2, 5, 8), head(3, 5, 7), head(4, 5, 6), head(5, 5, 5)]
    assert parts_of(heads) == [[(1, 5), (3, 5), (5, 5)], [(2, 5), (4, 5)]]


def test_a_namespace_with_gates_has_its_part_beside_one_without() -> None:
    lanes = {1: Lane(1, "default", "number"), 2: Lane(2, "default", "number", careful=True)}
    wishes = sharing().wishes(by_urgency([head(1, 9), head(2, 0)], lanes), lanes, 10, NOW)
    assert [[(wish.head.lane_id, wish.limit) for wish in part] for part in in_turn(wishes, lanes)] == [
        [(1, 5)],
        [(2, 5)],
    ]


@given(heads, st.integers(1, 50))
def test_every_wish_is_asked_for_once_with_others_of_its_sort_and_in_its_order(asked: list[Head], places: int) -> None:
    wishes = sharing().wishes(by_urgency(asked, MIXED), MIXED, places, NOW)
    parts = list(in_turn(wishes, MIXED))
    assert sorted(map(str, (wish for part in parts for wish in part))) == sorted(map(str, wishes))
    assert all(len({MIXED[wish.head.lane_id].careful for wish in part}) == 1 for part in parts)
    for share in {wish.share for wish in wishes}:
        in_order = [wish for part in parts for wish in part if wish.share == share]
        assert in_order == [wish for wish in wishes if wish.share == share]
    assert len(parts) <= 22
