"""What falls due in the hours to come, minute by minute, against the slots there are and what runs take.

Many jobs share a schedule, so each schedule is looked at once. One that falls due more often than there is time to
count is taken to go on evenly at the pace of its first due times. All numbers may be fractions: where only a part of
the jobs was looked at, each of them stands for several.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median
from typing import Final

from msgspec.structs import replace

from hourhand.model.cron import MACROS
from hourhand.model.schedule import CronSchedule, Timing

MINUTE: Final = timedelta(minutes=1)
_TICK: Final = timedelta(microseconds=1)
HOURS_MAX: Final = 24
CROWDS_MAX: Final = 10
CROWD_DUE_MIN: Final = 10
"""Fewer at one minute are no crowd."""
CROWD_TIMES_MIN: Final = 5
"""A crowd has so many times as much as the average minute, not counting what falls due steadily."""
CROWD_STEADY_SHARE: Final = 2
"""And beyond what falls due steadily at least one part in so many of that: a little more than always is no crowd."""


@dataclass(slots=True)
class Group:
    """Jobs with one and the same schedule, with the same calendars and pauses."""

    timing: Timing
    first: list[datetime] = field(default_factory=list)
    """When each of them falls due next."""
    seconds: float = 0.0
    """What a run of each takes, all together."""
    own: int = 0
    """How many of them may be named."""
    examples: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return len(self.first)

    @property
    def run_seconds(self) -> float:
        return self.seconds / self.jobs if self.jobs else 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """When a schedule falls due: at these times, and from the last of them on evenly so often a minute."""

    times: Sequence[datetime]
    per_minute: float = 0.0


def pace_of(timing: Timing, first: datetime, end: datetime, looks_max: int) -> Pace:
    """Its due times from `first` up to `end` (not included), at most `looks_max` of them one by one."""
    timing = _up_to(timing, end)
    times: list[datetime] = []
    due: datetime | None = first
    while due is not None and due < end and len(times) != timing.max_runs:
        if len(times) >= max(looks_max, 2):
            return Pace(times, (len(times) - 1) / ((times[-1] - times[0]) / MINUTE))
        times.append(due)
        due = timing.next_after(due)
    return Pace(times)


def pace_after_completion(
    delay: timedelta, run_seconds: float, first: datetime, end: datetime, looks_max: int, runs_max: int | None = None
) -> Pace:
    """The same for jobs that fall due a while after each run has ended, if runs take as long as they did."""
    step = delay + timedelta(seconds=run_seconds)
    looks = min(-((first - end) // step), max(looks_max, 2)) if first < end else 0
    times = [first + number * step for number in range(looks)]
    if runs_max is not None and runs_max <= looks:
        return Pace(times[:runs_max])
    return Pace(times, MINUTE / step if times and times[-1] + step < end else 0.0)


class Tally:
    """What falls due in each minute, and how long it takes to run all of it."""

    def __init__(self, start: datetime, minutes: int) -> None:
        self.start = start.replace(second=0, microsecond=0)
        self.due = [0.0] * minutes
        self.work_seconds = [0.0] * minutes

    @property
    def end(self) -> datetime:
        return self.start + len(self.due) * MINUTE

    def at(self, place: int) -> datetime:
        return self.start + place * MINUTE

    def add(self, at: datetime, count: float, run_seconds: float) -> None:
        """What is overdue counts for the first minute; what lies beyond the end does not count."""
        place = max(int((at - self.start) / MINUTE), 0)
        if place < len(self.due):
            self.due[place] += count
            self.work_seconds[place] += count * run_seconds

    def add_spread(self, at: datetime, over: timedelta, count: float, run_seconds: float) -> None:
        """Starts that are spread evenly over a while after `at`."""
        parts = max(-(-over // MINUTE), 1)
        for part in range(parts):
            self.add(at + (2 * part + 1) * over / (2 * parts), count / parts, run_seconds)

    def add_pace(
        self,
        pace: Pace,
        count: float,
        run_seconds: float,
        *,
        without_first: bool = False,
        jitter: timedelta | None = None,
    ) -> None:
        skipped = 1 if without_first else 0
        for place, at in enumerate(pace.times[skipped:], skipped):
            if jitter is None:
                self.add(at, count, run_seconds)
            else:
                following = pace.times[place + 1] if place + 1 < len(pace.times) else at + jitter
                self.add_spread(at, min(jitter, following - at), count, run_seconds)
        if pace.per_minute:
            place = max(int((pace.times[-1] - self.start) / MINUTE) + 1, 0)
            for later in range(place, len(self.due)):
                self.due[later] += count * pace.per_minute
                self.work_seconds[later] += count * pace.per_minute * run_seconds


def waits(work_seconds: Sequence[float], slots: int) -> Iterator[float]:
    """How long what falls due in each minute waits for a slot, if all is shared out evenly: in seconds."""
    backlog = 0.0
    for work in work_seconds:
        backlog += work
        # What is left when a minute has gone by is what the next one waits for.
        yield max(backlog / slots - 60, 0.0) if slots else 0.0
        backlog = max(backlog - slots * 60, 0.0)


def crowded_minutes(due: Sequence[float]) -> list[int]:
    """The minutes in which far more falls due than usual, the fullest first."""
    if not due:
        return []
    # The median minute holds what falls due all the time: measured with it, a steady load would hide every crowd.
    steady = median(due)
    beyond = [max(count - steady, 0.0) for count in due]
    least = max(CROWD_DUE_MIN, CROWD_TIMES_MIN * sum(beyond) / len(beyond), steady / CROWD_STEADY_SHARE)
    crowded = [place for place, count in enumerate(beyond) if count >= least]
    return sorted(crowded, key=lambda place: (-due[place], place))[:CROWDS_MAX]


def falls_due_at(timing: Timing, minute: datetime, times: int = 1) -> bool:
    """Whether it falls due so many times in a minute."""
    last = minute + MINUTE - _TICK
    return len(_up_to(timing, last).due_between(minute - _TICK, last, times)) == times


def _up_to(timing: Timing, last: datetime) -> Timing:
    """Of one with calendars, which may leave nothing for years, what nobody looks beyond."""
    if type(timing) is Timing:
        return timing
    return replace(timing, end_at=last if timing.end_at is None else min(timing.end_at, last))


def spread_schedule(timing: Timing) -> str | None:
    """The same cron schedule at a minute that is fixed by the job's id, so that jobs that share it fall due one after
    the other. None where there is none: no cron, several schedules, or a cadence that is spread already."""
    if len(timing.schedules) != 1 or not isinstance(timing.schedules[0], CronSchedule):
        return None
    fields = MACROS.get(timing.schedules[0].text.lower(), timing.schedules[0].text).split()
    place = len(fields) - 5  # the minute's; before it are the seconds, if there are any
    if place not in (0, 1):
        return None
    minute = fields[place]
    if minute.isdigit():
        fields[place] = "H"
    elif minute.startswith("*/") and minute[2:].isdigit() and int(minute[2:]) > 1:
        fields[place] = f"H/{minute[2:]}"
    else:
        return None
    if place == 1 and fields[0].isdigit():
        fields[0] = "H"
    return " ".join(fields)
