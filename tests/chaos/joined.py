"""The logs of a history joined by run, job and node, each look-up made once and kept with the history."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar

from tests.chaos.history import (
    AttemptRow,
    ClientCall,
    Fault,
    History,
    JobRow,
    JobSpec,
    LedgerRow,
    NodeEvent,
    RunEvent,
    RunRow,
    WitnessLine,
)
from tests.chaos.windows import Disturbances

from hourhand.model.states import EXECUTING_STATES, FINAL_STATES

FINAL: Final = frozenset(state.word for state in FINAL_STATES)
EXECUTING: Final = frozenset(state.word for state in EXECUTING_STATES)
RESULTS: Final = frozenset({"succeeded", "failed", "timed_out"})
"""Final states that an attempt's own outcome leads to."""
CLOCK_SLACK: Final = 0.05
"""By how much the stamps of two logs may disagree about one moment."""

_Item = TypeVar("_Item")


@dataclass(slots=True)
class Effect:
    """What one attempt was seen to do. An attempt is known by its fence."""

    run_id: str
    attempt: int
    fence: int
    start: float
    """Its first line."""
    last: float
    """Its last line, from any process of it."""
    end: float | None = None
    """Its own end, unless it was killed."""
    failed: bool = False
    term: float | None = None
    """The first time it was told to stop."""
    lines: list[WitnessLine] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Hold:
    """A stretch in which the database gave a run to an executor: from a claim to the event that ended it."""

    run_id: str
    fence: int
    attempt: int
    executor_id: int | None
    claim: RunEvent
    close: RunEvent | None
    """The event that took the run out of the executor's hands; None when it still holds it at the final read."""


