"""Attempts: only the newest may speak, two never run side by side without cause, and their number is bounded."""

from itertools import combinations
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import Fault, History, RetrySpec, RunEvent
from tests.chaos.joined import CLOCK_SLACK, FINAL, Effect, Hold, Joined, joined

FAILURES: Final = frozenset({"failed", "timed_out"})
FIRM_REASONS: Final = frozenset(
    {
        "poison",
        "bad_arguments",
        "target_blocked",
        "result_too_large",
        "not_started",
        "exec_not_found",
        "not_executable",
        "unknown_handler",
        "deadline",
    }
)
"""Reasons for which a run fails whatever retries it has left."""
HEARD_SECONDS: Final = 1.0
"""How long after its commit a result's own effect may be heard to end: the collector shares the machine."""
START_SECONDS: Final = 2.0
"""From the moment an attempt may start to its first line."""


def fencing(history: History) -> Findings:
    """Tokens grow with each claim, every effect has one that was committed, and the result is its holder's."""
    findings, log = Findings(), joined(history)
    claimed_by: dict[int, str] = {}
    for run_id, events in log.events.items():
        newest = 0
        for event in events:
            if event.new == "claimed" and event.old != "claimed":
                findings.fact()
                fence = event.fence or 0
                if fence <= newest:
                    findings.violated(run_id, f"token {fence} follows {newest}", event.at)
                if claimed_by.setdefault(fence, run_id) != run_id:
                    findings.violated(run_id, f"token {fence} belongs to run {claimed_by[fence]} too", event.at)
                newest = max(newest, fence)
            elif event.new == "succeeded":
                _judge_result(findings, log, event, newest)
    for holds in log.holds.values():
        for hold in holds:
            _judge_speaker(findings, log, hold)
    issued = {(run_id, hold.fence) for run_id, holds in log.holds.items() for hold in holds}
    for run_id, effects in log.effects.items():
        for effect in effects:
            if run_id in log.events and (run_id, effect.fence) not in issued:
                findings.violated(run_id, f"ran with token {effect.fence}, which no claim gave out", effect.start)
    return findings


def _judge_result(findings: Findings, log: Joined, result: RunEvent, newest: int) -> None:
    if result.fence is not None and result.fence != newest:
        findings.violated(result.run_id, f"result of token {result.fence} while {newest} was out", result.at)
        return
    spec = log.spec_of_run(result.run_id)
    effects = log.effects.get(result.run_id, [])
    if spec is None or not spec.witnessed or spec.completes_itself or not effects:
        return
    own = next((effect for effect in effects if effect.fence == newest), None)
    if own is None:
        findings.violated(result.run_id, "a result while only older attempts had been seen", result.at)
    elif own.end is None or own.end > result.at + HEARD_SECONDS:
        findings.violated(result.run_id, "a result before the attempt that holds the token had ended", result.at)


def _judge_speaker(findings: Findings, log: Joined, hold: Hold) -> None:
    """An attempt is ended by its own executor, or by a scheduler that found it dead; never by another executor."""
    holder, close = log.executor_of(hold), hold.close
    if holder is None or close is None or close.actor is None or close.actor == holder:
        return
    if close.new == "succeeded" or log.node_roles.get(close.actor) == {"executor"}:
        findings.violated(hold.run_id, f"{close.actor} ended an attempt of {holder} as {close.new}", close.at)


# --- side by side -----------------------------------------------------------------------------------------------


