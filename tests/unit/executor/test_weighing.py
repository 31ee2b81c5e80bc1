"""What fits beside what is taken, who gets room first, and that every last bit of it comes back."""

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.executor.capacity import Capacity, Kept
from hourhand.executor.settings import ExecutorSettings
from hourhand.executor.weighing import Keeping, apart, things_of
from hourhand.model.demands import NO_DEMANDS, Demands
from hourhand.ports.job_kind import SlotClass
from hourhand.ports.stores import Head, Lane, Wish

INLINE, PROCESS = SlotClass.INLINE, SlotClass.PROCESS
NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
SLOTS = {INLINE: 10, PROCESS: 4}


def test_as_many_fit_as_the_scarcest_of_all_that_is_taken_allows() -> None:
    capacity = Capacity(SLOTS, {"cpu": 2.0, "memory": 4e9, "gpu": 1})
    assert capacity.fitting(INLINE, Demands(cpu=0.5)) == 4
    assert capacity.fitting(INLINE, Demands(cpu=0.1)) == 10, "places count, too"
    assert capacity.fitting(INLINE, Demands(cpu=0.5, memory=1_500_000_000)) == 2
    assert capacity.fitting(INLINE, Demands(custom={"gpu": 1})) == 1
    assert capacity.fitting(INLINE, Demands(custom={"fpga": 1})) == 0
    assert capacity.fitting(PROCESS, Demands(slots=3)) == 1
    capacity.take_for(INLINE, Demands(cpu=0.5, slots=4), 2)
    assert capacity.free(INLINE) == 2
    assert capacity.fitting(INLINE, Demands(cpu=0.5)) == 2


def test_tenths_of_cores_add_up() -> None:
    capacity = Capacity({INLINE: 100, PROCESS: 0}, {"cpu": 1.0})
    tenth = Demands(cpu=0.1)
    for _ in range(10):
        assert capacity.fitting(INLINE, tenth) >= 1
        capacity.take_for(INLINE, tenth, 1)
    assert capacity.fitting(INLINE, tenth) == 0
    for fence in range(10):
        capacity.hold(fence + 1, uuid4(), tenth)
    for fence in range(10):
        capacity.give_back(INLINE, fence + 1)
    assert capacity.things()["cpu"] == {"total": 1.0, "used": 0.0, "by": []}


def test_what_could_never_fit_is_not_for_it() -> None:
    capacity = Capacity(SLOTS, {"memory": 4e9})
    capacity.take_for(INLINE, Demands(memory=4_000_000_000), 1)
    assert capacity.could_carry(INLINE, Demands(memory=4_000_000_000)), "later"
    assert not capacity.could_carry(INLINE, Demands(memory=4_000_000_001))
    assert not capacity.could_carry(INLINE, Demands(custom={"gpu": 1}))
    assert not capacity.could_carry(PROCESS, Demands(slots=5))


def test_others_get_only_what_is_left_over_by_what_is_kept() -> None:
    capacity = Capacity(SLOTS, {"memory": 4e9, "cpu": 2})
    kept = Kept(PROCESS, Demands(memory=3_000_000_000, slots=2))
    assert capacity.fitting(INLINE, Demands(memory=500_000_000), kept) == 2
    assert capacity.fitting(INLINE, Demands(memory=1_500_000_000), kept) == 0
    assert capacity.fitting(INLINE, Demands(cpu=1.0), kept) == 2, "which it does not want"
    assert (kept.places(PROCESS), kept.places(INLINE)) == (2, 0)
    assert Kept(PROCESS, Demands(memory=1)).places(PROCESS) == 0


def test_an_executor_tells_who_holds_the_most() -> None:
    capacity = Capacity(SLOTS, {"memory": 4e9})
    for fence in range(1, 8):
        demands = Demands(memory=fence * 1_000_000)
        capacity.take_for(INLINE, demands, 1)
        capacity.hold(fence, UUID(int=fence), demands)
    told = capacity.things()["memory"]
    assert told["used"] == 28_000_000
    assert told["by"] == [[str(UUID(int=fence)), fence * 1_000_000] for fence in (7, 6, 5, 4, 3)]


def test_whoever_wanted_room_in_vain_is_woken_when_something_comes_back() -> None:
    woken: list[int] = []
    capacity = Capacity(SLOTS, {"gpu": 1})
    capacity.wake = lambda: woken.append(1)
    gpu = Demands(custom={"gpu": 1})
    capacity.take_for(INLINE, gpu, 1)
    capacity.hold(7, uuid4(), gpu)
    capacity.take(INLINE, 1)
    capacity.want(INLINE, gpu)
    capacity.give_back(INLINE, 8)
    assert woken == [], "a place alone is no help"
    capacity.give_back(INLINE, 7)
    assert woken == [1]


