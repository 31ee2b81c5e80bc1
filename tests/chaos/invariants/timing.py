"""Promises of time: never early, soon when all is well, soon again after a fault, not longer than allowed."""

from bisect import bisect_left
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import History, JobSpec
from tests.chaos.joined import Effect, Hold, Joined, joined
from tests.chaos.pickups import Pickup, pickups, quantile
from tests.chaos.windows import Window

EARLY_SLACK: Final = 0.005
STOP_SECONDS: Final = 2.0
"""From the moment an attempt should be gone to its last line, at most."""
SAMPLES_MIN: Final = 20
"""Fewer starts than that in a window say nothing about its 99th percentile."""
BUCKET_SECONDS: Final = 2.0


def no_early_start(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    earliest = float("inf")
    for row in history.runs:
        for effect in log.effects.get(row.run_id, ()):
            findings.fact()
            earliest = min(earliest, effect.start - row.scheduled_for)
            if effect.start < row.scheduled_for - EARLY_SLACK:
                early = f"started {(row.scheduled_for - effect.start) * 1000:.0f} ms before it was due"
                findings.violated(row.run_id, early, effect.start)
    if findings.facts:
        findings.remarks.append(f"earliest start: {earliest * 1000:.1f} ms after its due time")
    return findings


def pickup(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    samples = pickups(history)
    for window in log.disturbances.calm_windows():
        seconds = [sample.seconds for sample in _due_in(samples, window) if sample.started <= window.end]
        if len(seconds) < SAMPLES_MIN:
            continue
        findings.fact(len(seconds))
        p99 = quantile(seconds, 0.99)
        if p99 >= history.settings.pickup_seconds:
            message = f"p99 of {len(seconds)} starts is {p99:.2f} s in {window.seconds:.0f} s without a fault"
            findings.violated("pickup", message, window.start)
    return findings


def _due_in(samples: list[Pickup], window: Window) -> list[Pickup]:
    start = bisect_left(samples, window.start, key=lambda sample: sample.due)
    return samples[start : bisect_left(samples, window.end, key=lambda sample: sample.due)]


def recovery(history: History) -> Findings:
    findings = Findings()
    for healed_at, judged, seconds in recoveries(history):
        if not judged:
            continue
        findings.fact()
        if seconds > history.settings.recovery_seconds:
            findings.violated("recovery", f"p99 was too high for {seconds:.0f} s after the fault was healed", healed_at)
    return findings


def recoveries(history: History) -> list[tuple[float, bool, float]]:
    """Per healed fault: when, whether it was left in peace long enough to be judged, how long starts stayed late."""
    samples = pickups(history)
    broken = joined(history).disturbances.broken
    bound = history.settings.recovery_seconds
    found: list[tuple[float, bool, float]] = []
    for place, window in enumerate(broken):
        until = broken[place + 1].start if place + 1 < len(broken) else history.settings.read_at
        until = min(until, window.end + 3 * bound)
        # What falls due within the last moments may be held up by the next fault already.
        after = _due_in(samples, Window(window.end, until - history.settings.pickup_seconds))
        judged = until >= window.end + bound + BUCKET_SECONDS and bool(after)
        found.append((window.end, judged, _late_for(after, window.end, history.settings.pickup_seconds)))
    return found


def _late_for(samples: list[Pickup], healed_at: float, allowed: float) -> float:
    """Until when, counted from the healing, starts came too late in any two seconds."""
    buckets: dict[int, list[float]] = {}
    for sample in samples:
        buckets.setdefault(int((sample.due - healed_at) // BUCKET_SECONDS), []).append(sample.seconds)
    late = [place for place, seconds in buckets.items() if quantile(seconds, 0.99) >= allowed]
    return (max(late) + 1) * BUCKET_SECONDS if late else 0.0


# --- not longer than allowed ------------------------------------------------------------------------------------


def time_out(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for row in history.runs:
        spec = log.spec(row.job_id, row.version)
        if spec is None:
            continue
        effects = log.effects.get(row.run_id, [])
        for effect in effects:
            if spec.timeout_seconds is not None:
                _judge_end(findings, log, effect, effect.start + spec.timeout_seconds, "timeout")
            if spec.deadline_seconds is not None and row.cause != "manual":
                limit = row.scheduled_for + spec.deadline_seconds
                _judge_end(findings, log, effect, limit, "deadline")
        if spec.queue_timeout_seconds is not None and effects:
            _judge_wait(findings, log, row.scheduled_for, effects[0], spec)
    return findings


def _judge_end(findings: Findings, log: Joined, effect: Effect, limit: float, name: str) -> None:
    findings.fact()
    hold = log.hold_of(effect)
    gone_by = limit + log.settings.grace_seconds + STOP_SECONDS + log.settings.slack_seconds
    faults = log.faults_on_executor(hold, effect.start, max(effect.last, limit), log.settings.recovery_seconds)
    allowed = max([gone_by, *(fault.ended + log.settings.grace_seconds + STOP_SECONDS for fault in faults)])
    if effect.last > allowed:
        findings.violated(effect.run_id, f"alive {effect.last - limit:.1f} s after its {name}", effect.last)
    if faults or hold is None or hold.close is None:
        return
    state = _recorded_state(log, hold)
    ended = effect.end if effect.end is not None else effect.last
    if state == "succeeded" and ended > limit + STOP_SECONDS + log.settings.slack_seconds:
        findings.violated(effect.run_id, f"succeeded {ended - limit:.1f} s after its {name}", ended)
    killed_for_it = effect.end is None and effect.term is not None and effect.term >= limit
    if killed_for_it and state == "failed":
        findings.violated(effect.run_id, f"stopped by its {name} and recorded as failed", effect.term)


def _recorded_state(log: Joined, hold: Hold) -> str:
    """What the database says became of an attempt."""
    rows = log.attempts.get(hold.run_id, ())
    kept = next((row.state for row in rows if row.attempt == hold.attempt), None)
    return kept or (hold.close.new if hold.close is not None else "")


def _judge_wait(findings: Findings, log: Joined, due: float, first: Effect, spec: JobSpec) -> None:
    assert spec.queue_timeout_seconds is not None
    findings.fact()
    limit = due + spec.queue_timeout_seconds + log.settings.sweep_seconds + STOP_SECONDS + log.settings.slack_seconds
    if first.start > limit and log.disturbances.calm(due, first.start):
        message = f"started {first.start - due:.1f} s after its due time, its queue timeout is less"
        findings.violated(first.run_id, message, first.start)


# --- wake-ups are hints ------------------------------------------------------------------------------------------

LATE_SECONDS: Final = 1.0
"""Beyond the poll interval: the claim's own time, on a machine that does much at once."""


def broker_is_a_hint(history: History) -> Findings:
    """While notifications were dropped, what was ready was still claimed within the poll interval."""
    findings, log = Findings(), joined(history)
    silences = [Window(fault.started, fault.ended) for fault in history.faults if fault.action == "drop_notify"]
    bound = history.settings.poll_seconds + LATE_SECONDS + history.settings.slack_seconds
    if not silences:
        return findings
    for run_id, events in log.events.items():
        spec = log.spec_of_run(run_id)
        for queued, following in zip(events, [*events[1:], None], strict=True):
            if queued.new != "queued" or (spec is not None and spec.expected_unfinished):
                continue
            ready = max(queued.at, queued.ready_at or queued.scheduled_for)
            if not any(silence.start <= ready <= silence.end - bound for silence in silences):
                continue
            if following is not None and following.new != "claimed":
                continue
            claimed = following.at if following is not None else history.settings.read_at
            if not log.disturbances.calm(ready, ready + bound):
                continue
            findings.fact()
            if claimed - ready > bound:
                message = f"ready for {claimed - ready:.1f} s and not claimed, with nobody told"
                findings.violated(run_id, message, ready)
    return findings
