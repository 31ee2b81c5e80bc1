"""The life of a run: it happens, it takes legal steps only, it ends, and its end is final."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import WITHDRAWN, History, RunEvent, RunRow
from tests.chaos.joined import EXECUTING, FINAL, RESULTS, Joined, joined

from hourhand.model.states import STEPS

NO_EFFECT: Final = frozenset(
    {"not_started", "exec_not_found", "not_executable", "bad_arguments", "unknown_handler", "target_blocked", "poison"}
)
"""Reasons for which a run fails without its job having been started."""
BORN: Final = frozenset({"queued", "waiting", "skipped", "missed"})
LEGAL: Final = frozenset(
    {(source.word, target.word) for (source, _event), target in STEPS.items()}
    | {("queued", WITHDRAWN), ("waiting", WITHDRAWN)}
    | {(WITHDRAWN, state) for state in BORN}
)
"""The documented steps, and that a run which is not due yet can be taken back and made anew."""
OPEN_SECONDS: Final = 5.0
"""How shortly before the final read something may have become due, been claimed or ended without what follows from it:
without having been started, heard of, or written down."""


def at_least_once(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for row in history.runs:
        if row.state not in RESULTS or row.reason in NO_EFFECT:
            continue
        spec = log.spec(row.job_id, row.version)
        if spec is None or not spec.witnessed or _ended_unstarted(row):
            continue
        findings.fact()
        if row.run_id not in log.effects:
            findings.violated(row.run_id, f"{row.state}, but its effect was never seen", row.ended_at)
    return findings


def _ended_unstarted(row: RunRow) -> bool:
    """Its time was over before it began: while it waited, or between its claim and its start."""
    return row.state == "timed_out" and (not row.attempt or row.reason == "deadline")


def every_run_ends(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    alive = [row for row in history.runs if row.live and row.state in EXECUTING and _is_alive(log, row)]
    for row in history.runs:
        findings.fact()
        if row.live and not _may_be_open(log, row, alive):
            findings.violated(row.run_id, f"still {row.state} at the final read", row.scheduled_for)
    for run_id, events in log.events.items():
        if run_id not in log.run and events[-1].new != WITHDRAWN:
            findings.violated(run_id, f"was {events[-1].new} and is in no table", events[-1].at)
    return findings


def _may_be_open(log: Joined, row: RunRow, alive: Sequence[RunRow]) -> bool:
    spec = log.spec(row.job_id, row.version)
    read_at = log.settings.read_at
    if spec is not None and spec.expected_unfinished:
        return True
    if max(row.scheduled_for, row.ready_at or 0.0) > read_at - OPEN_SECONDS:
        return True
    if row.state in EXECUTING:
        return _is_alive(log, row)
    if row.state != "waiting":
        return False
    gates = set(spec.gates) if spec is not None else set()

    def in_its_way(other: RunRow) -> bool:
        before = other.job_id == row.job_id and (other.live or other.scheduled_for < row.scheduled_for)
        return before or bool(gates & set(getattr(log.spec(other.job_id, other.version), "gates", ())))

    # Its turn has come when the one before it has ended: a moment later it may not have been told yet.
    just_ended = (other for other in log.history.runs if _ended_at(log, other) > read_at - OPEN_SECONDS)
    return any(in_its_way(other) for other in alive) or any(in_its_way(other) for other in just_ended)


def _ended_at(log: Joined, row: RunRow) -> float:
    events = log.events.get(row.run_id)
    return events[-1].at if events and events[-1].new in FINAL else 0.0


def _is_alive(log: Joined, row: RunRow) -> bool:
    """Its attempt was heard of lately and is inside its time; or was taken up, or ended, a moment ago, and what follows
    from that was not seen or not written yet."""
    effect = next((effect for effect in log.effects.get(row.run_id, ()) if effect.fence == row.fence), None)
    spec = log.spec(row.job_id, row.version)
    read_at = log.settings.read_at
    if effect is None:
        holds = log.holds.get(row.run_id)
        return bool(holds) and holds[-1].fence == row.fence and holds[-1].claim.at > read_at - OPEN_SECONDS
    if effect.end is not None:
        return effect.end > read_at - OPEN_SECONDS
    if effect.last < read_at - log.settings.lease_seconds:
        return False
    timeout = spec.timeout_seconds if spec is not None else None
    return timeout is None or effect.start + timeout + log.settings.grace_seconds >= read_at


def terminal_is_final(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, events in log.events.items():
        end = next((place for place, event in enumerate(events) if event.new in FINAL), None)
        if end is None:
            continue
        findings.fact()
        if end + 1 < len(events):
            findings.violated(run_id, f"{events[end].new}, and then {events[end + 1].new}", events[end + 1].at)
        row = log.run.get(run_id)
        if row is not None and not row.live and row.state not in {event.new for event in events[end:]}:
            findings.violated(run_id, f"ended as {events[end].new} and is stored as {row.state}", events[end].at)
    return findings


def legal_transitions(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    for run_id, events in log.events.items():
        state: str | None = None
        for event in events:
            if state in FINAL:
                break  # what comes after the end is judged by another rule
            findings.fact()
            if message := _illegal(state, event):
                findings.violated(run_id, message, event.at)
            state = event.new
    return findings


def _illegal(state: str | None, event: RunEvent) -> str | None:
    if state is None:
        return None if event.new in BORN else f"made as {event.new}"
    if event.old is not None and event.old != state:
        return f"was {state} and left {event.old}"
    if event.new == state or (state, event.new) in LEGAL:
        return None  # a row may be written again without a step
    return f"{state} became {event.new}"


def one_result(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    rows = Counter(row.run_id for row in history.runs)
    for run_id, count in rows.items():
        if count > 1:
            findings.violated(run_id, f"stored {count} times")
    for run_id, events in log.events.items():
        results = [event for event in events if event.new in FINAL]
        if results:
            findings.fact()
        if len(results) > 1:
            told = ", ".join(f"{event.new} (attempt {event.attempt})" for event in results)
            findings.violated(run_id, f"{len(results)} results: {told}", results[1].at)
    return findings
