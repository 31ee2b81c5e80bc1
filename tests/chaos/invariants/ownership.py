"""Who may write what: one leader at a time, one owner per shard, nobody in the name of an old epoch."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import History, LeaseEvent, RunEvent, ShardEvent
from tests.chaos.joined import CLOCK_SLACK, Joined, grouped, joined

STATEMENT_SECONDS: Final = 1.0
"""A statement that began under the old owner may end this long after the hand-over. It moved its cursors by lock."""
REASSIGN_MARGIN_SECONDS: Final = 2.0


def shard_epoch(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    owners = _owners(history)
    for shard, events in owners.items():
        for before, event in pairwise(events):
            findings.fact()
            if event.epoch < before.epoch or (event.epoch == before.epoch and event.owner_id != before.owner_id):
                findings.violated(f"shard {shard}", f"epoch {event.epoch} after {before.epoch}", event.at)
    for run_id, run_events in log.events.items():
        birth = run_events[0]
        if birth.cause in {"once", "schedule"} and birth.shard is not None:
            _judge_writer(findings, log, run_id, birth, owners.get(birth.shard, ()))
    return findings


def _judge_writer(findings: Findings, log: Joined, run_id: str, birth: RunEvent, events: Sequence[ShardEvent]) -> None:
    if birth.epoch is not None:
        place = bisect_right(events, birth.order, key=attrgetter("order")) - 1
        findings.fact()
        if place >= 0 and birth.epoch < events[place].epoch and birth.at > events[place].at + STATEMENT_SECONDS:
            findings.violated(run_id, f"written under epoch {birth.epoch} of {events[place].epoch}", birth.at)
    roles = log.node_roles.get(birth.actor or "", set())
    if birth.actor is None or "scheduler" not in roles or "api" in roles:
        return  # an API node makes the run of a job that is due at once; it needs no shard
    findings.fact()
    owner_names = _owner_names(log, birth, events)
    if owner_names and birth.actor not in owner_names:
        message = f"{birth.actor} planned for shard {birth.shard}, which belongs to {' or '.join(sorted(owner_names))}"
        findings.violated(run_id, message, birth.at)


def _owner_names(log: Joined, birth: RunEvent, events: Sequence[ShardEvent]) -> set[str]:
    """Who owned the shard at the write, or at most one statement earlier. Nobody where that is not known: owners from
    before the recording are not in it."""
    place = bisect_right(events, birth.order, key=attrgetter("order")) - 1
    owners = {birth.shard_owner_id}
    while place >= 0:
        owners.add(events[place].owner_id)
        if events[place].at < birth.at - STATEMENT_SECONDS:
            break
        if place == 0:
            return set()
        place -= 1
    return {name for owner in owners if owner is not None and (name := log.node_names.get(owner))}


def _owners(history: History) -> dict[int, list[ShardEvent]]:
    return grouped(history.shard_events, "shard", "order")


def one_leader(history: History) -> Findings:
    findings = Findings()
    by_name: dict[str, list[LeaseEvent]] = grouped(history.lease_events, "name", "order")
    for name, events in by_name.items():
        holder_of: dict[int, int] = {}
        for event in events:
            findings.fact()
            if holder_of.setdefault(event.epoch, event.node_id) != event.node_id:
                both = f"{holder_of[event.epoch]} and {event.node_id}"
                findings.violated(name, f"epoch {event.epoch} belongs to the nodes {both}", event.at)
        for before, event in pairwise(events):
            if event.epoch < before.epoch:
                findings.violated(name, f"epoch {event.epoch} after {before.epoch}", event.at)
            if event.node_id != before.node_id and event.at < before.lease_until - CLOCK_SLACK:
                early = before.lease_until - event.at
                findings.violated(name, f"taken {early:.2f} s before the lease of its holder had ended", event.at)
    return findings


# --- coverage ----------------------------------------------------------------------------------------------------


def coverage(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    bound = history.settings.shard_lease_seconds + REASSIGN_MARGIN_SECONDS
    longest = 0.0
    for shard, start, end in shard_gaps(history):
        findings.fact()
        longest = max(longest, end - start)
        if end - start > bound + database_away(log, start, end):
            findings.violated(f"shard {shard}", f"without an owner for {end - start:.1f} s", start)
    findings.remarks.append(f"longest without an owner: {longest:.1f} s")
    return findings


def database_away(log: Joined, start: float, end: float) -> float:
    """How much longer things may take because the database was away: nobody can be appointed, nor renew a lease."""
    faults = [fault for fault in log.disturbances.of_database if fault.started <= end and fault.ended >= start]
    return sum(fault.ended - fault.started + log.settings.shard_lease_seconds for fault in faults)


def shard_gaps(history: History) -> list[tuple[int, float, float]]:
    """Shard, from when to when nobody who could act owned it."""
    log = joined(history)
    downs = _downs(history)
    gaps: list[tuple[int, float, float]] = []
    for shard, events in _owners(history).items():
        owned = False
        for place, event in enumerate(events):
            following = events[place + 1].at if place + 1 < len(events) else history.settings.read_at
            if event.owner_id is None:
                if owned:
                    gaps.append((shard, event.at, following))
                continue
            owned = True
            for down, up in downs.get(log.node_names.get(event.owner_id, ""), ()):
                if event.at <= down < following:
                    gaps.append((shard, down, min(following, up)))
    return gaps


def _downs(history: History) -> dict[str, list[tuple[float, float]]]:
    """Node -> when it could not act: stopped until it went on, killed for good (what comes back registers anew)."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for fault in history.faults:
        if fault.action == "kill":
            found[fault.target].append((fault.started, float("inf")))
        elif fault.action in {"stop", "partition"}:
            found[fault.target].append((fault.started, fault.ended))
    return found
