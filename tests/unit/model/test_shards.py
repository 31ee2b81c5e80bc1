"""How shards are shared out among schedulers."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model.ids import SHARDS
from hourhand.model.shards import ranges_of, share_out

crews = st.lists(st.integers(1, 1_000_000), min_size=1, max_size=8, unique=True)
few = settings(max_examples=25, deadline=None)  # each example weighs thousands of pairs


@few
@given(crews)
def test_every_shard_has_an_owner_who_is_there(node_ids: list[int]) -> None:
    owners = share_out(node_ids)
    assert sorted(owners) == list(range(SHARDS)) == list(range(1024))
    assert set(owners.values()) <= set(node_ids)


@few
@given(crews, st.randoms())
def test_the_order_in_which_schedulers_are_named_does_not_matter(node_ids: list[int], random: object) -> None:
    shuffled = sorted(node_ids, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert share_out(shuffled) == share_out(node_ids)


@few
@given(crews.filter(lambda crew: len(crew) > 1), st.data())
def test_when_one_leaves_only_its_shards_move(node_ids: list[int], data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(node_ids))
    before, after = share_out(node_ids), share_out([node for node in node_ids if node != leaver])
    assert {shard for shard in range(SHARDS) if before[shard] != after[shard]} == {
        shard for shard, owner in before.items() if owner == leaver
    }


@few
@given(crews, st.integers(1_000_001, 2_000_000))
def test_one_who_joins_takes_shards_and_nobody_else_does(node_ids: list[int], newcomer: int) -> None:
    before, after = share_out(node_ids), share_out([*node_ids, newcomer])
    assert {after[shard] for shard in range(SHARDS) if before[shard] != after[shard]} <= {newcomer}


@pytest.mark.parametrize("count", range(2, 9))
@pytest.mark.parametrize("first", [1, 40, 1_000])
def test_shares_are_within_a_quarter_of_each_other_for_two_to_eight_schedulers(count: int, first: int) -> None:
    shares = Counter(share_out(range(first, first + count)).values())
    fair = SHARDS / count
    assert len(shares) == count
    assert all(0.75 * fair <= share <= 1.25 * fair for share in shares.values()), shares


def test_nobody_owns_anything_when_nobody_is_there() -> None:
    assert share_out([]) == {}


def test_shards_are_told_as_ranges() -> None:
    assert ranges_of([]) == []
    assert ranges_of([0, 1, 2, 7, 9, 10]) == ["0-2", "7", "9-10"]
    assert ranges_of(range(1024)) == ["0-1023"]
