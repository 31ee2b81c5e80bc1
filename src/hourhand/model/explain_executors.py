"""Whether an executor is there that may take a run, and whether it has room: a part of why a run waits."""

import difflib
from collections.abc import Sequence
from typing import Final

from hourhand.model.findings import Finding, GateName, counted, held, opened, tell_span
from hourhand.model.node_state import NodeState
from hourhand.model.placement import missing_labels, nearest_labels, tell_labels
from hourhand.model.resources import SLOTS, tell_amount
from hourhand.model.room import tell_too_large
from hourhand.model.snapshot import Executor, Snapshot
from hourhand.model.states import RunState

_TOLD_MAX: Final = 3


def look_at_executors(s: Snapshot) -> list[Finding]:
    serving = [executor for executor in s.executors if executor.facts.serves(s.queue)]
    offering = [executor for executor in serving if s.needs in executor.facts.offers]
    if offering:
        offer = "offers" if len(offering) == 1 else "offer"
        return [opened(GateName.EXECUTOR, f"needs {s.needs}: {counted(offering, 'executor')} of this queue {offer} it")]
    waits = f"waits for an executor that offers {s.needs}"
    if not s.executors:
        detail = f"needs {s.needs}: no executor is alive"
        advice = "start one: hourhand executor --database URL; hourhand up starts its own again by itself"
        return [held(GateName.EXECUTOR, detail, "waits for an executor: none is alive", advice=advice)]
    if not serving:
        serve = "serves" if len(s.executors) == 1 else "serve"
        detail = f"no live executor serves queue {s.queue}; {counted(s.executors, 'executor')} {serve} others"
        summary = f"waits for an executor that serves queue {s.queue}"
        advice = (
            f"start one: hourhand executor --database URL --queue {s.queue}; "
            f"or, with everything on one machine: HOURHAND_EXECUTOR_QUEUES='*' hourhand up"
        )
        return [held(GateName.EXECUTOR, detail, summary, advice=advice)]
    elsewhere = [executor for executor in s.executors if s.needs in executor.facts.offers]
    hint = f"offered in other queues by {elsewhere[0].name}; " if elsewhere else _nearest(s.needs, serving)
    detail = (
        f"needs {s.needs}: no live executor offers it; {hint}{counted(serving, 'executor')} "
        f"{'serves' if len(serving) == 1 else 'serve'} this queue"
    )
    return [held(GateName.EXECUTOR, detail, waits, advice="start an executor that has it, or correct the job")]


def _nearest(needs: str, executors: Sequence[Executor]) -> str:
    """Offers of the same kind whose names are much alike. What all of a kind begin with does not make them so."""
    kind, _, name = needs.rpartition(":")
    offered = {
        need.rpartition(":")[2]: need
        for executor in executors
        for need in sorted(executor.facts.offers)
        if need.rpartition(":")[0] == kind
    }
    close = difflib.get_close_matches(name, sorted(offered), n=2, cutoff=0.75)
    return f"nearest: {', '.join(offered[each] for each in close)}; " if close else ""


def look_at_labels(s: Snapshot) -> list[Finding]:
    """Among those that serve its queue and offer what it needs: who has the labels that it asks for."""
    offering = [e for e in s.executors if e.facts.serves(s.queue) and s.needs in e.facts.offers]
    labels = s.demands.labels
    if not labels or not offering:
        return []
    asked = f"needs {tell_labels(labels)}"
    it = "it" if len(labels) == 1 else "them"
    fitting = [executor for executor in offering if executor.fits(s)]
    if fitting:
        have = f"{fitting[0].name} has {it}" if len(fitting) == 1 else f"{counted(fitting, 'executor')} have {it}"
        return [opened(GateName.LABEL, f"{asked}: {have}")]
    detail = f"{asked}: no live executor of this queue has {'it' if len(labels) == 1 else 'all of them'}"
    hint = _label_hint(s, offering)
    advice = f"start one: hourhand executor --database URL {' '.join(f'--label {label}' for label in labels)}"
    return [held(GateName.LABEL, detail + hint, f"{asked}: no live executor", advice=advice)]


def _label_hint(s: Snapshot, offering: Sequence[Executor]) -> str:
    """Who comes near: has the labels but takes no such runs, lacks few of them, or has one that is written alike."""
    elsewhere = [executor for executor in s.executors if executor.has_labels(s)]
    if elsewhere:
        found = elsewhere[0]
        lacks = f"offer {s.needs}" if found.facts.serves(s.queue) else f"serve queue {s.queue}"
        return f"; {found.name} does, but does not {lacks}"
    labels = s.demands.labels
    best = min(offering, key=lambda executor: len(missing_labels(labels, executor.facts.labels)))
    lacking = missing_labels(labels, best.facts.labels)
    alike = nearest_labels(lacking[0], (label for executor in offering for label in executor.facts.labels))
    nearest = f"; nearest: {', '.join(alike)}" if alike else ""
    return (f"; {best.name} lacks {', '.join(lacking)}" if len(lacking) < len(labels) else "") + nearest


