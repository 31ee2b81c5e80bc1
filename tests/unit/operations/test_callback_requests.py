import pytest

from hourhand.operations.callbacks import CallbackProgress, CallbackRequest, faults_of_callback


def found(request: CallbackRequest) -> list[tuple[str, str]]:
    return [(fault.pointer, fault.code) for fault in faults_of_callback(request)]


@pytest.mark.parametrize(
    "request_",
    [
        CallbackRequest("succeeded", result={"rows": 42}),
        CallbackRequest("succeeded", error=""),
        CallbackRequest("failed", error="out of paper"),
        *(CallbackRequest("running", progress=CallbackProgress(percent)) for percent in (None, 0, 0.5, 100)),
    ],
)
def test_what_makes_sense_is_taken(request_: CallbackRequest) -> None:
    assert found(request_) == []


@pytest.mark.parametrize("status", ["succeeded", "running"])
def test_an_error_of_what_has_not_failed_is_refused(status: str) -> None:
    assert found(CallbackRequest(status, error="no")) == [("/error", "field-not-allowed")]


@pytest.mark.parametrize("percent", [-0.1, 100.1, 150, 1e300])
def test_progress_is_from_0_to_100(percent: float) -> None:
    assert found(CallbackRequest("running", progress=CallbackProgress(percent))) == [
        ("/progress/percent", "out-of-range")
    ]


def test_all_faults_are_told_at_once() -> None:
    assert found(CallbackRequest("succeeded", "\0", "no", progress=CallbackProgress(150))) == [
        ("/error", "field-not-allowed"),
        ("/progress/percent", "out-of-range"),
        ("/result", "invalid-unicode"),
    ]
