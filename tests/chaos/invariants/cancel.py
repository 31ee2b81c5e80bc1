"""Once cancel was acknowledged nothing succeeds any more, nothing new starts, and what runs is stopped."""

from collections.abc import Iterator
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import ClientCall, History, RunEvent
from tests.chaos.invariants.submission import acknowledged, is_cancel_ack
from tests.chaos.joined import CLOCK_SLACK, FINAL, Effect, Joined, joined

STOPPED: Final = frozenset({"cancelled", "skipped", "missed"})
HEARD_SECONDS: Final = 1.0


def cancel_acks(history: History) -> Iterator[tuple[str, ClientCall]]:
    """Each run whose end by cancel was acknowledged, by a cancel of its own or with its job."""
    log = joined(history)
    for call in history.calls:
        if is_cancel_ack(call) and call.run_id and call.ended_at is not None:
            end = _terminal(log, call.run_id)
            if end is None or end.at >= call.invoked_at - CLOCK_SLACK or end.new == "cancelled":
                yield call.run_id, call
    for call in acknowledged(history, "delete"):
        if call.ended_at is None:
            continue
        for row in log.runs_of_job.get(call.job_id or "", ()):
            events = log.events.get(row.run_id)
            end = _terminal(log, row.run_id)
            made_before = events is not None and events[0].at < call.invoked_at
            if made_before and (end is None or end.at > call.ended_at + CLOCK_SLACK):
                yield row.run_id, call


def _terminal(log: Joined, run_id: str) -> RunEvent | None:
    return next((event for event in log.events.get(run_id, ()) if event.new in FINAL), None)


def cancel_wins(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, call in cancel_acks(history):
        findings.fact()
        row = log.run.get(run_id)
        if row is not None and not row.live and row.state not in STOPPED:
            findings.violated(run_id, f"{row.state} after its cancel was acknowledged", call.ended_at)
    for run_id, events in log.events.items():
        if any(event.new == "cancelling" for event in events):
            findings.fact()
            end = _terminal(log, run_id)
            if end is not None and end.new != "cancelled":
                findings.violated(run_id, f"was being cancelled and ended as {end.new}", end.at)
    return findings


def cancel_stops_the_effect(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, call in cancel_acks(history):
        assert call.ended_at is not None
        for effect in log.effects.get(run_id, ()):
            findings.fact()
            bound = _stopped_by(log, effect, call.ended_at)
            if effect.last > bound:
                message = f"its effect was alive {effect.last - call.ended_at:.1f} s after cancel was acknowledged"
                findings.violated(run_id, message, effect.last)
    cancelled = {row.run_id for row in history.runs if row.state == "cancelled"}
    for probe in history.probes:
        if probe.final:
            for run_id in cancelled.intersection(probe.run_ids):
                findings.violated(run_id, "cancelled, and a process of it is left", probe.at)
    return findings


def _stopped_by(log: Joined, effect: Effect, acknowledged_at: float) -> float:
    settings = log.settings
    allowed = settings.cancel_bound_seconds + settings.grace_seconds + HEARD_SECONDS
    bound = acknowledged_at + allowed
    faults = log.faults_on_executor(log.hold_of(effect), effect.start, bound, settings.recovery_seconds)
    # A stopped executor can end nothing, and one without the database hears of nothing.
    return max([bound, *(fault.ended + settings.lease_seconds + allowed for fault in faults)])


def cancelled_before_start(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, events in log.events.items():
        cancel = next((event for event in events if event.new in {"cancelling", "cancelled"}), None)
        if cancel is None or cancel.new != "cancelled":
            continue
        held = cancel.old in {"claimed", "running"}
        if held:
            continue
        findings.fact()
        claimed = {hold.fence for hold in log.holds.get(run_id, ()) if hold.claim.order < cancel.order}
        for effect in log.effects.get(run_id, ()):
            if effect.fence not in claimed:
                findings.violated(run_id, "cancelled while it waited, and started all the same", effect.start)
    return findings