def look_at_part(s: Snapshot) -> list[Finding]:
    """Of a part: the executor that it is for."""
    if s.part is None:
        return []
    told = f"part {s.part.place + 1} of {s.part.total} of run {s.part.parent_id}"
    if s.part.node is None:
        detail = f"{told}: as many executors as its job asks for are not there"
        advice = "start another executor that may take it"
        return [held(GateName.PARTS, detail, "waits for a further executor: each has a part already", advice=advice)]
    if not s.executors:
        detail = f"{told}: {s.part.node}, which it was for, is gone; it goes to another, or ends, in a moment"
        return [held(GateName.PARTS, detail, f"waits because {s.part.node} is gone")]
    return [opened(GateName.PARTS, f"{told}, for {s.part.node}")]


def tell_parts(s: Snapshot) -> str:
    ended = [part for part in s.parts if part.state.is_final]
    bad = [part for part in ended if part.state is not RunState.SUCCEEDED]
    waiting = [part for part in s.parts if part.state in (RunState.QUEUED, RunState.WAITING)]
    told = f"{len(ended)} of {len(s.parts)} parts have ended"
    if bad:
        told += f", {len(bad)} of them without success"
    if waiting:
        where = ", ".join(part.node or "a further executor" for part in waiting[:_TOLD_MAX])
        told += f"; {len(waiting)} wait for {where}{' and others' if len(waiting) > _TOLD_MAX else ''}"
    return told


def look_at_resources(s: Snapshot) -> list[Finding]:
    """Among those that may take it: who is large enough, and who has room now."""
    able = [executor for executor in s.executors if executor.fits(s)]
    if not s.demands.weighs or not able:
        return []
    too_large = tell_too_large(s.needs, s.demands, [executor.facts for executor in able])
    if too_large:
        advice = "declare less, or start an executor that has it: hourhand executor --resource NAME=AMOUNT"
        return [held(GateName.RESOURCE, too_large, too_large, advice=advice)]
    large = [executor for executor in able if executor.is_large_enough(s)]
    amounts = [*s.demands.counted.items(), *([(SLOTS, s.demands.slots)] if s.demands.slots > 1 else [])]
    asked = f"takes {', '.join(tell_amount(name, amount) for name, amount in amounts)}"
    roomy = [executor for executor in large if not executor.facts.lacking_now(s.needs, s.demands)]
    if roomy:
        have = f"{roomy[0].name} has" if len(roomy) == 1 else f"{counted(roomy, 'executor')} have"
        return [opened(GateName.RESOURCE, f"{asked}: {have} room for it")]
    told = [
        _in_use(s, executor, name)
        for executor in large[:_TOLD_MAX]
        for name in executor.facts.lacking_now(s.needs, s.demands)
    ]
    more = f"; and {len(large) - _TOLD_MAX} executors more" if len(large) > _TOLD_MAX else ""
    detail = f"{asked}: {'; '.join(told)}{more}"
    return [held(GateName.RESOURCE, detail, f"waits for room: {told[0]}")]


def _in_use(s: Snapshot, executor: Executor, name: str) -> str:
    if name == SLOTS:
        slots = executor.facts.slots_for(s.needs)
        return f"slots: {slots.used} of {slots.total} in use on {executor.name}"
    amount = executor.facts.resources[name]
    named = [
        f"run {run_id} (job {s.holders[run_id].job_name}, {tell_amount(name, part)})"
        for run_id, part in amount.by
        if run_id in s.holders
    ]
    by = f" by {', '.join(named)}{' and others' if len(named) < len(amount.by) else ''}" if named else ""
    used, total = tell_amount(name, amount.used), tell_amount(name, amount.total)
    return f"{name}: {used} of {total} in use on {executor.name}{by}"


def look_at_slots(s: Snapshot) -> list[Finding]:
    offering = [executor for executor in s.executors if executor.fits(s) and executor.is_large_enough(s)]
    if not offering:
        return []
    working = [executor for executor in offering if executor.state is NodeState.WORKING]
    if not working:
        states = sorted({executor.state.value for executor in offering})
        who = (
            "the executor that offers it is"
            if len(offering) == 1
            else f"all {len(offering)} executors that offer it are"
        )
        detail = f"{who} {' or '.join(states)}"
        advice = f"hourhand node resume {offering[0].name}" if offering[0].state is not NodeState.LATE else None
        return [held(GateName.SLOT, detail, f"waits for an executor: {detail}", advice=advice)]
    used = sum(executor.facts.slots_for(s.needs).used for executor in working)
    total = sum(executor.facts.slots_for(s.needs).total for executor in working)
    if used >= total:
        who = (
            "the executor that offers it is" if len(working) == 1 else f"all {len(working)} executors that offer it are"
        )
        detail = f"{who} full: {used} of {total} slots"
        advice = "start another executor, or give this one more slots"
        return [held(GateName.SLOT, detail, f"waits for a free slot: {detail}", advice=advice)]
    free = f"{total - used} of {total} slots are free on {counted(working, 'executor')}"
    troubles = [_trouble(s, executor) for executor in working]
    if all(troubles):
        told = "; ".join(filter(None, troubles))
        return [held(GateName.SLOT, f"{free}, but {told}", f"waits for an executor: {told}")]
    return [opened(GateName.SLOT, free)]


def _trouble(s: Snapshot, executor: Executor) -> str | None:
    """Why somebody who is there and has room may take nothing all the same."""
    silence = executor.silent_for(s.now)
    if silence is not None:
        return f"nothing was heard of {executor.name} for {tell_span(silence)}"
    if executor.facts.late_loops:
        return f"{executor.name} is late with its work ({', '.join(executor.facts.late_loops)})"
    return None
