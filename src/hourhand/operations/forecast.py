"""What a caller may ask of the hours to come: what falls due, against slots and learned durations; and where it crowds.

Few jobs are gone through one by one. Of many, the next due time of each is counted, and what follows it is taken from a
sample that is the same however many there are; the answer says so. Going through schedules takes a second at most, and
whoever asks again within a while gets the same answer.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hourhand.model.errors import InvalidParameter
from hourhand.model.exclusion import around
from hourhand.model.forecast import (
    HOURS_MAX,
    Group,
    Pace,
    Tally,
    crowded_minutes,
    falls_due_at,
    pace_after_completion,
    pace_of,
    spread_schedule,
    waits,
)
from hourhand.model.ids import SHARDS
from hourhand.model.local_time import ZoneFault
from hourhand.model.node import Orders
from hourhand.model.node_state import read_facts
from hourhand.model.schedule import CronSchedule, timing_from_json
from hourhand.operations.jobs import Clock
from hourhand.operations.requests import Caller
from hourhand.ports.forecast_stores import ForecastJob, ForecastStore
from hourhand.ports.stores import NodeStore

SAMPLE_MAX: Final = 5000
"""Jobs whose schedules are looked at; more are sampled."""
COUNTED_MAX: Final = 5_000_000
"""Jobs are counted up to here, and only so many cursors are counted one by one."""
LOOKS_MAX: Final = 60_000
"""Due times computed for one forecast."""
LOOKS_EACH_MAX: Final = 1500
"""For one schedule: every minute of a day, and a little more."""
SLICE: Final = 200
"""Due times computed in one go: others want to be answered meanwhile."""
LEARNED_RUNS: Final = 5000
LEARNED_NAMESPACES: Final = 50
SCHEDULES_TOLD: Final = 5
EXAMPLES_TOLD: Final = 5
GROUPS_ASKED: Final = 500
"""Schedules that are asked whether they are part of a crowd, those of most jobs first."""
GOOD_SECONDS_MIN: Final = 5.0
FORECASTING_SHARE: Final = 20
"""Forecasting takes at most a twentieth of the time of one processor."""
_TICK: Final = timedelta(microseconds=1)
NOWHERE: Final = ""
"""The room of what no executor offers."""


class ForecastMinute(msgspec.Struct, frozen=True):
    at: datetime
    due: float
    load: float
    """What falls due in it takes so much of what the slots can do in it; 1 is all."""
    wait_seconds: float
    """How long the last of it waits for a slot."""


class CrowdSchedule(msgspec.Struct, frozen=True):
    cron: str
    zone: str
    jobs: int
    spread: str | None
    """The same with `H`, where that would spread them."""
    examples: list[str]


class Crowd(msgspec.Struct, frozen=True):
    at: datetime
    due: float
    load: float
    clear_seconds: float | None
    """How long the slots need to get through it; None when that is not known."""
    words: str
    schedules: list[CrowdSchedule]
    """Of the caller's namespace, those of most jobs first."""


class Forecast(msgspec.Struct, frozen=True):
    start: datetime
    end: datetime
    executors: int
    slots: dict[str, int]
    """By room: `process` for commands and plain functions, `inline` for HTTP calls and async functions."""
    due: float
    jobs: int
    """Recurring jobs of all namespaces."""
    looked_at: int
    exact: bool
    words: str
    """How it was made."""
    run_seconds: float | None
    """What a run takes on average, as learned; None when none has succeeded yet."""
    minutes: list[ForecastMinute]
    """Those in which something falls due or waits."""
    crowds: list[Crowd]
    notes: list[str]


@dataclass(slots=True)
class _Draft:
    """A forecast under way: what falls due, by the room in which it runs."""

    start: datetime
    minutes: int
    slots: Mapping[str, int]
    tallies: dict[str, Tally]
    groups: list[tuple[str, Group]]
    scale: float
    mean_seconds: float
    uneven: int = 0
    """Jobs that were taken to go on evenly."""

    def tally(self, room: str) -> Tally:
        if room not in self.tallies:
            self.tallies[room] = Tally(self.start, self.minutes)
        return self.tallies[room]