def bounded_overlap(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    overlaps: list[float] = []
    for run_id, effects in log.effects.items():
        if len(effects) < 2:
            continue
        findings.fact(len(effects) - 1)
        for earlier, later in combinations(sorted(effects, key=lambda effect: (effect.attempt, effect.start)), 2):
            # An attempt that was claimed first may be seen last: its executor was stopped before anything of it began.
            first, second = sorted((earlier, later), key=lambda effect: effect.start)
            if second.start < first.last:
                overlaps.append(min(first.last, second.last) - second.start)
                if message := _unexcused(log, earlier, later, second.start):
                    findings.violated(run_id, message, second.start)
    findings.remarks.append(f"{len(overlaps)} overlaps, longest {max(overlaps, default=0.0):.1f} s")
    return findings


def _unexcused(log: Joined, earlier: Effect, later: Effect, since: float) -> str | None:
    """`since`: when both were seen. `earlier` is the one whose executor has lost the run."""
    held, taken = log.hold_of(earlier), log.hold_of(later)
    excuses = excusing_faults(log, earlier, since)
    if not excuses:
        return "two attempts side by side although nothing was broken"
    if held is not None and taken is not None and held.executor_id is not None:
        lease_until = log.lease_until(held.executor_id, taken.claim.order)
        if lease_until is not None and lease_until > taken.claim.at + CLOCK_SLACK:
            return f"claimed again {lease_until - taken.claim.at:.1f} s before the lease of the first had ended"
    spec = log.spec_of_run(earlier.run_id)
    if spec is not None and spec.self_fenced:
        # It is killed by its own executor before the lease ends; one that was stopped does so when it goes on.
        bound = max(fault.ended for fault in excuses) + log.settings.self_fence_kill_seconds
        if earlier.last > bound + HEARD_SECONDS:
            return f"not ended by its own executor: alive {earlier.last - bound:.1f} s too long"
    return None


def excusing_faults(log: Joined, earlier: Effect, until: float) -> list[Fault]:
    """Faults that can have let the lease of an attempt run out while it was going on."""
    margin = log.settings.lease_seconds + log.settings.sweep_seconds
    return log.faults_on_executor(log.hold_of(earlier), earlier.start, until, margin)


# --- how many, and when -----------------------------------------------------------------------------------------


def attempt_budget(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for row in history.runs:
        tries = log.attempts.get(row.run_id, ())
        spec = log.spec(row.job_id, row.version)
        failed_at_last = row.state in FAILURES and row.reason != "poison"
        if spec is None or not (tries or failed_at_last or row.reason == "poison"):
            continue
        findings.fact()
        failures = sum(attempt.state in FAILURES for attempt in tries) + failed_at_last
        losses = sum(attempt.reason == "executor_lost" for attempt in tries) + (row.reason == "poison")
        claims = len(log.holds.get(row.run_id, ()))
        if failures > spec.max_retries + 1:
            findings.violated(row.run_id, f"failed {failures} times with {spec.max_retries} retries", row.ended_at)
        gave_up = failed_at_last and spec.retryable and row.reason not in FIRM_REASONS and row.attempt > 0
        if gave_up and spec.deadline_seconds is None and failures <= spec.max_retries:
            findings.violated(row.run_id, f"given up after {failures} of {spec.max_retries + 1} tries", row.ended_at)
        if losses > history.settings.losses_max or (row.reason == "poison" and losses < history.settings.losses_max):
            findings.violated(row.run_id, f"{row.state} ({row.reason}) after {losses} losses", row.ended_at)
        if claims and row.attempt > claims:
            findings.violated(row.run_id, f"{row.attempt} attempts are counted, {claims} were claimed", row.ended_at)
        if spec.at_most_once and len(log.effects.get(row.run_id, ())) > 1 + failures - failed_at_last:
            findings.violated(row.run_id, "started again although it may start once at most", row.ended_at)
    return findings


def retry_spacing(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, tries in log.attempts.items():
        spec = log.spec_of_run(run_id)
        if spec is None or spec.retry is None:
            continue
        effects = {effect.attempt: effect for effect in log.effects.get(run_id, ())}
        failures = 0
        for attempt in tries:
            if attempt.state not in FAILURES:
                continue
            failures += 1
            before, after = effects.get(attempt.attempt), effects.get(attempt.attempt + 1)
            if before is None or after is None or not log.disturbances.calm(before.start, after.start):
                continue
            findings.fact()
            least, most = delay_range(spec.retry, failures)
            if after.start - before.last < least - CLOCK_SLACK:
                message = f"tried again after {after.start - before.last:.2f} s instead of {least:g} s"
                findings.violated(run_id, message, after.start)
            requeued = _requeued_at(log, run_id, before.fence)
            if (
                requeued is not None
                and not spec.gates
                and after.start - requeued > most + START_SECONDS + log.settings.slack_seconds
            ):
                message = f"tried again after {after.start - requeued:.2f} s instead of {most:g} s"
                findings.violated(run_id, message, after.start)
    return findings


def delay_range(retry: RetrySpec, failures: int) -> tuple[float, float]:
    if retry.delays_seconds:
        delay = retry.delays_seconds[min(failures, len(retry.delays_seconds)) - 1]
        return delay, delay
    delay = min(retry.base_seconds * retry.factor ** min(failures - 1, 64), retry.max_seconds)
    return delay * (1 - retry.jitter), min(delay * (1 + retry.jitter), retry.max_seconds)


def _requeued_at(log: Joined, run_id: str, fence: int) -> float | None:
    hold = next((hold for hold in log.holds.get(run_id, ()) if hold.fence == fence), None)
    if hold is None or hold.close is None or hold.close.new in FINAL:
        return None
    return hold.close.at
