"""Whether calendars leave anything of a schedule is found out beside the loop: others are answered meanwhile."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from hourhand.model.calendar_form import read_calendar
from hourhand.model.exclusion import TimingAround
from hourhand.model.schedule_form import parse_timing
from hourhand.operations.calendars import never_allowed

NOW = datetime(2026, 3, 1, tzinfo=UTC)


async def test_the_loop_goes_on_while_it_is_looked_for_what_calendars_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    really = TimingAround.find_after

    def slowly(*given: Any) -> datetime | None:
        assert may_end.wait(5), "the loop stood still"
        return really(*given)

    monkeypatch.setattr(TimingAround, "find_after", slowly)
    timing = parse_timing({"cron": "0 9 * * *"}, now=NOW, seed=0, calendars=["x"])
    checking = asyncio.ensure_future(never_allowed(timing, {"x": read_calendar(weekly=[{"day": "MON-SUN"}])}, NOW))
    await asyncio.sleep(0.01)
    may_end.set()
    assert [fault.code for fault in await checking] == ["schedule-never-fires"]


async def test_a_schedule_that_may_fall_due_in_a_hundred_years_is_refused_as_too_rare() -> None:
    slow = {"every": "86399s", "anchor": "2026-03-01T09:00:00Z"}
    timing = parse_timing(slow, now=NOW, seed=0, calendars=["x"])
    rule = read_calendar(weekly=[{"day": "MON-SUN", "from": "00:01", "to": "00:00"}])
    [fault] = await never_allowed(timing, {"x": rule}, NOW)

    assert (fault.pointer, fault.code) == ("/calendars", "schedule-too-rare")
    assert "up to 20" in fault.message
