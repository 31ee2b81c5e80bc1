"""What an executor asks for: by priority, by weight of the namespaces, and nobody waits for ever."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.executor.wishes import Sharing
from hourhand.ports.stores import Head, Lane, Wish

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
BOUND = timedelta(seconds=30)
LANES = {number: Lane(number, "default", "number", weight=number) for number in range(1, 6)}
"""Lane, namespace and weight have one number."""


def head(lane: int = 1, priority: int = 5, waits: float = 1.0) -> Head:
    return Head(lane, priority, NOW - timedelta(seconds=waits))


def sharing() -> Sharing:
    return Sharing(BOUND)


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
    assert [(wish.head, wish.limit) for wish in wishes] == [(asked[0], 75), (asked[1], 75), (asked[2], 25)]
    assert wishes[0].share == wishes[1].share != wishes[2].share


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
            late += wishes[-1].limit
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
        shares.settle({1: 1, 2: 1})
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
        shares.settle(room)
    for number in wanting:
        assert got[number] == pytest.approx(sum(places) * number / sum(wanting), abs=len(wanting))


def test_a_namespace_that_could_not_use_its_places_does_not_take_them_from_others_later() -> None:
    shares = sharing()
    asked = [head(1), head(2)]
    even = {number: Lane(number, "default", "number") for number in (1, 2)}
    for _ in range(100):
        shares.wishes(asked, even, 10, NOW)
        shares.settle({1: 1, 2: 5})
    got: Counter[int] = Counter()
    for _ in range(20):
        room = places_of(shares.wishes(asked, even, 1, NOW))
        got += room
        shares.settle(room)
    assert got == {1: 10, 2: 10}


@given(heads, st.integers(1, 50))
def test_no_more_is_asked_for_than_there_is_room_and_no_head_twice(asked: list[Head], places: int) -> None:
    wishes = sharing().wishes(asked, LANES, places, NOW)
    assert sum(places_of(wishes).values()) == places
    assert len({wish.head for wish in wishes}) == len(wishes)
    assert all(wish.limit > 0 for wish in wishes)
    assert {wish.limit for wish in wishes if wish.share == wishes[0].share} == {wishes[0].limit}
