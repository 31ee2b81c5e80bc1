"""How late first attempts started, where nothing but the cluster itself could have delayed them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from tests.chaos.history import History, JobSpec
from tests.chaos.joined import joined


@dataclass(frozen=True, slots=True, order=True)
class Pickup:
    due: float
    started: float
    run_id: str

    @property
    def seconds(self) -> float:
        return self.started - self.due


def pickups(history: History) -> list[Pickup]:
    """One per run that was to start at its due time, in the order of these. Kept with the history."""
    kept: list[Pickup] | None = history.__dict__.get("pickups")
    if kept is None:
        kept = history.__dict__["pickups"] = sorted(_pickups(history))
    return kept


def _pickups(history: History) -> list[Pickup]:
    log = joined(history)
    held_back = {event.run_id for event in history.run_events if event.new == "waiting"}
    paused = {call.job_id for call in history.calls if call.op == "pause" and call.outcome != "fail"}
    found: list[Pickup] = []
    for row in log.run.values():
        effects = log.effects.get(row.run_id)
        spec = log.spec(row.job_id, row.version)
        if not effects or spec is None or row.run_id in held_back or _waits_for_others(spec):
            continue
        if row.job_id in paused and not spec.recurring:
            continue  # a resumed job that runs once starts then, not when it was due
        due = row.scheduled_for
        if row.cause == "manual" and (events := log.events.get(row.run_id)):
            due = max(due, events[0].at)  # a repeated run stands for an old due time
        found.append(Pickup(due, min(effect.start for effect in effects), row.run_id))
    return found


def _waits_for_others(spec: JobSpec) -> bool:
    return bool(spec.gates) or spec.overlap_policy in {"queue_one", "queue_all"}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