class ForecastOperations:
    def __init__(self, forecasts: ForecastStore, nodes: NodeStore, clock: Clock) -> None:
        self._forecasts = forecasts
        self._nodes = nodes
        self._clock = clock
        self._kept: dict[tuple[int, int], tuple[float, Forecast]] = {}
        """By namespace and hours; and until when it will do."""
        self._making = asyncio.Lock()

    async def forecast(self, caller: Caller, hours: int = HOURS_MAX) -> Forecast:
        if not 1 <= hours <= HOURS_MAX:
            raise InvalidParameter("hours", f"must be from 1 to {HOURS_MAX}")
        key = (caller.namespace_id, hours)
        async with self._making:  # one at a time, however many ask
            good_until, kept = self._kept.get(key, (0.0, None))
            begun = time.monotonic()
            if kept is not None and begun < good_until:
                return kept
            made = await self._make(caller, hours)
            took = time.monotonic() - begun
            self._kept = {k: v for k, v in self._kept.items() if v[0] > begun}
            self._kept[key] = time.monotonic() + max(GOOD_SECONDS_MIN, FORECASTING_SHARE * took), made
            return made

    async def _make(self, caller: Caller, hours: int) -> Forecast:
        now = self._clock.now()
        jobs = await self._forecasts.count_recurring(COUNTED_MAX)
        shards = SHARDS if jobs <= SAMPLE_MAX else max(SHARDS * SAMPLE_MAX // jobs, 1)
        end = Tally(now, hours * 60).end
        found = await self._forecasts.forecast_jobs(caller.namespace_id, now, end, shards, 2 * SAMPLE_MAX)
        learned = await self._forecasts.learned_seconds(LEARNED_RUNS, LEARNED_NAMESPACES)
        executors, slots, room_of = await self._executors()
        mean = _mean_seconds(learned)
        groups = _grouped(
            [job for job in found if job.paused_until is None or job.paused_until < end], learned, mean, room_of
        )
        draft = _Draft(now, hours * 60, slots, {}, groups, SHARDS / shards, mean or 0.0)
        sampled = shards < SHARDS
        await _expand(draft, without_first=sampled)
        await self._count(draft, now, sampled, jobs)
        total = [sum(column) for column in zip(*(tally.due for tally in draft.tallies.values()), strict=True)]
        minutes = _minutes(draft, total)
        return Forecast(
            draft.start.replace(second=0, microsecond=0),
            end,
            executors,
            dict(slots),
            round(sum(total), 1),
            jobs,
            len(found),
            not sampled and not draft.uneven,
            _words(jobs, len(found), sampled, draft.uneven),
            mean,
            [minute for minute in minutes if minute.due or minute.wait_seconds],
            await _crowds(draft, minutes),
            _notes(draft, executors, mean, sum(job.paused_until is not None for job in found)),
        )

    async def _executors(self) -> tuple[int, dict[str, int], dict[str, str]]:
        """How many take work, their slots by room, and the room of each need that they offer."""
        slots: Counter[str] = Counter()
        rooms: dict[str, str] = {}
        executors = 0
        for row in await self._nodes.present_nodes():
            facts = read_facts(row.facts)
            if row.role != "executor" or row.lease_until < row.now or facts.obeys is not Orders.WORK:
                continue
            executors += 1
            rooms |= facts.offers
            for room, places in facts.slots.items():
                slots[room] += places.total
        return executors, dict(slots), rooms

    async def _count(self, draft: _Draft, now: datetime, sampled: bool, jobs: int) -> None:
        """What need not be computed: jobs that run once, and of a sample the next due time of every job."""
        end = Tally(now, draft.minutes).end
        since = now.replace(second=0, microsecond=0)
        # Of very many not even that: then the cursors of a part of the shards stand for all.
        shards = SHARDS if jobs < COUNTED_MAX else SHARDS // 16
        shares = _shares(draft)
        for recurring in (True, False) if sampled else (False,):
            for at, count in (await self._forecasts.count_next_fires(recurring, since, end, shards)).items():
                for room, share in shares.items():
                    draft.tally(room).add(at, count * share * SHARDS / shards, draft.mean_seconds)
        draft.tally(NOWHERE)  # so that there is at least one


def _mean_seconds(learned: Mapping[UUID, tuple[float, int]]) -> float | None:
    runs = sum(count for _, count in learned.values())
    return sum(seconds * count for seconds, count in learned.values()) / runs if runs else None


def _grouped(
    jobs: Sequence[ForecastJob],
    learned: Mapping[UUID, tuple[float, int]],
    mean: float | None,
    room_of: Mapping[str, str],
) -> list[tuple[str, Group]]:
    """Jobs by room and schedule, the schedules of most jobs first."""
    groups: dict[tuple[str, str, tuple[int, ...], datetime | None, int | None], Group] = {}
    for job in jobs:
        # Calendars of the same name are others in another namespace.
        rules = tuple(id(rule) for rule in job.rules.values())
        key = (room_of.get(job.needs, NOWHERE), job.timing, rules, job.paused_until, job.runs_left)
        group = groups.get(key)
        if group is None:
            timing = timing_from_json(msgspec.json.decode(job.timing))
            if job.runs_left is not None:
                timing = msgspec.structs.replace(timing, max_runs=job.runs_left)
            group = groups[key] = Group(around(timing, job.rules))
        group.first.append(max(job.next_fire, job.paused_until or job.next_fire))
        group.seconds += learned[job.job_id][0] if job.job_id in learned else mean or 0.0
        if job.name is not None:
            group.own += 1
            if len(group.examples) < EXAMPLES_TOLD:
                group.examples.append(job.name)
    return sorted(((room, group) for (room, *_), group in groups.items()), key=lambda pair: -pair[1].jobs)


async def _expand(draft: _Draft, *, without_first: bool) -> None:
    """Goes through the schedules. When the time for it is used up, the rest is taken to go on evenly."""
    left = LOOKS_MAX
    computed = 0
    for room, group in draft.groups:
        tally = draft.tally(room)
        try:
            pace = _pace(group, tally.end, min(LOOKS_EACH_MAX, max(left, 3)))
        except ZoneFault:
            continue  # it is not planned either
        left -= len(pace.times)
        computed += len(pace.times)
        draft.uneven += group.jobs if pace.per_minute else 0
        count, jitter = group.jobs * draft.scale, group.timing.jitter
        tally.add_pace(pace, count, group.run_seconds, without_first=without_first, jitter=jitter)
        if computed >= SLICE:
            computed = 0
            await asyncio.sleep(0)


def _pace(group: Group, end: datetime, looks_max: int) -> Pace:
    timing, first = group.timing, min(group.first)
    if timing.after_completion is not None:
        delay, most = timing.after_completion, timing.max_runs
        return pace_after_completion(delay, group.run_seconds, first, end, looks_max, most)
    # A cursor also stands where a calendar leaves a due time out, and where a pause ends.
    due = timing.next_after(first - _TICK)
    return Pace(()) if due is None else pace_of(timing, due, end, looks_max)


def _shares(draft: _Draft) -> dict[str, float]:
    """How jobs are shared out between the rooms, going by those whose room is known; if there are none, all are taken
    to run where there is the least room."""
    counts: Counter[str] = Counter()
    for room, group in draft.groups:
        counts[room] += group.jobs
    total = counts.total()
    if total:
        return {room: count / total for room, count in counts.items()}
    return {min(draft.slots, key=lambda room: draft.slots[room], default=NOWHERE): 1.0}


def _minutes(draft: _Draft, total: Sequence[float]) -> list[ForecastMinute]:
    loads, waiting = [0.0] * draft.minutes, [0.0] * draft.minutes
    for room, tally in draft.tallies.items():
        slots = draft.slots.get(room, 0)
        if not slots:
            continue
        for place, (work, wait) in enumerate(zip(tally.work_seconds, waits(tally.work_seconds, slots), strict=True)):
            loads[place] = max(loads[place], work / (slots * 60))
            waiting[place] = max(waiting[place], wait)
    at = Tally(draft.start, draft.minutes).at
    return [
        ForecastMinute(at(place), round(due, 2), round(loads[place], 4), round(waiting[place], 1))
        for place, due in enumerate(total)
    ]


async def _crowds(draft: _Draft, minutes: Sequence[ForecastMinute]) -> list[Crowd]:
    crowds = []
    for place in crowded_minutes([minute.due for minute in minutes]):
        minute = minutes[place]
        clear = max(
            (
                tally.work_seconds[place] / draft.slots[room]
                for room, tally in draft.tallies.items()
                if draft.slots.get(room) and tally.work_seconds[place]
            ),
            default=None,
        )
        clear = None if clear is None else round(clear, 1)
        schedules = _schedules_at(draft, minute.at)
        several = any(falls_due_at(group.timing, minute.at, 2) for _, group in draft.groups[:GROUPS_ASKED])
        words = _crowd_words(minute, "runs" if several else "jobs", clear)
        crowds.append(Crowd(minute.at, minute.due, minute.load, clear, words, schedules))
        await asyncio.sleep(0)
    return crowds


def _schedules_at(draft: _Draft, at: datetime) -> list[CrowdSchedule]:
    """Those of the caller's jobs that are part of a crowd."""
    told: list[CrowdSchedule] = []
    own = [group for _, group in draft.groups if group.own][:GROUPS_ASKED]
    for group in own:
        if len(told) >= SCHEDULES_TOLD:
            break
        schedules = group.timing.schedules
        if len(schedules) != 1 or not isinstance(schedules[0], CronSchedule) or not falls_due_at(group.timing, at):
            continue
        jobs = round(group.own * draft.scale)
        told.append(
            CrowdSchedule(
                schedules[0].text, group.timing.zone, jobs, spread_schedule(group.timing), list(group.examples)
            )
        )
    return told


def _crowd_words(minute: ForecastMinute, due: str, clear_seconds: float | None) -> str:
    words = f"{minute.due:.0f} {due} at {minute.at:%H:%M} UTC"
    if clear_seconds is None:
        return words
    if minute.load > 1:
        return f"{words} need {minute.load:.1f} times what the slots can do in that minute"
    return f"{words}; the slots get through them in {clear_seconds:.0f} s"


def _words(jobs: int, looked_at: int, sampled: bool, uneven: int) -> str:
    if sampled:
        least = "at least " if jobs >= COUNTED_MAX else ""
        return (
            f"a sample: of {least}{jobs} jobs the next due time of each was counted, what follows was computed for "
            f"{looked_at} of them and stands for all"
        )
    if uneven:
        return f"all {jobs} jobs; {uneven} that fall due very often are taken to go on evenly"
    return f"all {jobs} jobs, every due time"


def _notes(draft: _Draft, executors: int, mean: float | None, paused: int) -> list[str]:
    notes = []
    if paused:
        held = f"{round(paused * draft.scale)} jobs are held by a pause"
        notes.append(f"{held}: they count from its end on, and not at all if it has none")
    if not executors:
        notes.append("no executor takes work just now: nothing can be said about slots")
    nowhere = sum(group.jobs for room, group in draft.groups if room == NOWHERE)
    if executors and nowhere:
        notes.append(f"{round(nowhere * draft.scale)} jobs need something that no executor offers just now")
    if mean is None:
        notes.append("no run has succeeded yet, so nobody knows how long runs take")
    return notes
