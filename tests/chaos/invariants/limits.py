"""Limits: never more at once than allowed, neither in the database nor in what was seen to run."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import History, JobSpec, RunEvent, RunRow
from tests.chaos.joined import CLOCK_SLACK, EXECUTING, FINAL, Joined, joined
from tests.chaos.windows import Window

EXCLUSIVE: Final = frozenset({"skip", "queue_one", "queue_all"})
"""Overlap policies under which the runs of a job follow each other."""
JUDGED_SECONDS: Final = 1.0
"""Beyond the interval of sweeps: how long it may take until a due run is judged."""


def concurrency_limit(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    slots = _sweep_slots(findings, history)
    seen = 0
    for gate, (limit, runs) in _gated(log).items():
        most, at = most_at_once(window for run_id in runs for window in rightful_effects(log, run_id))
        seen = max(seen, most)
        findings.fact(len(runs))
        if most > limit:
            findings.violated(gate, f"{most} were seen to run at once, {limit} are allowed", at)
    findings.remarks.append(f"most slots of one gate held: {slots}; most seen running: {seen}")
    return findings


def _sweep_slots(findings: Findings, history: History) -> int:
    held: dict[str, set[str]] = defaultdict(set)
    most = 0
    for event in sorted(history.gate_events, key=lambda event: event.order):
        holders = held[event.gate]
        if not event.taken:
            holders.discard(event.run_id)
            continue
        holders.add(event.run_id)
        findings.fact()
        most = max(most, len(holders))
        if event.capacity is not None and len(holders) > event.capacity:
            message = f"{len(holders)} slots are held, {event.capacity} are allowed"
            findings.violated(event.gate, message, event.at)
    return most


def _gated(log: Joined) -> dict[str, tuple[int, list[str]]]:
    """Gate -> its limit as the workload asked for it, and the runs that must pass it."""
    found: dict[str, tuple[int, list[str]]] = {}
    for row in log.run.values():
        spec = log.spec(row.job_id, row.version)
        for gate, limit in spec.gates.items() if spec is not None else ():
            found.setdefault(gate, (limit, []))[1].append(row.run_id)
    return found


def rightful_effects(log: Joined, run_id: str) -> Iterable[Window]:
    """When attempts of a run were seen to go on while they held its token; what a zombie does later is not counted."""
    for effect in log.effects.get(run_id, ()):
        hold = log.hold_of(effect)
        end = effect.last if hold is None or hold.close is None else min(effect.last, hold.close.at)
        if end > effect.start:
            yield Window(effect.start, end)


def most_at_once(windows: Iterable[Window]) -> tuple[int, float | None]:
    """The largest number of windows that share a moment, and that moment."""
    steps: list[tuple[float, int]] = []
    for window in windows:
        steps += [(window.start, 1), (window.end, -1)]  # an end sorts before a start of the same moment
    now, most, at = 0, 0, None
    for moment, step in sorted(steps):
        now += step
        if now > most:
            most, at = now, moment
    return most, at


# --- one job's runs among each other ---------------------------------------------------------------------------


def overlap_policy(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for job_id, rows in log.runs_of_job.items():
        spec = log.spec(job_id)
        scheduled = [*{row.run_id: row for row in rows if row.cause != "manual"}.values()]
        if spec is None or len(scheduled) < 2:
            continue
        if spec.overlap_policy in EXCLUSIVE:
            _one_at_a_time(findings, log, job_id, scheduled)
        if spec.overlap_policy == "queue_one":
            _one_waits(findings, log, job_id, scheduled)
        if spec.overlap_policy == "cancel_running":
            _replaced(findings, log, scheduled)
        _skipped_for_cause(findings, log, rows, spec)
    return findings


def _one_at_a_time(findings: Findings, log: Joined, job_id: str, rows: list[RunRow]) -> None:
    findings.fact(len(rows))
    begun: set[str] = set()
    for event in _in_order(log, rows):
        if event.new in EXECUTING:
            begun.add(event.run_id)
        elif event.new in FINAL:  # a run that waits for its retry is not finished
            begun.discard(event.run_id)
        if len(begun) > 1:
            findings.violated(job_id, f"{len(begun)} runs are unfinished under its overlap policy", event.at)
            return
    most, at = most_at_once(window for row in rows for window in rightful_effects(log, row.run_id))
    if most > 1:
        findings.violated(job_id, f"{most} runs were seen at once under its overlap policy", at)


def _one_waits(findings: Findings, log: Joined, job_id: str, rows: list[RunRow]) -> None:
    """At most one due run waits for its turn; another may do so for the moment until it is judged."""
    waits: list[Window] = []
    for row in rows:
        events = log.events.get(row.run_id, [])
        for event, following in zip(events, [*events[1:], None], strict=True):
            if event.new == "waiting":
                start = max(event.at, event.scheduled_for) + log.settings.sweep_seconds + JUDGED_SECONDS
                end = following.at if following is not None else log.settings.read_at
                if start < end and log.disturbances.calm(event.at, start):
                    waits.append(Window(start, end))
    most, at = most_at_once(waits)
    if most > 1:
        findings.violated(job_id, f"{most} runs wait although one may", at)


def _replaced(findings: Findings, log: Joined, rows: list[RunRow]) -> None:
    """Under `cancel_running` the older run has ended before the newer one has a result."""
    unfinished: dict[str, float] = {}
    for event in _in_order(log, rows):
        if event.new in EXECUTING:
            unfinished[event.run_id] = event.scheduled_for
        elif event.new in FINAL:
            findings.fact()
            unfinished.pop(event.run_id, None)
            older = [run_id for run_id, due in unfinished.items() if due < event.scheduled_for]
            if event.new == "succeeded" and older:
                findings.violated(older[0], "not replaced: a newer run had its result first", event.at)


def _in_order(log: Joined, rows: list[RunRow]) -> list[RunEvent]:
    events = [event for row in rows for event in log.events.get(row.run_id, ())]
    return sorted(events, key=lambda event: event.order)


def _skipped_for_cause(findings: Findings, log: Joined, rows: list[RunRow], spec: JobSpec) -> None:
    """Who was skipped found an earlier run of the job unfinished at its due time, or a later one took its place."""
    busy_until = float("-inf")
    for row, following in zip(rows, [*rows[1:], None], strict=True):  # by due time
        due, ended_at = row.scheduled_for, _ended_at(log, row)
        if row.state == "skipped":
            findings.fact()
            replaced = row.reason == "superseded" and following is not None and following.scheduled_for <= ended_at
            unfinished = busy_until >= due - log.settings.claim_ahead_seconds - CLOCK_SLACK
            if not replaced and not unfinished:
                findings.violated(row.run_id, f"skipped ({spec.overlap_policy}) although nothing was unfinished", due)
        if row.state != "missed":
            busy_until = max(busy_until, ended_at)


def _ended_at(log: Joined, row: RunRow) -> float:
    events = log.events.get(row.run_id)
    return events[-1].at if events and events[-1].new in FINAL else float("inf")