DEMANDS = st.builds(
    Demands,
    cpu=st.one_of(st.none(), st.sampled_from([0.1, 0.25, 0.5, 1.0, 3.0])),
    memory=st.one_of(st.none(), st.integers(1_000_000, 5_000_000_000)),
    slots=st.integers(1, 5),
    custom=st.dictionaries(st.sampled_from(["gpu", "license"]), st.integers(1, 3)),
)


@given(st.lists(st.tuples(DEMANDS, st.sampled_from(SlotClass), st.booleans()), max_size=60), st.integers())
def test_never_more_is_taken_than_there_is_and_in_the_end_nothing_is(
    steps: list[tuple[Demands, SlotClass, bool]], seed: int
) -> None:
    totals = {"cpu": 4.0, "memory": 8e9, "gpu": 4.0, "license": 2.0}
    capacity, chance = Capacity(SLOTS, totals), random.Random(seed)
    running: dict[int, SlotClass] = {}
    for fence, (demands, slot_class, ends) in enumerate(steps, 1):
        if capacity.fitting(slot_class, demands):
            capacity.take_for(slot_class, demands, 1)
            capacity.hold(fence, uuid4(), demands)
            running[fence] = slot_class
        if ends and running:
            ended = chance.choice(list(running))
            capacity.give_back(running.pop(ended), ended)
        for told in capacity.things().values():
            assert 0 <= told["used"] <= told["total"]
        for told in capacity.facts().values():
            assert 0 <= told["used"] <= told["slots"]
    for ended, slot_class in running.items():
        capacity.give_back(slot_class, ended)
    assert all(told["used"] == 0 for told in (*capacity.things().values(), *capacity.facts().values()))


LANES = {
    1: Lane(1, "default", "number"),
    2: Lane(1, "default", "number", demands=Demands(memory=3_000_000)),
    3: Lane(1, "default", "number", demands=Demands(labels=("gpu",))),
    4: Lane(1, "default", "number", demands=Demands(slots=3)),
}


def head(lane_id: int, waited: float) -> Head:
    return Head(lane_id, 5, NOW - timedelta(seconds=waited))


def test_room_is_kept_for_the_one_that_weighs_and_has_waited_longest() -> None:
    keeping = Keeping(timedelta(seconds=30), timedelta(seconds=600))
    assert keeping.choose([head(1, 99), head(2, 29), head(3, 99)], LANES, NOW) is None
    assert keeping.choose([head(1, 99), head(2, 31), head(4, 40)], LANES, NOW) == head(4, 40)


def test_after_a_while_the_others_have_their_turn_for_as_long() -> None:
    keeping = Keeping(timedelta(seconds=30), timedelta(seconds=600))
    late = [head(2, 31)]
    kept = [keeping.choose(late, LANES, NOW + timedelta(seconds=passed)) is not None for passed in (0, 599, 601, 1199)]
    assert kept == [True, True, False, False]
    assert keeping.choose(late, LANES, NOW + timedelta(seconds=1201)) is not None
    another = [Head(2, 5, NOW - timedelta(seconds=30.5))]
    assert keeping.choose(another, LANES, NOW + timedelta(seconds=1900)) is not None, "its time begins anew"


def test_what_takes_a_place_each_is_asked_for_together_and_what_weighs_alone() -> None:
    wishes = [Wish(head(lane_id, 1), 2, 10) for lane_id in (1, 3, 2, 1, 4, 2)]
    assert [[wish.head.lane_id for wish in part] for part in apart(wishes, LANES)] == [[1, 3], [2], [1], [4], [2]]


def test_what_is_configured_counts_and_else_the_machine() -> None:
    has = things_of(ExecutorSettings())
    assert has["cpu"] > 0
    assert has["memory"] > 1e6
    assert things_of(ExecutorSettings(resources=("gpu=2", "memory=8GB", "cpu=1.5"))) == {
        "gpu": 2,
        "memory": 8e9,
        "cpu": 1.5,
    }


@pytest.mark.parametrize("demands", [NO_DEMANDS, Demands(labels=("gpu",))])
def test_labels_alone_do_not_weigh(demands: Demands) -> None:
    assert not demands.weighs
