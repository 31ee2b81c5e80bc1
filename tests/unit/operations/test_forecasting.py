"""The forecast: every due time where there are few jobs, a sample that says so where there are many."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from hourhand.model.calendar import Blackout, CalendarRule
from hourhand.model.errors import InvalidParameter
from hourhand.model.schedule import AfterCompletion, CronSchedule, Every, Timing, timing_to_json
from hourhand.operations import forecast as module
from hourhand.operations.forecast import ForecastOperations
from hourhand.operations.requests import Caller
from hourhand.ports.forecast_stores import ForecastJob
from hourhand.ports.stores import NodeRow, NodeStore

NOW = datetime(2030, 1, 7, 12, 0, 30, tzinfo=UTC)
ADA = Caller("ada", 1, "default")
MIDNIGHT = datetime(2030, 1, 8, tzinfo=UTC)


class FixedClock:
    def now(self) -> datetime:
        return NOW


@dataclass
class Stored:
    """Jobs as the database would tell of them."""

    jobs: list[ForecastJob] = field(default_factory=list)
    once: list[datetime] = field(default_factory=list)
    learned: dict[UUID, tuple[float, int]] = field(default_factory=dict)
    pretended: int = 1
    """Each job stands for so many that are stored."""
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def add(
        self, timing: Timing, count: int = 1, needs: str = "command", name: str | None = "report", **more: Any
    ) -> list[UUID]:
        due = timing.next_after(NOW)
        assert due is not None
        text = msgspec.json.encode(timing_to_json(timing)).decode()
        made = [
            ForecastJob(UUID(int=len(self.jobs) + n), due, text, needs, name and f"{name} {n}", **more)
            for n in range(count)
        ]
        self.jobs += made
        return [job.job_id for job in made]

    async def count_recurring(self, most: int) -> int:
        return min(len(self.jobs) * self.pretended, most)

    async def forecast_jobs(
        self, namespace_id: int, now: datetime, until: datetime, shards: int, limit: int
    ) -> list[ForecastJob]:
        self.asked.append(("forecast_jobs", shards, limit))
        return [job for job in self.jobs if job.next_fire < until][:limit]

    async def count_next_fires(
        self, recurring: bool, since: datetime, until: datetime, shards: int
    ) -> Mapping[datetime, int]:
        self.asked.append(("count_next_fires", recurring, shards))
        times = [job.next_fire for job in self.jobs] if recurring else self.once
        counts = Counter(max(at.replace(second=0, microsecond=0), since) for at in times if at < until)
        return {at: count * self.pretended for at, count in counts.items()}

    async def learned_seconds(self, runs: int, namespaces: int) -> Mapping[UUID, tuple[float, int]]:
        return self.learned


class Nodes:
    def __init__(self, rows: Sequence[NodeRow]) -> None:
        self.rows = rows

    async def present_nodes(self) -> Sequence[NodeRow]:
        return self.rows


def an_executor(process: int = 10, inline: int = 1000, **facts: Any) -> NodeRow:
    said = {
        "slots": {"process": {"slots": process, "used": 0}, "inline": {"slots": inline, "used": 3}},
        "offers": {"process": ["command"], "inline": ["http"]},
        **facts,
    }
    return NodeRow(1, "executor", "x", NOW, NOW + timedelta(seconds=9), said, NOW)


def asking(stored: Stored, *nodes: NodeRow) -> ForecastOperations:
    return ForecastOperations(stored, cast("NodeStore", Nodes(nodes or [an_executor()])), FixedClock())


def cron(text: str) -> Timing:
    return Timing((CronSchedule(text),))


async def test_a_crowd_is_named_and_h_is_offered() -> None:
    stored = Stored()
    ids = stored.add(cron("0 0 * * *"), 420)
    stored.add(cron("17 * * * *"))
    stored.learned = dict.fromkeys(ids, (8.0, 3))

    found = await asking(stored).forecast(ADA)

    [crowd] = found.crowds
    assert (crowd.at, crowd.due) == (MIDNIGHT, 420)
    assert crowd.words == "420 jobs at 00:00 UTC need 5.6 times what the slots can do in that minute"
    assert crowd.clear_seconds == 336
    [schedule] = crowd.schedules
    assert (schedule.cron, schedule.spread, schedule.jobs) == ("0 0 * * *", "H 0 * * *", 420)
    assert schedule.examples == [f"report {n}" for n in range(5)]
    assert (found.due, found.jobs, found.looked_at, found.exact) == (444, 421, 421, True)
    assert found.words == "all 421 jobs, every due time"


async def test_a_crowd_is_named_beside_jobs_that_fall_due_every_second() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"), 420)
    stored.add(cron("* * * * * *"), 2)

    [crowd] = (await asking(stored).forecast(ADA)).crowds

    assert (crowd.at, round(crowd.due)) == (MIDNIGHT, 540)
    assert (crowd.schedules[0].cron, crowd.schedules[0].spread) == ("0 0 * * *", "H 0 * * *")


async def test_minutes_tell_load_and_wait_against_the_slots_of_the_right_room() -> None:
    stored = Stored()
    commands = stored.add(cron("0 13 * * *"), 30)
    calls = stored.add(cron("5 13 * * *"), 30, needs="http")
    stored.learned = dict.fromkeys(commands + calls, (60.0, 1))

    found = await asking(stored).forecast(ADA, 2)

    told = {minute.at.strftime("%H:%M"): (minute.due, minute.load, minute.wait_seconds) for minute in found.minutes}
    assert told["13:00"] == (30, 3, 120)  # thirty minutes of work for ten slots
    assert told["13:01"] == (0, 0, 60)
    assert told["13:05"] == (30, 0.03, 0)
    assert found.slots == {"process": 10, "inline": 1000}
    assert found.run_seconds == 60


async def test_jobs_that_run_once_count_too() -> None:
    stored = Stored(once=[NOW + timedelta(minutes=5)] * 50 + [NOW - timedelta(hours=1)])
    found = await asking(stored).forecast(ADA, 1)
    assert [(minute.at.minute, minute.due) for minute in found.minutes] == [(0, 1), (5, 50)]
    assert [crowd.due for crowd in found.crowds] == [50]


async def test_of_a_million_jobs_a_sample_is_looked_at_and_the_answer_says_so() -> None:
    stored = Stored(pretended=256)
    stored.add(cron("0 0 * * *"), 2000)
    stored.add(cron("0 * * * *"), 2000)
    stored.add(cron("0 0 1 6 *"), 500)  # far off

    found = await asking(stored).forecast(ADA)

    assert ("forecast_jobs", 4, 10_000) in stored.asked
    assert (found.jobs, found.looked_at, found.exact) == (1_152_000, 4000, False)
    assert found.words == (
        "a sample: of 1152000 jobs the next due time of each was counted, what follows was computed for 4000 of them "
        "and stands for all"
    )
    assert found.due == 512_000 + 23 * 512_000
    at_midnight = next(minute for minute in found.minutes if minute.at == MIDNIGHT)
    assert at_midnight.due == 1_024_000
    assert found.crowds[0].schedules[0].jobs == 512_000


async def test_whatever_the_schedules_the_time_for_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKS_MAX", 3000)
    stored = Stored()
    for number in range(1000):
        stored.add(Timing((Every(timedelta(seconds=30 + number), NOW),)))
    looked = 0
    next_after = Timing.next_after

    def counted(timing: Timing, instant: datetime) -> datetime | None:
        nonlocal looked
        looked += 1
        return next_after(timing, instant)

    monkeypatch.setattr(Timing, "next_after", counted)
    found = await asking(stored).forecast(ADA)

    assert looked < 3000 + 1500 + 4 * 1000 + 10 * 500
    assert not found.exact
    assert "are taken to go on evenly" in found.words
    exactly = sum(86_400 / (30 + number) for number in range(1000))
    assert found.due == pytest.approx(exactly, rel=0.05)


async def test_jobs_of_others_are_counted_and_not_named() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"), 50, name=None)
    [crowd] = (await asking(stored).forecast(ADA)).crowds
    assert crowd.due == 50
    assert crowd.schedules == []


async def test_who_asks_again_within_a_while_gets_the_same_answer() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"))
    operations = asking(stored)
    first, *others = await asyncio.gather(*(operations.forecast(ADA) for _ in range(10)))
    assert all(other is first for other in others)
    assert await operations.forecast(ADA, 3) is not first
    assert len([call for call in stored.asked if call[0] == "forecast_jobs"]) == 2


async def test_what_keeps_it_from_saying_more_is_told() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"), needs="python:reports.build")
    offline = NodeRow(1, "executor", "x", NOW, NOW - timedelta(seconds=1), {}, NOW)
    assert (await asking(stored, offline).forecast(ADA)).notes == [
        "no executor takes work just now: nothing can be said about slots",
        "no run has succeeded yet, so nobody knows how long runs take",
    ]
    assert (await asking(stored).forecast(ADA)).notes == [
        "1 jobs need something that no executor offers just now",
        "no run has succeeded yet, so nobody knows how long runs take",
    ]


async def test_a_job_whose_zone_is_gone_is_left_out() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"))
    lost = stored.jobs[0].timing.replace("UTC", "Europe/Atlantis")
    stored.jobs.append(ForecastJob(UUID(int=9), MIDNIGHT, lost, "command", "x"))
    assert (await asking(stored).forecast(ADA)).due in (1, 2)


async def test_nothing_stored_is_no_fault() -> None:
    found = await asking(Stored()).forecast(ADA)
    assert (found.due, found.minutes, found.crowds) == (0, [], [])


@pytest.mark.parametrize("hours", [0, 25])
async def test_it_looks_a_day_ahead_at_most(hours: int) -> None:
    with pytest.raises(InvalidParameter):
        await asking(Stored()).forecast(ADA, hours)


async def test_a_thousand_schedules_take_less_than_a_few_seconds() -> None:
    stored = Stored()
    for number in range(1000):
        stored.add(cron(f"{number % 60} {number // 60 % 24} * * *"))
        stored.add(cron(f"{number % 60} * * * *"))
    begun = time.perf_counter()
    await asking(stored).forecast(ADA)
    assert time.perf_counter() - begun < 5


# --- what leaves due times out, or moves starts ------------------------------------------------------------


async def test_due_times_that_a_calendar_leaves_out_do_not_count() -> None:
    stored = Stored()
    closed = CalendarRule(blackouts=(Blackout(NOW + timedelta(hours=1), NOW + timedelta(hours=23)),))
    hourly = Timing((CronSchedule("0 * * * *"),), calendars=("closed",))
    stored.add(hourly, 2, rules={"closed": closed})
    stored.add(hourly, 1, rules={"closed": CalendarRule()})
    assert (await asking(stored).forecast(ADA)).due == 2 * 1 + 23


async def test_jobs_that_a_pause_holds_count_from_its_end_on() -> None:
    stored = Stored()
    stored.add(cron("0 * * * *"), 3, paused_until=NOW + timedelta(hours=20))
    stored.add(cron("0 * * * *"), 5, paused_until=datetime(9999, 12, 31, tzinfo=UTC))
    found = await asking(stored).forecast(ADA)
    assert found.due == 3 * 3
    assert "8 jobs are held by a pause" in " ".join(found.notes)


async def test_a_jitter_spreads_what_would_be_a_crowd() -> None:
    stored = Stored()
    stored.add(Timing((CronSchedule("0 0 * * *"),), jitter=timedelta(hours=1)), 120)
    found = await asking(stored).forecast(ADA)
    assert found.due == 120
    assert [minute.due for minute in found.minutes] == [2] * 60
    assert found.crowds == []


async def test_what_falls_due_after_completion_goes_on_by_delay_and_duration() -> None:
    stored = Stored()
    [job_id] = stored.add(Timing((AfterCompletion(timedelta(minutes=50), NOW + timedelta(minutes=10)),)))
    stored.learned = {job_id: (600.0, 3)}
    assert (await asking(stored).forecast(ADA)).due == 24


async def test_a_budget_ends_what_is_forecast() -> None:
    stored = Stored()
    stored.add(Timing((CronSchedule("* * * * *"),), max_runs=7))
    assert (await asking(stored).forecast(ADA)).due == 7


async def test_of_a_budget_only_the_runs_that_are_left_are_forecast() -> None:
    stored = Stored()
    stored.add(Timing((CronSchedule("* * * * *"),), max_runs=7), runs_left=2)
    stored.add(Timing((CronSchedule("* * * * *"),), max_runs=7), runs_left=5)
    stored.add(Timing((AfterCompletion(timedelta(minutes=1), NOW + timedelta(minutes=1)),), max_runs=9), runs_left=3)
    assert (await asking(stored).forecast(ADA)).due == 2 + 5 + 3


async def test_a_crowd_with_jobs_that_fall_due_several_times_a_minute_counts_runs() -> None:
    stored = Stored()
    stored.add(cron("0 0 * * *"), 420)
    stored.add(cron("*/30 * * * * *"))

    [crowd] = (await asking(stored).forecast(ADA)).crowds

    assert crowd.due == 422
    assert crowd.words.startswith("422 runs at 00:00 UTC")
