"""What becomes of a run that falls due while earlier ones of its job are not finished: every policy, every standing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.overlap import (
    Fate,
    Judgement,
    Sibling,
    judge,
    policy_for_caught_up,
    policy_for_nearly_caught_up,
)
from hourhand.model.policy import OnNextDue, Overlap
from hourhand.model.states import LIVE_STATES, RunState

RUNNING = Sibling(UUID(int=1), RunState.RUNNING)
ENDING = Sibling(UUID(int=2), RunState.CANCELLING)
RETRYING = Sibling(UUID(int=3), RunState.QUEUED, retrying=True)
WAITING = Sibling(UUID(int=4), RunState.WAITING, held_back=True)
WAITING_TOO = Sibling(UUID(int=5), RunState.WAITING, held_back=True)

siblings = st.lists(
    st.builds(
        Sibling,
        st.integers(1, 99).map(lambda number: UUID(int=number)),
        st.sampled_from(LIVE_STATES),
        st.booleans(),
        st.booleans(),
    ),
    unique_by=lambda sibling: sibling.run_id,
    max_size=6,
)


@pytest.mark.parametrize(
    ("policy", "earlier", "fate"),
    [
        (Overlap.SKIP, [], Fate.GO),
        (Overlap.SKIP, [RUNNING], Fate.SKIP),
        (Overlap.SKIP, [ENDING], Fate.SKIP),
        (Overlap.SKIP, [RETRYING], Fate.SKIP),
        (Overlap.SKIP, [WAITING], Fate.SKIP),
        (Overlap.QUEUE_ONE, [], Fate.GO),
        (Overlap.QUEUE_ONE, [RUNNING], Fate.WAIT),
        (Overlap.QUEUE_ONE, [RUNNING, RETRYING], Fate.WAIT),
        (Overlap.QUEUE_ONE, [RUNNING, WAITING], Fate.SKIP),
        (Overlap.QUEUE_ONE, [WAITING], Fate.SKIP),
        (Overlap.QUEUE_ALL, [], Fate.GO),
        (Overlap.QUEUE_ALL, [RUNNING], Fate.WAIT),
        (Overlap.QUEUE_ALL, [RUNNING, WAITING], Fate.WAIT),
        (Overlap.QUEUE_ALL, [RUNNING, WAITING, WAITING_TOO], Fate.SKIP),
        (Overlap.CANCEL_RUNNING, [], Fate.GO),
        (Overlap.CANCEL_RUNNING, [RUNNING, WAITING, WAITING_TOO], Fate.WAIT),
        (Overlap.ALLOW, [], Fate.GO),
        (Overlap.ALLOW, [RUNNING, ENDING, WAITING], Fate.GO),
    ],
)
def test_a_policy_decides_by_who_is_not_finished(policy: Overlap, earlier: list[Sibling], fate: Fate) -> None:
    assert judge(policy, 2, OnNextDue.WAIT, earlier).fate is fate


def test_what_came_after_a_due_time_was_not_in_its_way() -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    before, after = (replace(RUNNING, ready_at=due + timedelta(seconds=seconds)) for seconds in (-1, 1))
    few_wait = {Overlap.SKIP, Overlap.QUEUE_ONE}
    for policy in few_wait:
        assert policy_for_caught_up(policy, due, [after]) is Overlap.QUEUE_ALL
        assert policy_for_caught_up(policy, due, [after, before]) is policy
    for policy in set(Overlap) - few_wait:
        assert policy_for_caught_up(policy, due, [after]) is policy


def test_one_on_time_waits_for_what_was_made_after_its_due_time_and_for_nothing_else() -> None:
    due = datetime(2030, 1, 1, tzinfo=UTC)
    after = replace(RUNNING, ready_at=due + timedelta(seconds=1), first_try=True)
    in_the_way = (replace(after, ready_at=due), replace(after, first_try=False), replace(after, ready_at=None))
    for policy in (Overlap.SKIP, Overlap.QUEUE_ONE):
        assert policy_for_nearly_caught_up(policy, due, [after]) is Overlap.QUEUE_ALL
        assert policy_for_nearly_caught_up(policy, due, []) is policy
        for other in in_the_way:
            assert policy_for_nearly_caught_up(policy, due, [after, other]) is policy
    assert policy_for_nearly_caught_up(Overlap.CANCEL_RUNNING, due, [after]) is Overlap.CANCEL_RUNNING


def test_the_one_that_queue_one_has_wait_is_one_on_time_where_others_are_caught_up() -> None:
    line = [RUNNING, *(replace(sibling, caught_up=True) for sibling in (WAITING, WAITING_TOO))]
    assert judge(Overlap.QUEUE_ONE, 1, OnNextDue.WAIT, line).fate is Fate.WAIT
    assert judge(Overlap.QUEUE_ONE, 1, OnNextDue.WAIT, [*line, WAITING]).fate is Fate.SKIP
    assert judge(Overlap.QUEUE_ONE, 1, OnNextDue.WAIT, line, caught_up=True).fate is Fate.SKIP
    assert judge(Overlap.SKIP, 1, OnNextDue.WAIT, line).fate is Fate.SKIP


def test_the_newest_run_has_earlier_ones_cancelled_once() -> None:
    judged = judge(Overlap.CANCEL_RUNNING, 2, OnNextDue.WAIT, [RUNNING, ENDING, RETRYING, WAITING])
    assert judged.cancel == [RUNNING.run_id, RETRYING.run_id, WAITING.run_id]
    assert (judged.fate, *judged.supersede) == (Fate.WAIT,)


@pytest.mark.parametrize("policy", Overlap)
def test_a_run_that_waits_for_a_retry_gives_way_where_the_job_says_so(policy: Overlap) -> None:
    judged = judge(policy, 2, OnNextDue.SUPERSEDE, [RETRYING])
    assert judged == Judgement(Fate.GO, supersede=[RETRYING.run_id])


def test_a_run_that_is_skipped_takes_nobodys_place() -> None:
    judged = judge(Overlap.SKIP, 2, OnNextDue.SUPERSEDE, [RETRYING, RUNNING])
    assert judged == Judgement(Fate.SKIP)


@given(st.sampled_from(Overlap), st.integers(1, 3), st.sampled_from(OnNextDue), siblings)
def test_whoever_is_ended_was_in_the_way_and_a_skipped_run_ends_nobody(
    policy: Overlap, waiting_max: int, on_next_due: OnNextDue, earlier: list[Sibling]
) -> None:
    judged = judge(policy, waiting_max, on_next_due, earlier)
    ended = [*judged.cancel, *judged.supersede]
    assert len(ended) == len(set(ended))
    assert set(ended) <= {sibling.run_id for sibling in earlier}
    assert not ended or judged.fate is not Fate.SKIP
    assert earlier or judged.fate is Fate.GO
    if policy is Overlap.ALLOW:
        assert judged.fate is Fate.GO
