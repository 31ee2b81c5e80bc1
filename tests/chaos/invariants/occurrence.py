"""Each due time is accounted for once, and nothing runs that nobody asked for. The due times are worked out apart."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.chaos.due_times import due_between, is_due, micros
from tests.chaos.findings import Findings
from tests.chaos.history import ClientCall, History, JobEvent, JobSpec, LedgerRow, RunRow
from tests.chaos.joined import CLOCK_SLACK, Joined, grouped, joined
from tests.chaos.lifelines import active_stretches, applied_until
from tests.chaos.windows import MARGIN_SECONDS


def one_run_per_fire_time(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for job_id, versions in log.specs.items():
        runs = [row for row in log.runs_of_job.get(job_id, ()) if row.cause != "manual"]
        for due, count in Counter(micros(row.scheduled_for) for row in runs).items():
            if count > 1:
                findings.violated(job_id, f"{count} runs for one due time", due / 1e6)
        if any(spec.recurring for spec in versions.values()):
            _recurring(findings, log, job_id, runs)
        else:
            _once(findings, log, job_id, runs)
    return findings


def _recurring(findings: Findings, log: Joined, job_id: str, runs: Sequence[RunRow]) -> None:
    accounts = Counter({micros(row.scheduled_for) for row in runs})
    for row in log.ledger_of_job.get(job_id, ()):
        covered = _expanded(log, row)
        if len(covered) != row.count:
            message = f"the ledger counts {row.count} due times where the schedule has {len(covered)}"
            findings.violated(job_id, message, row.first_due)
        accounts.update(covered)
    for due in sorted(_demanded(log, job_id)):
        findings.fact()
        if accounts[due] == 0:
            findings.violated(job_id, "a due time with neither run nor ledger entry", due / 1e6)
        elif accounts[due] > 1:
            findings.violated(job_id, "a due time that is accounted for twice", due / 1e6)


def _demanded(log: Joined, job_id: str) -> set[int]:
    """Due times that lie safely inside a stretch in which the job was active under a known version."""
    latest = log.settings.read_at - (log.settings.shard_lease_seconds + MARGIN_SECONDS)
    demanded: set[int] = set()
    for active in active_stretches(log.calls_on_job.get(job_id, ()), log.jobs.get(job_id), log.settings):
        spec = log.specs[job_id].get(active.version)
        if spec is not None and spec.recurring:
            end = min(active.window.end, latest) - CLOCK_SLACK
            demanded.update(due_between(spec, active.window.start + CLOCK_SLACK, end))
    return demanded


def _once(findings: Findings, log: Joined, job_id: str, runs: Sequence[RunRow]) -> None:
    calls = log.calls_on_job.get(job_id, ())
    touched = any(call.op in {"delete", "pause", "resume", "update"} and call.outcome != "fail" for call in calls)
    accepted = [call for call in calls if call.op == "submit" and call.outcome == "ok" and call.ended_at is not None]
    spec = log.spec(job_id)
    if touched or not accepted or spec is None:
        return
    due = max(accepted[0].ended_at or 0.0, spec.at or 0.0)
    if due > log.settings.read_at - log.settings.shard_lease_seconds - MARGIN_SECONDS:
        return
    findings.fact()
    if len(runs) != 1:
        findings.violated(job_id, f"a job that runs once has {len(runs)} runs", due)


def _expanded(log: Joined, row: LedgerRow) -> list[int]:
    """The due times that a range of the ledger stands for, by the schedule of its version. Where that is not known, by
    one that has as many of them: but two schedules may have equally many in a range, at different times."""
    versions = log.specs.get(row.job_id, {})
    just_before = row.first_due - 1e-6
    own = None if row.version is None else versions.get(row.version)
    if own is not None and own.recurring:
        return due_between(own, just_before, row.last_due)
    ranges = [due_between(spec, just_before, row.last_due) for spec in versions.values() if spec.recurring]
    return next((dues for dues in ranges if len(dues) == row.count), max(ranges, key=len, default=[]))


# --- nothing without a cause -----------------------------------------------------------------------------------


def no_phantom_run(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    submits = [call for call in history.calls if call.op == "submit" and call.outcome != "fail"]
    keys = {call.idempotency_key for call in submits if call.idempotency_key}
    told = {call.job_id for call in submits if call.outcome == "ok"}
    unheard = any(call.outcome == "info" and not call.idempotency_key for call in submits)
    for job in history.jobs:
        findings.fact()
        if not unheard and job.job_id not in told and job.key not in keys:
            findings.violated(job.job_id, "a job that nobody submitted")
    first_sent = _first_sent(history)
    for job_id, runs in log.runs_of_job.items():
        calls = log.calls_on_job.get(job_id, ())
        _manual_runs(findings, [row for row in runs if row.cause == "manual"], calls)
        if job_id in log.specs:
            for row in runs:
                if row.cause != "manual":
                    findings.fact()
                    if not _has_cause(log, row, calls, first_sent):
                        findings.violated(row.run_id, "a run at a time that no schedule names", row.scheduled_for)
    for job_id, events in grouped(history.job_events, "job_id", "order").items():
        _changes(findings, events, log.calls_on_job.get(job_id, ()))
    return findings


def _changes(findings: Findings, events: Sequence[JobEvent], calls: Sequence[ClientCall]) -> None:
    """Every change of a job lies in a call that asks for it, and whose caller was not told that it was not made: from
    the calls alone others conclude when which schedule was in force."""
    for before, event in pairwise(events):
        if (before.status, before.version) == (event.status, event.version):
            continue
        findings.fact()
        op = "update" if event.version != before.version else _OP_OF_STATUS[event.status]
        made = event.committed_at or event.at
        asked = [call for call in calls if call.op == op and call.outcome != "fail"]
        if not any(call.invoked_at - CLOCK_SLACK <= made <= applied_until(call) + CLOCK_SLACK for call in asked):
            what = op if op == "update" else event.status
            findings.violated(event.job_id, f"a change that nobody asked for: {what}", made)


_OP_OF_STATUS: Final = {"active": "resume", "paused": "pause", "cancelled": "delete"}


def _first_sent(history: History) -> dict[str, float]:
    """When a submission was first sent: an answer that was lost may have been acted on."""
    first: dict[str, float] = {}
    for call in history.calls:
        if call.op == "submit" and call.idempotency_key:
            first[call.idempotency_key] = min(call.invoked_at, first.get(call.idempotency_key, call.invoked_at))
    return first


def _manual_runs(findings: Findings, runs: Sequence[RunRow], calls: Sequence[ClientCall]) -> None:
    asked = [call for call in calls if call.op in {"run_now", "retry"}]
    named = {call.run_id for call in asked if call.outcome == "ok"}
    unheard = sum(call.outcome == "info" for call in asked)
    for row in runs:
        findings.fact()
        if row.run_id in named:
            continue
        unheard -= 1
        if unheard < 0:
            findings.violated(row.run_id, "a manual run that nobody asked for", row.scheduled_for)


def _has_cause(log: Joined, row: RunRow, calls: Sequence[ClientCall], first_sent: dict[str, float]) -> bool:
    due = micros(row.scheduled_for)
    specs = log.specs[row.job_id].values()
    if any(is_due(spec, due) for spec in specs if spec.schedule != "now"):
        return True
    # Due at once: at an instant between the request and its answer, by the database's clock.
    if not any(spec.schedule == "now" or _was_past(spec, calls) for spec in specs):
        return False
    for call in calls:
        if call.op in {"submit", "update"} and call.outcome != "fail":
            sent = first_sent.get(call.idempotency_key or "", call.invoked_at)
            answered = call.ended_at if call.outcome == "ok" and call.ended_at else float("inf")
            if sent - CLOCK_SLACK <= row.scheduled_for <= answered + CLOCK_SLACK:
                return True
    return not calls


def _was_past(spec: JobSpec, calls: Sequence[ClientCall]) -> bool:
    return spec.schedule == "at" and any((spec.at or 0.0) <= (call.ended_at or float("inf")) for call in calls)


# --- what was missed -------------------------------------------------------------------------------------------

SAME_PLAN_SECONDS = 1.0
"""What a planner writes for one job in one go lies within this time."""
EDGE_SECONDS = 1.0
"""Due times this close to the edge of the window or of the grace may fall on either side."""


@dataclass(frozen=True, slots=True, order=True)
class Late:
    """A due time that was dealt with late: it made a run, or an entry in the ledger."""

    at: float
    due: int
    runs: bool
    version: int


def misfire(history: History) -> Findings:
    """After a silence the late runs are those that the policy names, and the others are in the ledger."""
    findings, log = Findings(), joined(history)
    late_from = history.settings.catchup_grace_seconds - EDGE_SECONDS
    for job_id, versions in log.specs.items():
        if not any(spec.recurring for spec in versions.values()):
            continue
        late: list[Late] = []
        for row in log.runs_of_job.get(job_id, ()):
            events = log.events.get(row.run_id)
            if row.cause != "manual" and events and events[0].at - row.scheduled_for > late_from:
                late.append(Late(events[0].at, micros(row.scheduled_for), row.state != "missed", row.version))
        for entry in log.ledger_of_job.get(job_id, ()):
            if entry.at is not None and entry.reason.startswith("catchup"):
                version = entry.version or max(versions)
                late += [Late(entry.at, due, False, version) for due in _expanded(log, entry)]
        made = {
            micros(row.scheduled_for): (log.events[row.run_id][0].at, row.version)
            for row in log.runs_of_job.get(job_id, ())
            if row.cause != "manual" and log.events.get(row.run_id)
        }
        for plan in _plans(late):
            spec = log.spec(job_id, plan[0].version)
            if spec is not None:
                _judge_plan(findings, job_id, spec, plan, made, history.settings.catchup_grace_seconds)
    return findings


def _plans(late: list[Late]) -> list[list[Late]]:
    plans: list[list[Late]] = []
    for line in sorted(late):
        if plans and line.at - plans[-1][-1].at <= SAME_PLAN_SECONDS:
            plans[-1].append(line)
        else:
            plans.append([line])
    return plans


def _judge_plan(
    findings: Findings,
    job_id: str,
    spec: JobSpec,
    plan: list[Late],
    made: Mapping[int, tuple[float, int]],
    grace: float,
) -> None:
    planned_at = plan[-1].at
    slack = micros(EDGE_SECONDS)
    fresh_from = micros(planned_at - grace)
    dues = sorted(line.due for line in plan)
    # Where exactly the planner's own clock drew the line between late and fresh is not known to the microsecond.
    cuts = [place for place in range(len(dues) + 1) if _may_cut(dues, place, fresh_from, slack)]
    if cuts == [0]:
        return  # nothing was surely late
    findings.fact()
    runs = {line.due for line in plan if line.runs}
    edge = micros(planned_at - spec.catchup_window_seconds)
    uncertain = {due for due in dues if abs(due - edge) <= slack}
    for cut in cuts:
        inside = [due for due in dues[:cut] if due >= edge]
        for wanted in _wanted(spec, plan, made, grace, any_fresh=cut < len(dues)):
            keep = min(wanted, len(inside))
            if runs - uncertain == {*inside[len(inside) - keep :], *dues[cut:]} - uncertain:
                return
    message = f"catch-up {spec.catchup}: {len(runs)} of {len(dues)} late due times run, which is not what it asks for"
    findings.violated(job_id, message, planned_at)


def _wanted(
    spec: JobSpec, plan: list[Late], made: Mapping[int, tuple[float, int]], grace: float, *, any_fresh: bool
) -> set[int]:
    """How many late ones may run. Under `last` it is none where one within the grace runs anyway: surely so if that was
    made by the same plan and lies off the edges, perhaps if the schedule names one at all."""
    if spec.catchup != "last":
        return {spec.catchup_max_runs if spec.catchup == "all" else 0}
    planned_at = plan[-1].at
    begin, end = planned_at - grace, planned_at
    surely = any(
        micros(begin + EDGE_SECONDS) <= due <= micros(end - EDGE_SECONDS)
        and abs(at - planned_at) <= SAME_PLAN_SECONDS
        and version == plan[-1].version
        for due, (at, version) in made.items()
    )
    if any_fresh or surely:
        return {0}
    return {0, 1} if due_between(spec, begin - EDGE_SECONDS, end + EDGE_SECONDS) else {1}


def _may_cut(dues: list[int], place: int, fresh_from: int, slack: int) -> bool:
    """Whether the first `place` due times may have been late and the others fresh."""
    return (place == 0 or dues[place - 1] < fresh_from + slack) and (
        place == len(dues) or dues[place] >= fresh_from - slack
    )
