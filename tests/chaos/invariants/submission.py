"""What was acknowledged is there, once, and everybody can read it."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import ClientCall, Fault, History
from tests.chaos.joined import CLOCK_SLACK, Joined, joined

CRASHES: Final = frozenset({"postgres_kill", "postgres_restart", "failover"})
JUST_BEFORE_SECONDS: Final = 5.0
"""An acknowledgement this shortly before a crash of the database is one that the crash could undo."""
CHANGES: Final = frozenset({"update", "pause", "resume", "delete"})


def durable_submission(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for call in acknowledged(history, "submit"):
        findings.fact()
        if call.job_id not in log.jobs and not _deleted(log, call):
            findings.violated(call.job_id or "?", "the job was acknowledged and is not there", call.ended_at)
    return findings


def _deleted(log: Joined, call: ClientCall) -> bool:
    later = log.calls_on_job.get(call.job_id or "", ())
    return any(other.op == "delete" and other.outcome != "fail" for other in later)


def idempotent_submission(history: History) -> Findings:
    findings = Findings()
    by_key: dict[str, list[ClientCall]] = defaultdict(list)
    for call in history.calls:
        if call.op == "submit" and call.idempotency_key:
            by_key[call.idempotency_key].append(call)
    stored: dict[str, set[str]] = defaultdict(set)
    for row in history.jobs:
        if row.key:
            stored[row.key].add(row.job_id)
    for key, calls in by_key.items():
        findings.fact(len(calls) > 1)  # a key that was sent once puts nothing to the test
        accepted = [call for call in calls if call.outcome == "ok"]
        told = {call.job_id for call in accepted}
        if len(told | stored[key]) > 1:
            findings.violated(key, f"one key made the jobs {', '.join(sorted(str(job) for job in told | stored[key]))}")
        if len({call.body_digest for call in accepted}) > 1:
            findings.violated(key, "the key was accepted again with another body")
    return findings


def ack_means_durable(history: History) -> Findings:
    """Every kind of change acknowledged just before the database crashed is there; none was told before it was made."""
    findings, log = Findings(), joined(history)
    crashes = sorted((fault for fault in history.faults if fault.action in CRASHES), key=lambda fault: fault.started)
    made = {event.job_id: event.at for event in history.job_events if event.created}
    for call in history.calls:
        if call.outcome != "ok" or call.ended_at is None:
            continue
        if _crashed_after(crashes, call.ended_at):
            findings.fact()
            if lost := _lost(log, call):
                findings.violated(call.run_id or call.job_id or "?", f"{lost}, and PostgreSQL crashed", call.ended_at)
        born = _born(log, made, call)
        if born is not None and history.settings.database_clock_true:
            findings.fact()
            if born > call.ended_at + CLOCK_SLACK:
                early = f"acknowledged {born - call.ended_at:.3f} s before it was written"
                findings.violated(call.run_id or call.job_id or "?", early, call.ended_at)
    return findings


def _crashed_after(crashes: Sequence[Fault], acknowledged_at: float) -> bool:
    place = bisect_left(crashes, acknowledged_at, key=lambda fault: fault.started)
    return place < len(crashes) and crashes[place].started - acknowledged_at <= JUST_BEFORE_SECONDS


def _lost(log: Joined, call: ClientCall) -> str | None:
    """What of an acknowledged change is not to be found at the final read."""
    if call.op == "submit" and call.job_id not in log.jobs and not _deleted(log, call):
        return "an acknowledged job is gone"
    if call.op in {"run_now", "retry"} and call.run_id and call.run_id not in log.run:
        return "an acknowledged run is gone"
    row = log.jobs.get(call.job_id or "")
    if call.op in CHANGES and call.version is not None and row is not None and row.version < call.version:
        return f"version {call.version} was acknowledged, {row.version} is there"
    if call.op == "delete" and row is not None and row.status != "cancelled":
        return "an acknowledged delete is undone"
    return None


def _born(log: Joined, made: dict[str, float], call: ClientCall) -> float | None:
    if call.op == "submit":
        return made.get(call.job_id or "")
    if call.op in {"run_now", "retry"} and (events := log.events.get(call.run_id or "")):
        return events[0].at
    return None


def read_your_write(history: History) -> Findings:
    """A read that was started after a write was acknowledged sees it, or something newer."""
    findings, log = Findings(), joined(history)
    for calls in log.calls_on_job.values():
        writes = [call for call in calls if call.op in CHANGES | {"submit"} and call.outcome != "fail"]
        for read in calls:
            if read.op == "get_job" and read.outcome != "info":
                _compare(findings, read, writes)
    for calls in log.calls_on_run.values():
        writes = [call for call in calls if call.op in {"run_now", "retry"} or is_cancel_ack(call)]
        for read in calls:
            if read.op == "get_run" and read.outcome != "info":
                _compare_run(findings, read, writes)
    return findings


def _compare(findings: Findings, read: ClientCall, writes: Sequence[ClientCall]) -> None:
    written = [call for call in writes if _done_before(call, read)]
    if not written:
        return
    findings.fact()
    job = read.job_id or "?"
    if read.status == 404:
        findings.violated(job, f"not found on {read.node or 'a node'} after it was acknowledged", read.invoked_at)
        return
    if read.outcome != "ok":
        return
    version = max((call.version for call in written if call.version is not None), default=None)
    if version is not None and read.version is not None and read.version < version:
        findings.violated(job, f"version {read.version} was read after {version} was acknowledged", read.invoked_at)
    until = read.ended_at or read.invoked_at
    expected = _expected_state(
        written, [call for call in writes if call.invoked_at <= until and not _done_before(call, read)]
    )
    if expected == "paused" and read.state not in {None, "paused"}:
        findings.violated(job, f"read as {read.state} after its pause was acknowledged", read.invoked_at)
    if expected == "running" and read.state == "paused":
        findings.violated(job, "read as paused after its resumption was acknowledged", read.invoked_at)
    if expected == "cancelled" and read.state not in {None, "cancelled"}:
        findings.violated(job, f"read as {read.state} after its deletion was acknowledged", read.invoked_at)


def _expected_state(written: Sequence[ClientCall], uncertain: Sequence[ClientCall]) -> str | None:
    if any(call.op == "delete" for call in written):
        return "cancelled"
    verbs = [call for call in written if call.op in {"pause", "resume"}]
    if not verbs or any(call.op in {"pause", "resume", "delete"} for call in uncertain):
        return None
    last = max(verbs, key=lambda call: call.invoked_at)
    if any(call is not last and (call.ended_at or 0) > last.invoked_at for call in verbs):
        return None  # asked for at the same time: either order is right
    return "paused" if last.op == "pause" else "running"


def _compare_run(findings: Findings, read: ClientCall, writes: Sequence[ClientCall]) -> None:
    written = [call for call in writes if _done_before(call, read)]
    if not written:
        return
    findings.fact()
    run = read.run_id or "?"
    if read.status == 404:
        findings.violated(run, f"not found on {read.node or 'a node'} after it was acknowledged", read.invoked_at)
    elif (
        read.outcome == "ok"
        and read.state not in {None, "cancelling", "cancelled"}
        and any(call.op == "cancel" for call in written)
    ):
        findings.violated(run, f"read as {read.state} after its cancel was acknowledged", read.invoked_at)


def _done_before(call: ClientCall, read: ClientCall) -> bool:
    return call.outcome == "ok" and call.ended_at is not None and call.ended_at < read.invoked_at


def acknowledged(history: History, op: str) -> list[ClientCall]:
    return [call for call in history.calls if call.op == op and call.outcome == "ok"]


def is_cancel_ack(call: ClientCall) -> bool:
    """The caller was told that the run is being cancelled. The answer may also say that it had ended before."""
    return call.op == "cancel" and call.outcome == "ok" and call.state in {None, "cancelling", "cancelled"}
