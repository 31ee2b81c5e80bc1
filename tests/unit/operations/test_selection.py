"""Which runs a caller means, and every way in which that can be unclear."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from hourhand.model.errors import InvalidFields
from hourhand.model.states import FINAL_STATES, LIVE_STATES, RunState
from hourhand.operations.requests import CancelRunsRequest, RetryRunRequest, RetryRunsRequest
from hourhand.operations.selection import LIMIT_DEFAULT, check_retry, runs_to_cancel, runs_to_retry

ID = UUID("01a1e1a7-d333-7efc-b4d6-560568a1bdff")


def test_a_filter_is_read_with_all_its_fields() -> None:
    request = RetryRunsRequest(
        status=["lost"],
        job_id=str(ID),
        reason=["poison"],
        since="2030-01-31T09:00:00Z",
        until="2030-02-01T09:00:00+01:00",
    )
    found = runs_to_retry(request)
    assert (found.states, found.job_id, found.reasons, found.run_ids) == ([RunState.LOST], ID, ["poison"], None)
    assert (found.since, found.until) == (datetime(2030, 1, 31, 9, tzinfo=UTC), datetime(2030, 2, 1, 8, tzinfo=UTC))
    assert found.limit == LIMIT_DEFAULT


def test_who_does_not_say_in_which_state_means_what_went_wrong() -> None:
    assert runs_to_retry(RetryRunsRequest(job_id=str(ID))).states == [
        RunState.FAILED,
        RunState.TIMED_OUT,
        RunState.LOST,
    ]
    assert runs_to_cancel(CancelRunsRequest(job_id=str(ID))).states == LIVE_STATES


def test_named_runs_are_meant_in_whatever_state_they_ended() -> None:
    found = runs_to_retry(RetryRunsRequest(run_ids=[str(ID)]))
    assert (found.run_ids, found.states) == ([ID], FINAL_STATES)


@pytest.mark.parametrize(
    ("request_", "pointers"),
    [
        (RetryRunsRequest(), {""}),
        (RetryRunsRequest(limit=5, note="x"), {""}),
        (
            RetryRunsRequest(
                status=["failed", "running"], job_id="x", reason=["poisn"], since="yesterday", limit=0, note="x" * 5000
            ),
            {"/status/1", "/job_id", "/reason/0", "/since", "/limit", "/note"},
        ),
        (RetryRunsRequest(run_ids=["x"], status=["failed"]), {"/run_ids", "/run_ids/0"}),
        (RetryRunsRequest(run_ids=[]), {"/run_ids"}),
    ],
)
def test_every_fault_of_what_is_to_be_retried_is_told_at_once(request_: RetryRunsRequest, pointers: set[str]) -> None:
    with pytest.raises(InvalidFields) as refused:
        runs_to_retry(request_)
    assert {fault.pointer for fault in refused.value.faults} == pointers


@pytest.mark.parametrize(
    ("request_", "pointers"),
    [
        (CancelRunsRequest(limit=3), {""}),
        (CancelRunsRequest(status=["failed"], until="soon", limit=10_001), {"/status/0", "/until", "/limit"}),
    ],
)
def test_every_fault_of_what_is_to_be_cancelled_is_told_at_once(
    request_: CancelRunsRequest, pointers: set[str]
) -> None:
    with pytest.raises(InvalidFields) as refused:
        runs_to_cancel(request_)
    assert {fault.pointer for fault in refused.value.faults} == pointers


def test_a_note_has_an_end() -> None:
    check_retry(RetryRunRequest(note="x" * 4096))
    with pytest.raises(InvalidFields):
        check_retry(RetryRunRequest(note="x" * 4097))
