"""A pause, an update and a delete hold for every due time after they were acknowledged."""

from bisect import bisect_right
from collections.abc import Sequence

from tests.chaos.findings import Findings
from tests.chaos.history import ClientCall, History, RunRow
from tests.chaos.joined import CLOCK_SLACK, Joined, joined
from tests.chaos.lifelines import applied_until

NOT_RUN = frozenset({"cancelled", "skipped", "missed"})


def pause(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for job_id, calls in log.calls_on_job.items():
        runs, dues = _scheduled(log, job_id)
        for place, call in enumerate(calls):
            if call.op != "pause" or call.outcome != "ok" or call.ended_at is None:
                continue
            start = call.ended_at + history.settings.claim_ahead_seconds + CLOCK_SLACK
            end = _next_wake(calls[place + 1 :], history.settings.read_at)
            if _woken_meanwhile(calls[:place], call):
                continue
            findings.fact()
            for row in runs[bisect_right(dues, start) : bisect_right(dues, end - CLOCK_SLACK)]:
                if row.run_id not in call.too_late:
                    findings.violated(row.run_id, "a scheduled run with a due time inside a pause", row.scheduled_for)
    return findings


def _next_wake(later: Sequence[ClientCall], read_at: float) -> float:
    """When the job may have been active again."""
    return next((call.invoked_at for call in later if call.op == "resume" and call.outcome != "fail"), read_at)


def _woken_meanwhile(earlier: Sequence[ClientCall], pause_call: ClientCall) -> bool:
    """A resumption that was still under way when the pause was asked for may have come after it."""
    return any(
        call.op == "resume" and call.outcome != "fail" and applied_until(call) > pause_call.invoked_at
        for call in earlier
    )


def _scheduled(log: Joined, job_id: str) -> tuple[list[RunRow], list[float]]:
    """The runs that a recurring schedule made and that were not left out, by due time."""
    runs = [row for row in log.runs_of_job.get(job_id, ()) if row.cause == "schedule" and row.state not in NOT_RUN]
    return runs, [row.scheduled_for for row in runs]


def update_and_delete(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for job_id, calls in log.calls_on_job.items():
        runs, dues = _scheduled(log, job_id)
        for call in calls:
            if call.op not in {"update", "delete"} or call.outcome != "ok" or call.ended_at is None:
                continue
            findings.fact()
            start = call.ended_at + history.settings.claim_ahead_seconds + CLOCK_SLACK
            for row in runs[bisect_right(dues, start) :]:
                if row.run_id in call.too_late:
                    continue
                if call.op == "delete":
                    findings.violated(row.run_id, "a run with a due time after its job was deleted", row.scheduled_for)
                elif call.version is not None and row.version < call.version:
                    message = f"a run of version {row.version} after version {call.version} was acknowledged"
                    findings.violated(row.run_id, message, row.scheduled_for)
    return findings
