"""Why a run waits, where it is, why it ended so: from a snapshot to sentences."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hourhand.model.ends import REASONS, end_of
from hourhand.model.explain import Explanation, GateName, Passage, explain
from hourhand.model.gates import Starts, slice_of
from hourhand.model.node_state import NodeFacts, NodeState, Slots
from hourhand.model.policy import Rate
from hourhand.model.retry import RetryPolicy
from hourhand.model.snapshot import AHEAD_MAX, Competition, Executor, GateFacts, Holder, Sibling, Snapshot
from hourhand.model.states import FINAL_STATES, JobState, Reason, RunState

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
RUN, JOB, OTHER = UUID(int=9), UUID(int=2), UUID(int=3)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def executor(name: str = "e1", state: NodeState = NodeState.WORKING, used: int = 0, **facts: Any) -> Executor:
    said = {"queues": ("default",), "offers": {"command": "process"}, "slots": {"process": Slots(used, 4)}} | facts
    return Executor(name, state, NodeFacts(**said), at(9))


READY = Snapshot(
    now=NOW,
    run_id=RUN,
    job_id=JOB,
    job_name="nightly",
    namespace="team-a",
    state=RunState.QUEUED,
    scheduled_for=at(-12),
    ready_at=at(-12),
    queue="default",
    needs="command",
    executors=[executor()],
)


def explained(**fields: Any) -> Explanation:
    return explain(replace(READY, **fields))


def of_gate(explanation: Explanation, gate: GateName) -> Passage:
    return next(passage for passage in explanation.gates if passage.gate is gate)


def held(explanation: Explanation) -> list[GateName]:
    return [passage.gate for passage in explanation.gates if not passage.passed]


def test_nothing_holds_a_run_that_is_about_to_be_taken() -> None:
    explanation = explained()

    assert explanation.summary == "nothing holds it back: an executor takes it within a moment"
    assert held(explanation) == []
    assert [passage.gate for passage in explanation.gates] == ["job", "due", "queue", "executor", "slot", "priority"]
    assert of_gate(explanation, GateName.DUE).detail == "was due at 2030-01-07 11:59:48 UTC, 12s ago"


def test_a_start_that_is_spread_is_told_apart_from_the_due_time() -> None:
    explanation = explained(scheduled_for=at(-10), ready_at=at(20))

    assert held(explanation) == [GateName.DUE]
    assert of_gate(explanation, GateName.DUE).detail == (
        "due at 2030-01-07 11:59:50 UTC and starts by its jitter at 2030-01-07 12:00:20 UTC, in 20s"
    )


def test_gates_are_told_in_the_order_in_which_they_are_passed() -> None:
    gate = GateFacts(7, "key", "customer-7", 3, 3, Rate(5, 1.0))
    explanation = explained(
        attempt=1, gates=[gate], executors=[executor(used=4)], competition=Competition(3, 1, 2),
        state=RunState.WAITING, waits_on=0,
    )  # fmt: skip
    queued = explained(attempt=1, gates=[gate], executors=[executor(used=4)], competition=Competition(3, 1, 2))

    for each, count in ((explanation, 9), (queued, 10)):  # one that waits its turn does not compete for slots
        told = [passage.gate for passage in each.gates]
        assert told == sorted(told, key=[*GateName].index)
        assert len(told) == count


def test_a_run_that_is_not_due_says_when_it_is() -> None:
    explanation = explained(scheduled_for=at(12), ready_at=at(12))

    assert explanation.summary == "is due at 2030-01-07 12:00:12 UTC, in 12s"
    assert of_gate(explanation, GateName.DUE) == Passage(
        GateName.DUE, False, "due at 2030-01-07 12:00:12 UTC, in 12s", at(12)
    )


def test_a_run_between_two_attempts_says_until_when_it_backs_off() -> None:
    explanation = explained(attempt=2, ready_at=at(90), reason="exit_code")

    assert explanation.summary == "waits for its next attempt until 2030-01-07 12:01:30 UTC, in 1m30s"
    retry = of_gate(explanation, GateName.RETRY)
    assert retry.detail == "back-off after attempt 2 (exit_code) until 2030-01-07 12:01:30 UTC, in 1m30s"
    assert retry.until == at(90)
    assert of_gate(explained(attempt=2), GateName.RETRY).passed


def test_a_run_behind_an_earlier_one_names_it() -> None:
    earlier = [
        Sibling(OTHER, RunState.RUNNING, at(-60), at(-59)),
        Sibling(UUID(int=4), RunState.WAITING, at(-40), None),
        Sibling(UUID(int=10), RunState.WAITING, at(40), None),
    ]
    explanation = explained(state=RunState.WAITING, waits_on=0, siblings=earlier)

    assert explanation.summary == "waits for an earlier run of its job"
    assert of_gate(explanation, GateName.OVERLAP).detail == (
        f"waits for run {OTHER} of the same job (running since 2030-01-07 11:59:01 UTC), and 1 more"
    )


def test_a_run_whose_turn_has_come_is_let_go_soon() -> None:
    assert "within a second" in explained(state=RunState.WAITING, waits_on=0).summary


def test_a_paused_queue_tells_since_when_by_whom_and_why() -> None:
    explanation = explained(
        queue_paused_at=at(-600), queue_paused_by="ada", queue_pause_reason="the disk is being replaced"
    )

    assert explanation.summary == "waits because queue default is paused: the disk is being replaced"
    assert of_gate(explanation, GateName.QUEUE).detail == (
        "queue default is paused since 2030-01-07 11:50:00 UTC by ada: the disk is being replaced"
    )
    assert explanation.advice == "hourhand queue resume default"


def test_a_need_that_nobody_offers_is_named_with_the_nearest_offers() -> None:
    offers = {"python:reports.built": "inline", "command": "process"}
    explanation = explained(needs="python:reports.build", executors=[executor(offers=offers), executor("e2")])

    assert explanation.summary == "waits for an executor that offers python:reports.build"
    assert of_gate(explanation, GateName.EXECUTOR).detail == (
        "needs python:reports.build: no live executor offers it; nearest: python:reports.built; "
        "2 executors serve this queue"
    )
    assert GateName.SLOT not in [passage.gate for passage in explanation.gates]


def test_a_need_that_is_offered_in_another_queue_only_says_so() -> None:
    there = executor("there", queues=("reports",), offers={"python:a": "inline"})
    detail = of_gate(explained(needs="python:a", executors=[executor(), there]), GateName.EXECUTOR).detail

    assert (
        detail
        == "needs python:a: no live executor offers it; offered in other queues by there; 1 executor serves this queue"
    )


def test_a_queue_that_nobody_serves_and_a_cluster_without_executors_are_told_apart() -> None:
    assert explained(queue="reports").summary == "waits for an executor that serves queue reports"
    assert explained(queue="reports").advice == (
        "start one: hourhand executor --database URL --queue reports; "
        "or, with everything on one machine: HOURHAND_EXECUTOR_QUEUES='*' hourhand up"
    )
    nobody = of_gate(explained(queue="reports"), GateName.EXECUTOR).detail
    assert nobody == "no live executor serves queue reports; 1 executor serves others"
    assert explained(executors=[]).summary == "waits for an executor: none is alive"


@pytest.mark.parametrize(
    ("state", "word"),
    [(NodeState.CORDONED, "cordoned"), (NodeState.DRAINING, "draining"), (NodeState.LATE, "late")],
)
def test_executors_that_take_nothing_are_no_help(state: NodeState, word: str) -> None:
    alone = explained(executors=[executor(state=state)])
    both = explained(executors=[executor(state=state), executor("e2", state)])

    assert alone.summary == f"waits for an executor: the executor that offers it is {word}"
    assert of_gate(both, GateName.SLOT).detail == f"all 2 executors that offer it are {word}"
    assert alone.advice == (None if state is NodeState.LATE else "hourhand node resume e1")


def test_full_executors_say_how_full_they_are() -> None:
    explanation = explained(executors=[executor(used=4), executor("e2", used=4)], competition=Competition(12))

    assert explanation.summary == "waits for a free slot: all 2 executors that offer it are full: 8 of 8 slots"
    assert held(explanation) == [GateName.SLOT, GateName.PRIORITY]
    assert of_gate(explanation, GateName.PRIORITY).detail == "12 of higher or equal priority ahead of it"


def test_executors_that_are_silent_or_late_are_not_said_to_take_it_in_a_moment() -> None:
    silent = executor(lease_seconds=17.0)  # its lease has 9 s left
    late = executor("e2", late_loops=("receive",))

    assert explained(executors=[silent, executor("e2")]).summary.startswith("nothing holds it back")
    assert explained(executors=[executor(lease_seconds=15.0)]).summary.startswith("nothing holds it back")
    assert explained(executors=[replace(silent, lease_until=at(8))]).summary == (
        "waits for an executor: nothing was heard of e1 for 9s"
    )
    assert of_gate(explained(executors=[late]), GateName.SLOT) == Passage(
        GateName.SLOT, False, "4 of 4 slots are free on 1 executor, but e2 is late with its work (receive)"
    )


def test_offers_that_only_begin_alike_are_not_near() -> None:
    offers = {"python:samples.fail": "inline", "command": "process"}
    detail = of_gate(explained(needs="python:no.such", executors=[executor(offers=offers)]), GateName.EXECUTOR).detail

    assert "nearest" not in detail


def test_only_the_room_that_a_run_would_take_counts() -> None:
    rooms = {"process": Slots(4, 4), "inline": Slots(0, 90)}
    assert held(explained(executors=[executor(slots=rooms)])) == [GateName.SLOT]


def test_many_runs_ahead_are_not_counted_to_the_end() -> None:
    explanation = explained(competition=Competition(AHEAD_MAX + 1))
    assert of_gate(explanation, GateName.PRIORITY).detail.startswith("more than 1000 ")


def test_a_namespace_that_shares_with_others_says_its_part() -> None:
    explanation = explained(competition=Competition(0, 1, 3))
    assert of_gate(explanation, GateName.SHARE).detail == (
        "namespace team-a has 1 of 4 parts among those that wait for these slots"
    )


def test_a_full_limit_names_its_holders_and_what_is_not_named_is_counted() -> None:
    holders = [Holder(OTHER, "import", at(-5))]
    gate = GateFacts(7, "key", "customer-7", 3, 3, holders=holders)
    explanation = explained(state=RunState.WAITING, waits_on=7, gates=[gate])

    assert explanation.summary == "waits for a slot of limit customer-7"
    assert of_gate(explanation, GateName.LIMIT).detail == (
        f"limit customer-7: 3 of 3 held by run {OTHER} (job import, since 2030-01-07 11:59:55 UTC), 2 more"
    )


def test_a_run_that_waits_for_a_place_tells_how_many_wait_before_it() -> None:
    gate = GateFacts(7, "key", "customer-7", 3, 3)
    third = explained(state=RunState.WAITING, waits_on=7, gates=[replace(gate, ahead=2)])
    first = explained(state=RunState.WAITING, waits_on=7, gates=[gate])

    assert third.summary == "waits for a slot of limit customer-7; 2 ahead of it"
    assert of_gate(third, GateName.PRIORITY) == Passage(
        GateName.PRIORITY, False, "priority 5: 2 ahead of it in the line for the limit customer-7"
    )
    assert of_gate(first, GateName.PRIORITY).detail == (
        "priority 5: it is the next in the line for the limit customer-7"
    )


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("job", str(JOB), "limit of job nightly"),
        ("queue", "default", "limit of queue default"),
        ("namespace", "", "limit of namespace team-a"),
    ],
)
def test_limits_are_called_by_what_they_limit(kind: str, name: str, told: str) -> None:
    gate = GateFacts(7, kind, name, 2, 2)
    assert explained(state=RunState.WAITING, waits_on=7, gates=[gate]).summary == f"waits for a slot of the {told}"


def test_of_several_gates_the_one_it_waits_on_is_the_answer() -> None:
    gates = [GateFacts(6, "job", "", 1, 1), GateFacts(7, "key", "k", 1, 1)]
    explanation = explained(state=RunState.WAITING, waits_on=7, gates=gates, executors=[executor(used=4)])

    assert explanation.summary == "waits for a slot of limit k"
    assert held(explanation) == [GateName.SLOT, GateName.LIMIT, GateName.LIMIT]


def test_a_place_that_has_just_become_free_is_given_within_a_second() -> None:
    gate = GateFacts(7, "key", "k", 3, 2)
    detail = of_gate(explained(state=RunState.WAITING, waits_on=7, gates=[gate]), GateName.LIMIT).detail
    assert detail == "limit k: 2 of 3 held: one has just become free, and it is let go within a second"


def test_a_gate_that_is_gone_is_not_the_answer() -> None:
    assert explained(state=RunState.WAITING, waits_on=99).summary.startswith("nothing holds it back")


def test_a_rate_says_when_the_next_start_is() -> None:
    rate = Rate(2, 60.0)
    full = Starts(slice_of(rate, NOW), (2,))
    explanation = explained(gates=[GateFacts(7, "queue", "default", rate=rate, starts=full)])

    passage = of_gate(explanation, GateName.RATE)
    assert not passage.passed
    assert passage.until is not None
    assert at(55) < passage.until < at(65)
    assert passage.detail.startswith("queue default may start 2/m: next start at 2030-01-07 12:01:0")
    assert explanation.summary.startswith("waits for the rate limit of queue default: next start at ")


def test_a_run_that_a_rate_gave_another_time_waits_for_the_rate_and_not_for_its_due_time() -> None:
    gate = GateFacts(7, "job", "", rate=Rate(2, 60.0))
    explanation = explained(waits_on=7, ready_at=at(40), gates=[gate])

    assert held(explanation) == [GateName.RATE]
    assert of_gate(explanation, GateName.RATE).until == at(40)
    assert of_gate(explained(gates=[gate]), GateName.RATE).passed


def test_a_paused_job_does_not_hold_a_run_that_is_made_and_a_cancelled_one_does() -> None:
    paused = explained(job_state=JobState.PAUSED, pause_reason="holiday")
    assert held(paused) == []
    assert "paused (holiday)" in of_gate(paused, GateName.JOB).detail
    assert explained(job_state=JobState.CANCELLED).summary == "its job is cancelled: it will not start"


def test_a_run_that_is_given_up_some_time_says_when() -> None:
    assert explained(expires_at=at(30)).expires_at == at(30)
    assert explained(expires_at=at(30), state=RunState.RUNNING).expires_at is None


# --- in hand ----------------------------------------------------------------------------------------------


def test_a_running_run_says_where_and_since_when() -> None:
    gate = GateFacts(7, "key", "k", 3, 2)
    explanation = explained(
        state=RunState.RUNNING, executor=executor("e9"), started_at=at(-61), attempt=2, gates=[gate]
    )

    assert explanation.summary == "running on e9 since 2030-01-07 11:58:59 UTC, for 1m1s, attempt 2"
    assert [passage.gate for passage in explanation.gates] == ["due", "limit", "running"]
    assert of_gate(explanation, GateName.LIMIT).detail == "limit k: 2 of 3 held, one of them by this run"


def test_claimed_and_cancelling_runs_name_their_executor() -> None:
    claimed = explained(state=RunState.CLAIMED, executor=executor("e9"), attempt=1)
    assert claimed.summary == "claimed by e9; attempt 1 starts now"
    cancelling = explained(state=RunState.CANCELLING, executor=executor("e9"), attempt=1)
    assert cancelling.summary == "cancel was asked for; e9 is ending attempt 1"


def test_an_executor_that_does_not_answer_is_told() -> None:
    silent = replace(executor("e9", NodeState.LATE), lease_until=at(-3))
    assert explained(state=RunState.RUNNING, executor=silent).summary.endswith(
        "; the lease of e9 ran out 3s ago: if it stays silent the run is given to another"
    )
    dead = executor("e9", NodeState.DEAD)
    assert "e9 is dead, and the run is given to another" in explained(state=RunState.RUNNING, executor=dead).summary


# --- ended ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_sentence(reason: Reason) -> None:
    assert REASONS[reason].meaning


@pytest.mark.parametrize("state", FINAL_STATES)
def test_every_end_is_explained_with_and_without_a_reason(state: RunState) -> None:
    for reason in (None, "exit_code", "a reason of the future"):
        explanation = explained(state=state, reason=reason, ended_at=at(-1), attempt=1)
        assert explanation.summary.startswith(state.word)
        assert [passage.gate for passage in explanation.gates] == [GateName.ENDED]


def test_a_skipped_run_says_what_was_in_its_way() -> None:
    explanation = explained(state=RunState.SKIPPED, reason="overlap", ended_at=at(-1))

    assert explanation.summary.startswith("skipped (overlap): an earlier run of the job was not finished")
    assert "overlap" in (explanation.advice or "")


def test_a_poisonous_run_is_in_quarantine_and_says_how_to_release_it() -> None:
    explanation = explained(state=RunState.FAILED, reason="poison", ended_at=at(-1), attempt=3)

    assert "quarantine" in explanation.summary
    assert f"hourhand run retry {RUN}" in (explanation.advice or "")


def test_the_end_of_a_failed_run_quotes_its_first_words() -> None:
    explanation = explained(
        state=RunState.FAILED, reason="exit_code", error="exit code 3\nmore", ended_at=at(-1), attempt=4
    )

    assert explanation.gates[0].detail == (
        "failed at 2030-01-07 11:59:59 UTC in attempt 4 (exit_code): "
        "the program ended with a code that is no success; it said: exit code 3"
    )
    assert explanation.advice == f"see its log: hourhand run logs {RUN}"


@pytest.mark.parametrize(
    ("retry", "fields", "told"),
    [
        (RetryPolicy(3), {"failures": 4}, "all 3 retries are used up"),
        (RetryPolicy(1), {"failures": 2}, "its only retry is used up"),
        (RetryPolicy(0), {}, "its job has no retries"),
        (RetryPolicy(0), {"at_most_once": True}, "it may run at most once, so it was not tried again"),
        (RetryPolicy(3, on=("exit:3", "timeout")), {}, "its job retries only exit:3, timeout"),
        (RetryPolicy(3, never_on=("exit_code",)), {}, "its job never retries exit_code"),
        (RetryPolicy(3), {"reason": "exception"}, "the job said that trying again cannot help"),
        (RetryPolicy(3), {"reason": "bad_arguments"}, "trying again cannot help with such a failure"),
    ],
)
def test_a_failed_run_says_why_it_was_not_tried_again(retry: RetryPolicy, fields: dict[str, Any], told: str) -> None:
    given = {"state": RunState.FAILED, "reason": "exit_code", "attempt": 1, "failures": 1, "retry": retry} | fields

    assert explained(**given).summary.endswith(f"; {told}")
    assert told not in explained(**{**given, "retry": None}).summary  # its job was changed since: nobody knows
    assert told not in explained(**{**given, "reason": "deadline"}).summary


def test_words_that_say_it_all_are_not_repeated() -> None:
    assert explained(state=RunState.SUCCEEDED, attempt=1).summary == "succeeded"
    assert explained(state=RunState.CANCELLED, reason="cancelled").summary == "cancelled: somebody cancelled it"


def test_a_run_that_may_run_once_only_and_was_lost_says_so() -> None:
    assert "at most once" in end_of(RunState.LOST, "executor_lost").meaning
