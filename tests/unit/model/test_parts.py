"""Runs that go to several executors: the ids of their parts, who gets which, and what they come to together."""

from datetime import UTC, datetime
from uuid import UUID, uuid4

from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.ids import instant_of, scheduled_run_id, time_ordered_id
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.parts import Part, decide, is_part, outcome_of, part_id
from hourhand.model.states import Reason, RunState

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
YEARS = [datetime(year, 1, 1, tzinfo=UTC).replace(tzinfo=None) for year in (1971, 2200)]
PARENT = time_ordered_id(NOW, 12345)
QUEUED, RUNNING, DONE = RunState.QUEUED, RunState.RUNNING, RunState.SUCCEEDED


def part(place: int, node_id: int | None, state: RunState = QUEUED, *, gone: bool = False) -> Part:
    return Part(part_id(PARENT, place), place, 9, node_id, f"e{node_id}", gone, state)


def test_ids_of_parts_follow_from_their_run_and_are_known_as_such() -> None:
    assert part_id(PARENT, 0) == part_id(PARENT, 0) != part_id(PARENT, 1)
    assert instant_of(part_id(PARENT, 7)) == instant_of(PARENT), "they land in the same day of the history"
    assert is_part(part_id(PARENT, 0))
    assert len({part_id(PARENT, place) for place in range(1000)}) == 1000


@given(st.datetimes(YEARS[0], YEARS[1], timezones=st.just(UTC)), st.uuids(), st.integers(0, 2**90))
def test_no_other_run_is_taken_for_a_part(due: datetime, job_id: UUID, chance: int) -> None:
    assert not is_part(scheduled_run_id(due, job_id))
    assert not is_part(time_ordered_id(due, chance))


def test_a_part_of_all_ends_with_its_executor() -> None:
    parts = [part(0, 1, gone=True), part(1, 2), part(2, 3, RUNNING, gone=True), part(3, 4, DONE, gone=True)]
    orders = decide(parts, True, [2, 9])
    assert orders.lose == [parts[0].run_id], "what is still in somebody's hands is returned first"
    assert not orders.give


def test_a_part_of_n_goes_to_an_executor_that_has_none_yet() -> None:
    orders = decide([part(0, 1, gone=True), part(1, 2, RUNNING)], False, [2, 3])
    assert orders.give == {part_id(PARENT, 0): 3}
    assert orders.lose == ()


def test_a_part_of_n_that_lost_its_executor_goes_to_one_that_has_the_fewest_if_need_be() -> None:
    assert decide([part(0, 1, gone=True), part(1, 2, DONE)], False, [2]).give == {part_id(PARENT, 0): 2}
    assert decide([part(0, 1, gone=True)], False, []).give == {}


def test_a_part_that_never_had_an_executor_waits_for_a_further_one() -> None:
    parts = [part(0, 1, RUNNING), part(1, None), part(2, None)]
    assert decide(parts, False, [1]).give == {}
    assert decide(parts, False, [1, 7]).give == {part_id(PARENT, 1): 7}


def test_a_run_has_succeeded_when_all_its_parts_have() -> None:
    assert outcome_of([part(0, 1, DONE), part(1, 2, RUNNING)]) is None
    assert outcome_of([part(0, 1, DONE), part(1, 2, DONE)]) == Succeeded({"parts": 2, "succeeded": 2})


def test_a_run_has_failed_when_any_part_has_and_names_it() -> None:
    outcome = outcome_of([part(0, 1, DONE), part(1, 2, RunState.LOST), part(2, 3, RunState.CANCELLED)])
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == (Reason.PARTS, False)
    assert outcome.error == "2 of 3 parts did not succeed: 1 (lost on e2), 2 (cancelled on e3)"
    assert outcome.result["parts"] == 3
    assert [each["index"] for each in outcome.result["not_succeeded"]] == [1, 2]


def test_what_is_told_of_many_failed_parts_is_bounded() -> None:
    outcome = outcome_of([part(place, place, RunState.FAILED) for place in range(900)])
    assert isinstance(outcome, Failed)
    assert len(outcome.result["not_succeeded"]) == 20
    assert outcome.error.endswith("and 895 more")


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(1, 6)), st.sampled_from([QUEUED, RUNNING, DONE]), st.booleans())
    ),
    st.lists(st.integers(1, 8), unique=True),
)
def test_only_parts_that_nobody_holds_are_given_and_only_to_those_who_are_able(
    made: list[tuple[int | None, RunState, bool]], able: list[int]
) -> None:
    parts = [
        Part(uuid4(), place, 99, node_id, None, gone and node_id is not None, state)
        for place, (node_id, state, gone) in enumerate(made)
    ]
    by_id = {each.run_id: each for each in parts}
    orders = decide(parts, False, able)
    assert set(orders.give.values()) <= set(able)
    for run_id in orders.give:
        assert by_id[run_id].state is QUEUED
        assert by_id[run_id].gone or by_id[run_id].node_id is None
