"""Figures of a chaos run: how long rescue, hand-over, cancel and recovery took. The promised ones have a bound."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.history import Fault, History
from tests.chaos.invariants.cancel import cancel_acks
from tests.chaos.invariants.ownership import shard_gaps
from tests.chaos.invariants.timing import recoveries
from tests.chaos.joined import Hold, Joined, joined
from tests.chaos.pickups import pickups, quantile
from tests.chaos.windows import HARMLESS_ACTIONS

RESCUE_MARGIN_SECONDS = 1.0
TERM_SECONDS = 2.0
TREE_MARGIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Figure:
    name: str
    value: float
    unit: str
    samples: int
    bound: float | None = None
    detail: str = ""

    @property
    def kept(self) -> bool:
        """Whether it is within its bound; what was not measured breaks none."""
        return self.bound is None or not self.samples or self.value <= self.bound


def figures(history: History) -> list[Figure]:
    settings, slack = history.settings, history.settings.slack_seconds
    rescue, tree = settings.lease_seconds + RESCUE_MARGIN_SECONDS, settings.grace_seconds + TREE_MARGIN_SECONDS
    return [
        *_spread("rescue after executor kill", rescue_times(history), rescue + slack),
        _shard_gap(history),
        *_spread("cancel acknowledged → TERM", term_times(history), TERM_SECONDS + slack),
        _most("cancel acknowledged → tree gone", tree_times(history), tree + slack),
        *_pickup_figures(history),
        _most(
            "recovery to p99 < 2 s", [s for _, judged, s in recoveries(history) if judged], settings.recovery_seconds
        ),
        *_overlap_figures(history),
        *_client_figures(history),
    ]


def _spread(name: str, seconds: Sequence[float], bound: float) -> list[Figure]:
    return [
        Figure(f"{name}, p50", quantile(seconds, 0.5), "s", len(seconds)),
        Figure(f"{name}, p99", quantile(seconds, 0.99), "s", len(seconds), bound),
        Figure(f"{name}, max", max(seconds, default=0.0), "s", len(seconds)),
    ]


def _most(name: str, seconds: Sequence[float], bound: float) -> Figure:
    return Figure(f"{name}, max", max(seconds, default=0.0), "s", len(seconds), bound)


# --- rescue ------------------------------------------------------------------------------------------------------


def rescue_times(history: History) -> list[float]:
    """For each run that an executor held when it was killed, and nothing else broke: how long until it ran again."""
    log = joined(history)
    kills = [fault for fault in history.faults if fault.action == "kill" and fault.role == "executor"]
    held_by: dict[str, list[Hold]] = {}
    for run_id, holds in log.holds.items():
        spec = log.spec_of_run(run_id)
        if spec is not None and spec.gates:
            continue  # it may wait for its limit
        for hold in holds:
            held_by.setdefault(log.executor_of(hold) or "", []).append(hold)
    return [
        seconds
        for kill in kills
        for hold in held_by.get(kill.target, ())
        if hold.claim.at < kill.started
        and (hold.close is None or hold.close.at > kill.started)
        and (seconds := _started_again(log, hold, kill)) is not None
    ]


def _started_again(log: Joined, lost: Hold, kill: Fault) -> float | None:
    following = [hold for hold in log.holds[lost.run_id] if hold.fence > lost.fence]
    if not following:
        return None  # cancelled meanwhile, or its last loss
    effect = next((e for e in log.effects.get(lost.run_id, ()) if e.fence == following[0].fence), None)
    again = effect.start if effect is not None else following[0].claim.at
    return None if _disturbed(log, kill.started, again, but=kill) else again - kill.started


def _disturbed(log: Joined, start: float, end: float, but: Fault) -> bool:
    """Whether those who rescue were themselves in trouble. After an outage of the database they wait for a lease."""
    shard_lease = log.settings.shard_lease_seconds
    lease = log.settings.lease_seconds if but.role == "executor" else shard_lease
    margins = {"scheduler": shard_lease, "leader": shard_lease, "executor": 0.0}
    for fault in log.history.faults:
        everywhere = fault in log.disturbances.of_database
        concerned = everywhere or fault.role in {"scheduler", "leader", but.role}
        if fault is but or not concerned or fault.action in HARMLESS_ACTIONS:
            continue
        if fault.started <= end and fault.ended + (lease if everywhere else margins[fault.role]) >= start:
            return True
    return False


def _shard_gap(history: History) -> Figure:
    """Of kills and stops that came alone."""
    log = joined(history)
    alone: dict[float, bool] = {}
    for fault in history.faults:
        if fault.role in {"scheduler", "leader"}:
            until = fault.started + history.settings.shard_lease_seconds
            alone[fault.started] = not _disturbed(log, fault.started, until, but=fault)
    gaps = [end - start for _, start, end in shard_gaps(history) if alone.get(start)]
    bound = history.settings.shard_lease_seconds + RESCUE_MARGIN_SECONDS + history.settings.slack_seconds
    return Figure("shard without an owner, max", max(gaps, default=0.0), "s", len(gaps), bound)


# --- cancel ------------------------------------------------------------------------------------------------------


def term_times(history: History) -> list[float]:
    """From the acknowledgement of a cancel to the signal, where the executor and the database were well."""
    log = joined(history)
    found: list[float] = []
    for run_id, call in cancel_acks(history):
        assert call.ended_at is not None
        for effect in log.effects.get(run_id, ()):
            end = max(effect.last, call.ended_at)
            if effect.term is None or effect.term < call.invoked_at:
                continue
            if not log.faults_on_executor(log.hold_of(effect), call.invoked_at, end, log.settings.recovery_seconds):
                found.append(max(effect.term - call.ended_at, 0.0))
    return found


def tree_times(history: History) -> list[float]:
    """From the acknowledgement to the last line of any process, under the same conditions."""
    log = joined(history)
    found: list[float] = []
    for run_id, call in cancel_acks(history):
        assert call.ended_at is not None
        for effect in log.effects.get(run_id, ()):
            hold = log.hold_of(effect)
            if effect.last < call.invoked_at:
                continue
            if not log.faults_on_executor(hold, call.invoked_at, effect.last, log.settings.recovery_seconds):
                found.append(max(effect.last - call.ended_at, 0.0))
    return found


# --- the rest ----------------------------------------------------------------------------------------------------


def _pickup_figures(history: History) -> list[Figure]:
    log = joined(history)
    calm = [sample.seconds for sample in pickups(history) if log.disturbances.calm(sample.due, sample.started)]
    everything = [sample.seconds for sample in pickups(history)]
    return [
        Figure("start after due without faults, p50", quantile(calm, 0.5), "s", len(calm)),
        Figure("start after due without faults, p99", quantile(calm, 0.99), "s", len(calm)),
        Figure("start after due, faults and all, p99", quantile(everything, 0.99), "s", len(everything)),
    ]


def _overlap_figures(history: History) -> list[Figure]:
    log = joined(history)
    overlaps: list[float] = []
    surplus = 0
    for effects in log.effects.values():
        last = float("-inf")
        for effect in sorted(effects, key=lambda effect: effect.start):
            if effect.start < last:
                overlaps.append(min(last, effect.last) - effect.start)
            last = max(last, effect.last)
        surplus += sum(effect.end is None for effect in effects[:-1])
    runs = len(log.effects)
    late = sum(attempt.late_at is not None for attempt in history.attempts)
    return [
        Figure("attempts side by side", len(overlaps), "", runs),
        Figure("attempts side by side, longest", max(overlaps, default=0.0), "s", len(overlaps)),
        Figure("surplus attempts per 10,000 runs", surplus * 10_000 / runs if runs else 0.0, "", runs),
        Figure("late outcomes refused", late, "", len(history.attempts)),
    ]


def _client_figures(history: History) -> list[Figure]:
    leaders = {event.epoch for event in history.lease_events if event.name == "leader"}
    answers = [call.outcome for call in history.calls]
    told = f"{answers.count('ok')} ok, {answers.count('fail')} fail, {answers.count('info')} info"
    return [
        Figure("client calls", len(answers), "", len(answers), detail=told),
        Figure("leaders", len(leaders), "", len(history.lease_events)),
    ]
