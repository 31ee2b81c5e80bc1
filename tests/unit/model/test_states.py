"""The tables of states, events and steps, held to what they promise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.states import (
    EXECUTING_STATES,
    FINAL_STATES,
    LIVE_STATES,
    STEPS,
    IllegalStep,
    RunEvent,
    RunState,
    advance,
    sources,
)

states = st.sampled_from(RunState)
events = st.sampled_from(RunEvent)


@given(states, events)
def test_a_step_is_either_in_the_table_or_refused(state: RunState, event: RunEvent) -> None:
    if (state, event) in STEPS:
        assert advance(state, event) is STEPS[state, event]
    else:
        with pytest.raises(IllegalStep, match=state.word):
            advance(state, event)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0].word}-{step[1]}")
def test_every_step_leads_from_a_live_state(step: tuple[RunState, RunEvent]) -> None:
    assert step[0] in LIVE_STATES


@given(st.sampled_from(FINAL_STATES), events)
def test_a_final_state_has_no_way_out(state: RunState, event: RunEvent) -> None:
    with pytest.raises(IllegalStep):
        advance(state, event)


@given(st.lists(events, max_size=30))
def test_a_run_that_takes_any_road_never_leaves_its_final_state(road: list[RunEvent]) -> None:
    state, ended_as = RunState.QUEUED, None
    for event in road:
        if (state, event) in STEPS:
            assert ended_as is None
            state = advance(state, event)
            ended_as = state if state.is_final else None
    assert ended_as is None or state is ended_as


@given(events)
def test_sources_are_the_states_in_which_the_event_is_allowed(event: RunEvent) -> None:
    found = sources(event)
    assert len(found) == len(set(found))
    assert set(found) == {state for state in RunState if (state, event) in STEPS}


def test_every_event_leads_somewhere_and_every_state_can_be_reached() -> None:
    assert all(sources(event) for event in RunEvent)
    assert {*STEPS.values()} == set(RunState)


def test_every_live_state_can_reach_an_end() -> None:
    reached = set(FINAL_STATES)
    while grown := {source for (source, _), target in STEPS.items() if target in reached} - reached:
        reached |= grown
    assert reached == set(RunState)


def test_once_cancel_was_acknowledged_a_run_ends_as_cancelled_only() -> None:
    assert {target for (source, _), target in STEPS.items() if source is RunState.CANCELLING} == {RunState.CANCELLED}


def test_only_runs_that_an_executor_holds_can_succeed() -> None:
    assert set(sources(RunEvent.SUCCEED)) < set(EXECUTING_STATES)
    assert RunState.CANCELLING not in sources(RunEvent.SUCCEED)


def test_live_and_final_states_are_all_states_and_share_none() -> None:
    assert sorted(LIVE_STATES + FINAL_STATES) == sorted(RunState)
    assert max(LIVE_STATES) < min(FINAL_STATES)


@given(states)
def test_a_word_is_read_back_as_its_state(state: RunState) -> None:
    assert RunState.from_word(state.word) is state