class Joined:
    def __init__(self, history: History) -> None:
        self.history = history
        self.settings = history.settings
        self.disturbances = Disturbances(history.faults, history.settings)

    # --- by job ---

    @cached_property
    def specs(self) -> dict[str, dict[int, JobSpec]]:
        """Job -> version -> what was asked."""
        found: dict[str, dict[int, JobSpec]] = defaultdict(dict)
        for spec in self.history.specs:
            found[spec.job_id][spec.version] = spec
        return dict(found)

    def spec(self, job_id: str, version: int | None = None) -> JobSpec | None:
        """The version asked for, or the newest one up to it; the newest of all when the version is not known."""
        versions = self.specs.get(job_id)
        if not versions:
            return None
        if version is None:
            return versions[max(versions)]
        return versions.get(version) or versions[max((v for v in versions if v <= version), default=min(versions))]

    @cached_property
    def jobs(self) -> dict[str, JobRow]:
        return {row.job_id: row for row in self.history.jobs}

    @cached_property
    def runs_of_job(self) -> dict[str, list[RunRow]]:
        return grouped(self.history.runs, "job_id", "scheduled_for")

    @cached_property
    def ledger_of_job(self) -> dict[str, list[LedgerRow]]:
        return grouped(self.history.ledger, "job_id", "first_due")

    @cached_property
    def calls_on_job(self) -> dict[str, list[ClientCall]]:
        return grouped((call for call in self.history.calls if call.job_id), "job_id", "invoked_at")

    @cached_property
    def calls_on_run(self) -> dict[str, list[ClientCall]]:
        return grouped((call for call in self.history.calls if call.run_id), "run_id", "invoked_at")

    # --- by run ---

    @cached_property
    def run(self) -> dict[str, RunRow]:
        """The row of a run; the final one if there are two."""
        return {row.run_id: row for row in sorted(self.history.runs, key=lambda row: not row.live)}

    def spec_of_run(self, run_id: str) -> JobSpec | None:
        row = self.run.get(run_id)
        if row is not None:
            return self.spec(row.job_id, row.version)
        events = self.events.get(run_id)
        return self.spec(events[0].job_id, events[0].version) if events else None

    @cached_property
    def events(self) -> dict[str, list[RunEvent]]:
        return grouped(self.history.run_events, "run_id", "order")

    @cached_property
    def attempts(self) -> dict[str, list[AttemptRow]]:
        return grouped(self.history.attempts, "run_id", "attempt")

    @cached_property
    def holds(self) -> dict[str, list[Hold]]:
        """Run -> the stretches in which somebody held it, in order."""
        return {run_id: found for run_id, events in self.events.items() if (found := _holds(run_id, events))}

    @cached_property
    def effects(self) -> dict[str, list[Effect]]:
        """Run -> what its attempts were seen to do, by start."""
        found: dict[tuple[str, int], Effect] = {}
        for line in sorted(self.history.witness, key=attrgetter("at")):
            key = (line.run_id, line.fence)
            effect = found.get(key)
            if effect is None:
                effect = found[key] = Effect(line.run_id, line.attempt, line.fence, line.at, line.at)
            effect.last = line.at
            effect.lines.append(line)
            if line.phase == "end" and line.who == "leader":
                effect.end, effect.failed = line.at, line.failed
            elif line.phase == "term" and effect.term is None:
                effect.term = line.at
        by_run: dict[str, list[Effect]] = defaultdict(list)
        for effect in found.values():
            by_run[effect.run_id].append(effect)
        return dict(by_run)

    def hold_of(self, effect: Effect) -> Hold | None:
        """The claim under which an effect ran."""
        return next((hold for hold in self.holds.get(effect.run_id, ()) if hold.fence == effect.fence), None)

    # --- by node ---

    @cached_property
    def node_names(self) -> dict[int, str]:
        names = {event.node_id: event.name for event in self.history.node_events}
        return names | {node.node_id: node.name for node in self.history.nodes}

    @cached_property
    def node_roles(self) -> dict[str, set[str]]:
        roles: dict[str, set[str]] = defaultdict(set)
        for node in self.history.nodes:
            roles[node.name].add(node.role)
        for event in self.history.node_events:
            roles[event.name].add(event.role)
        return dict(roles)

    @cached_property
    def _leases(self) -> dict[int, list[NodeEvent]]:
        return grouped(self.history.node_events, "node_id", "order")

    def lease_until(self, node_id: int, order: int) -> float | None:
        """The end of the node's lease as the database knew it at that point of its log; None when it is not known."""
        events = self._leases.get(node_id, [])
        place = bisect_right(events, order, key=attrgetter("order")) - 1
        if place < 0:
            return None
        return min(events[place].lease_until, events[place].at) if events[place].ended else events[place].lease_until

    def executor_of(self, hold: Hold | None) -> str | None:
        if hold is None or hold.executor_id is None:
            return None
        return self.node_names.get(hold.executor_id)

    def faults_on_executor(self, hold: Hold | None, start: float, end: float, margin: float = 0.0) -> list[Fault]:
        """Faults that can have kept the executor of a run, or the word to it, from doing its work."""
        return self.disturbances.on(self.executor_of(hold), start, end, margin)


def joined(history: History) -> Joined:
    """The joined form, made at the first call and kept."""
    kept: Joined | None = history.__dict__.get("joined")
    if kept is None:
        kept = history.__dict__["joined"] = Joined(history)
    return kept


def grouped(items: Iterable[_Item], key: str, order: str) -> dict[Any, list[_Item]]:
    """Items by one field, each group sorted by another."""
    groups: dict[Any, list[_Item]] = defaultdict(list)
    for item in sorted(items, key=attrgetter(order)):
        groups[getattr(item, key)].append(item)
    return dict(groups)


def _holds(run_id: str, events: list[RunEvent]) -> list[Hold]:
    found: list[Hold] = []
    claim: RunEvent | None = None
    for event in events:
        if event.new == "claimed" and event.old != "claimed":
            claim = event
        elif claim is not None and event.new not in EXECUTING:
            found.append(_hold(run_id, claim, event))
            claim = None
    if claim is not None:
        found.append(_hold(run_id, claim, None))
    return found


def _hold(run_id: str, claim: RunEvent, close: RunEvent | None) -> Hold:
    return Hold(run_id, claim.fence or 0, claim.attempt, claim.executor_id, claim, close)
