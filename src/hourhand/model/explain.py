"""Why a run is where it is: every gate it has to pass, in order, with what is known of it now.

A pure function from a snapshot to an explanation.
"""

from collections.abc import Callable, Sequence
from typing import Final

from hourhand.model.ends import end_of
from hourhand.model.explain_executors import (
    look_at_executors,
    look_at_labels,
    look_at_part,
    look_at_resources,
    look_at_slots,
    tell_parts,
)
from hourhand.model.findings import (
    Explanation,
    Finding,
    GateName,
    Passage,
    held,
    opened,
    tell_ago,
    tell_span,
    tell_time,
    tell_wait,
)
from hourhand.model.gates import next_start
from hourhand.model.policy import Rate, format_rate
from hourhand.model.snapshot import AHEAD_MAX, GateFacts, Snapshot
from hourhand.model.states import EXECUTING_STATES, JobState, Reason, RunState

__all__ = ["Explanation", "GateName", "Passage", "explain"]


def explain(s: Snapshot) -> Explanation:
    if s.state.is_final:
        return _ended(s)
    if s.state in EXECUTING_STATES:
        return _executing(s)
    findings = [finding for look in _LOOKS for finding in look(s)]
    holding = _holding(s, findings)
    if holding is None:
        summary, advice = "nothing holds it back: an executor takes it within a moment", None
    else:
        summary, advice = holding.summary, holding.advice
    return _explanation(s, summary, [finding.passage for finding in findings], advice)


def _holding(s: Snapshot, findings: Sequence[Finding]) -> Finding | None:
    """What the run waits on, if it was told to wait; else the first gate it cannot pass."""
    closed = [finding for finding in findings if not finding.passage.passed]
    named = (finding for finding in closed if finding.gate_id is not None and finding.gate_id == s.waits_on)
    return next(named, closed[0] if closed else None)


# --- runs that wait ---------------------------------------------------------------------------------------


def _look_at_job(s: Snapshot) -> list[Finding]:
    match s.job_state:
        case JobState.CANCELLED:
            return [held(GateName.JOB, "the job is cancelled", "its job is cancelled: it will not start")]
        case JobState.PAUSED:
            by = f" by {s.paused_by}" if s.paused_by else ""
            since = f" since {tell_time(s.paused_at)}" if s.paused_at else ""
            until = f" until {tell_time(s.pause_until)}" if s.pause_until else ""
            why = f" ({s.pause_reason})" if s.pause_reason else ""
            paused = f"the job is paused{by}{since}{until}{why}"
            return [opened(GateName.JOB, f"{paused}, which does not hold back runs that are made already")]
        case _ if s.held_by:
            pauses = "; ".join(s.held_by)
            return [opened(GateName.JOB, f"{pauses}, which does not hold back runs that are made already")]
        case _:
            return [opened(GateName.JOB, "the job is active")]


def _look_at_time(s: Snapshot) -> list[Finding]:
    waits = s.ready_at > s.now
    if waits and not s.attempt and not _waits_for_rate(s):
        when = f"due at {tell_time(s.ready_at)}, {tell_wait(s, s.ready_at)}"
        if s.ready_at > s.scheduled_for:
            starts = f"starts by its jitter at {tell_time(s.ready_at)}, {tell_wait(s, s.ready_at)}"
            when = f"due at {tell_time(s.scheduled_for)} and {starts}"
        return [held(GateName.DUE, when, f"is {when}", s.ready_at)]
    findings = [opened(GateName.DUE, f"was due at {tell_time(s.scheduled_for)}, {tell_ago(s, s.scheduled_for)}")]
    if s.attempt and waits and not _waits_for_rate(s):
        why = f" ({s.reason})" if s.reason else ""
        detail = f"back-off after attempt {s.attempt}{why} until {tell_time(s.ready_at)}, {tell_wait(s, s.ready_at)}"
        summary = f"waits for its next attempt until {tell_time(s.ready_at)}, {tell_wait(s, s.ready_at)}"
        findings.append(held(GateName.RETRY, detail, summary, s.ready_at))
    elif s.attempt:
        findings.append(opened(GateName.RETRY, f"attempt {s.attempt + 1} may start"))
    return findings


def _waits_for_rate(s: Snapshot) -> bool:
    """A rate gives a run another time to start at, and leaves its mark."""
    return s.state is RunState.QUEUED and any(gate.rate and gate.gate_id == s.waits_on for gate in s.gates)


def _look_at_overlap(s: Snapshot) -> list[Finding]:
    earlier = [sibling for sibling in s.siblings if sibling.run_id < s.run_id]
    if s.waits_on != 0 or s.state is not RunState.WAITING:
        return []
    if not earlier:
        detail = "the earlier run of its job has just ended: it is let go within a second"
        return [held(GateName.OVERLAP, detail, "waits for its turn, which comes within a second", gate_id=0)]
    first, more = earlier[0], len(earlier) - 1
    since = f" since {tell_time(first.started_at)}" if first.started_at else ""
    others = f", and {more} more" if more else ""
    detail = f"waits for run {first.run_id} of the same job ({first.state.word}{since}){others}"
    advice = "cancel the earlier run, or allow both: overlap = allow"
    return [held(GateName.OVERLAP, detail, "waits for an earlier run of its job", advice=advice, gate_id=0)]


def _look_at_queue(s: Snapshot) -> list[Finding]:
    if s.queue_paused_at is None:
        return [opened(GateName.QUEUE, f"queue {s.queue} is not paused")]
    by = f" by {s.queue_paused_by}" if s.queue_paused_by else ""
    why = f": {s.queue_pause_reason}" if s.queue_pause_reason else ""
    until = f" until {tell_time(s.queue_pause_until)}" if s.queue_pause_until else ""
    detail = f"queue {s.queue} is paused since {tell_time(s.queue_paused_at)}{by}{until}{why}"
    summary = f"waits because queue {s.queue} is paused{until}{why}"
    return [held(GateName.QUEUE, detail, summary, s.queue_pause_until, f"hourhand queue resume {s.queue}")]


def _look_at_rates(s: Snapshot) -> list[Finding]:
    return [_rate(s, gate, gate.rate) for gate in s.gates if gate.rate is not None]


def _rate(s: Snapshot, gate: GateFacts, rate: Rate) -> Finding:
    told = f"{_label(s, gate)} may start {format_rate(rate)}"
    retimed = _waits_for_rate(s) and gate.gate_id == s.waits_on and s.ready_at > s.now
    opens = s.ready_at if retimed else next_start(rate, gate.starts, s.now)
    if opens <= s.now:
        return opened(GateName.RATE, f"{told}: there is room for a start now")
    when = f"next start at {tell_time(opens)}, {tell_wait(s, opens)}"
    summary = f"waits for the rate limit of {_label(s, gate)}: {when}"
    return held(GateName.RATE, f"{told}: {when}", summary, opens, gate_id=gate.gate_id)


def _look_at_limits(s: Snapshot) -> list[Finding]:
    return [_limit(s, gate, gate.capacity) for gate in s.gates if gate.capacity is not None]


def _limit(s: Snapshot, gate: GateFacts, capacity: int) -> Finding:
    name = _limit_name(s, gate)
    told = f"{name}: {gate.taken} of {capacity} held"
    waits_here = s.state is RunState.WAITING and s.waits_on == gate.gate_id
    if gate.taken < capacity and not waits_here:
        return opened(GateName.LIMIT, told)
    if gate.taken < capacity:
        detail = f"{told}: one has just become free, and it is let go within a second"
    else:
        detail = told + _held_by(gate)
    article = "" if gate.kind == "key" else "the "
    line = f"; {_ahead(gate.ahead)} ahead of it" if gate.ahead and waits_here else ""
    return held(GateName.LIMIT, detail, f"waits for a slot of {article}{name}{line}", gate_id=gate.gate_id)


def _held_by(gate: GateFacts) -> str:
    named = [f"run {h.run_id} (job {h.job_name}, since {tell_time(h.since)})" for h in gate.holders]
    more = gate.taken - len(named)
    if more > 0:
        named.append(f"{more} more")
    return f" by {', '.join(named)}" if named else ""


def _look_at_others(s: Snapshot) -> list[Finding]:
    if s.state is RunState.WAITING:  # it does not compete for slots yet, but stands in the line of its gate
        return [_place_in_line(s, gate) for gate in s.gates if gate.gate_id == s.waits_on]
    competition = s.competition
    full = any(not finding.passage.passed for finding in look_at_slots(s))
    findings = []
    if competition.weight_of_others:
        whole = competition.weight + competition.weight_of_others
        detail = (
            f"namespace {s.namespace} has {competition.weight} of {whole} parts among those that wait for these slots"
        )
        findings.append(Finding(Passage(GateName.SHARE, not full, detail), f"waits for its share: {detail}"))
    if competition.ahead:
        detail = f"{_ahead(competition.ahead)} of higher or equal priority ahead of it"
        findings.append(Finding(Passage(GateName.PRIORITY, not full, detail), detail))
    else:
        findings.append(opened(GateName.PRIORITY, f"priority {s.priority}: no run is ahead"))
    return findings


def _place_in_line(s: Snapshot, gate: GateFacts) -> Finding:
    place = f"{_ahead(gate.ahead)} ahead of it in the line" if gate.ahead else "it is the next in the line"
    detail = f"priority {s.priority}: {place} for the {_limit_name(s, gate)}"
    return Finding(Passage(GateName.PRIORITY, not gate.ahead, detail), detail)


def _ahead(count: int) -> str:
    return f"more than {AHEAD_MAX}" if count > AHEAD_MAX else str(count)


_LOOKS: Final[Sequence[Callable[[Snapshot], list[Finding]]]] = (
    _look_at_job,
    _look_at_time,
    _look_at_overlap,
    _look_at_queue,
    look_at_executors,
    look_at_labels,
    look_at_part,
    look_at_resources,
    look_at_slots,
    _look_at_rates,
    _look_at_limits,
    _look_at_others,
)


# --- runs in somebody's hands, and runs that have ended ---------------------------------------------------


def _executing(s: Snapshot) -> Explanation:
    passages = [
        opened(GateName.DUE, f"was due at {tell_time(s.scheduled_for)}, {tell_ago(s, s.scheduled_for)}").passage
    ]
    passages += [_limit_held(s, gate, gate.capacity) for gate in s.gates if gate.capacity is not None]
    name = s.executor.name if s.executor else "an executor"
    silent = _silence(s)
    match s.state:
        case RunState.CLAIMED:
            gate, summary = GateName.CLAIMED, f"claimed by {name}; attempt {s.attempt} starts now"
        case RunState.CANCELLING:
            gate, summary = GateName.CANCELLING, f"cancel was asked for; {name} is ending attempt {s.attempt}"
        case _:
            gate = GateName.RUNNING
            since = f" since {tell_time(s.started_at)}, for {tell_span(s.now - s.started_at)}" if s.started_at else ""
            summary = f"running on {name}{since}, attempt {s.attempt}"
    passages.append(Passage(gate, True, summary + silent))
    if s.parts:
        summary = tell_parts(s)
        passages.append(Passage(GateName.PARTS, True, f"{summary}: hourhand run parts {s.run_id}"))
    return _explanation(s, summary + silent, passages)


def _limit_held(s: Snapshot, gate: GateFacts, capacity: int) -> Passage:
    name = _limit_name(s, gate)
    return Passage(GateName.LIMIT, True, f"{name}: {gate.taken} of {capacity} held, one of them by this run")


def _silence(s: Snapshot) -> str:
    if s.executor is None or (s.executor.state.is_present and s.executor.lease_until >= s.now):
        return ""
    if not s.executor.state.is_present:
        return f"; {s.executor.name} is {s.executor.state.value}, and the run is given to another in a moment"
    return (
        f"; the lease of {s.executor.name} ran out {tell_ago(s, s.executor.lease_until)}: "
        "if it stays silent the run is given to another"
    )


def _ended(s: Snapshot) -> Explanation:
    end = end_of(s.state, s.reason)
    when = f" at {tell_time(s.ended_at)}" if s.ended_at else ""
    why = f" ({s.reason})" if s.reason and s.reason != s.state.word else ""
    meaning = "; ".join(filter(None, (end.meaning, _why_not_again(s))))
    means = f": {meaning}" if meaning else ""
    tries = f" in attempt {s.attempt}" if s.attempt else ""
    first_line = (s.error or "").strip().partition("\n")[0][:200]
    said = f"; it said: {first_line}" if first_line else ""
    summary = f"{s.state.word}{why}{means}"
    detail = f"{s.state.word}{when}{tries}{why}{means}{said}"
    advice = None if end.advice is None else end.advice.format(run_id=s.run_id, job_id=s.job_id)
    return _explanation(s, summary, [Passage(GateName.ENDED, True, detail)], advice)


_NOT_A_MATTER_OF_RETRIES: Final = (Reason.DEADLINE, Reason.QUEUE_TIMEOUT, Reason.POISON, Reason.SNOOZED)


def _why_not_again(s: Snapshot) -> str:
    """As far as it can be known afterwards: what exactly the attempt said of itself is not kept."""
    failed = s.state in (RunState.FAILED, RunState.TIMED_OUT) and s.attempt and s.reason not in _NOT_A_MATTER_OF_RETRIES
    retry = s.retry
    if not failed or retry is None:
        return ""
    if s.at_most_once:
        return "it may run at most once, so it was not tried again"
    if not retry.max_retries:
        return "its job has no retries"
    if s.failures > retry.max_retries:
        return "its only retry is used up" if retry.max_retries == 1 else f"all {retry.max_retries} retries are used up"
    if retry.on and s.reason not in retry.on:
        never = f" and never {', '.join(retry.never_on)}" if retry.never_on else ""
        return f"its job retries only {', '.join(retry.on)}{never}"
    if s.reason in retry.never_on:
        return f"its job never retries {s.reason}"
    if s.reason == Reason.EXCEPTION and not retry.never_on:
        return "the job said that trying again cannot help"
    if retry.never_on:
        return f"its job never retries {', '.join(retry.never_on)}, nor what trying again cannot help"
    return "trying again cannot help with such a failure"


# --- words ------------------------------------------------------------------------------------------------


def _explanation(s: Snapshot, summary: str, gates: Sequence[Passage], advice: str | None = None) -> Explanation:
    expires_at = s.expires_at if s.state in (RunState.QUEUED, RunState.WAITING) else None
    return Explanation(s.run_id, s.job_id, s.job_name, s.state.word, summary, gates, advice, expires_at)


def _limit_name(s: Snapshot, gate: GateFacts) -> str:
    return f"limit {gate.name}" if gate.kind == "key" else f"limit of {_label(s, gate)}"


def _label(s: Snapshot, gate: GateFacts) -> str:
    match gate.kind:
        case "job":
            return f"job {s.job_name}"
        case "namespace":
            return f"namespace {s.namespace}"
        case kind:
            return f"{kind} {gate.name}"
