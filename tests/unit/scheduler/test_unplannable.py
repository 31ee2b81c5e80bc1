"""One job that cannot be planned is put aside alone: the others are planned, and it is tried again."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from hourhand.model.calendar_form import read_calendar
from hourhand.model.catchup import CatchUp, CatchUpPolicy, PauseSpan
from hourhand.model.exclusion import around
from hourhand.model.schedule import Every, Timing
from hourhand.model.states import Reason
from hourhand.ports.stores import Cursor, Move
from hourhand.runtime.clock import DatabaseClock
from hourhand.scheduler import apart
from hourhand.scheduler.apart import move_apart
from hourhand.scheduler.planner import Planner
from hourhand.scheduler.settings import SchedulerSettings
from hourhand.scheduler.unplannable import REST_MAX, Unplannable

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
HORIZON = timedelta(seconds=2)
MINUTE = Timing((Every(timedelta(minutes=1), NOW),))


def cursor(timing: Timing, number: int = 1, next_fire: datetime = NOW) -> Cursor:
    return Cursor(UUID(int=number), next_fire, 1, timing, CatchUpPolicy(), is_apart=timing.is_apart)


def planner() -> Planner:
    nobody = cast("Any", None)
    return Planner(nobody, lambda: 1, DatabaseClock(), nobody, SchedulerSettings(), nobody)


def moves_of(*cursors: Cursor) -> list[Move]:
    return [move for part in planner()._moves(cursors, NOW) for move in part]


def jittered(**more: Any) -> Timing:
    return Timing(MINUTE.schedules, jitter=timedelta(seconds=5), **more)


def test_a_jittered_job_whose_due_time_a_calendar_leaves_out_is_planned_like_any_other() -> None:
    today = read_calendar(dates=[NOW.date().isoformat()])
    left_out = around(jittered(calendars=("today",)), {"today": today})
    move = move_apart(cursor(left_out), NOW, HORIZON)
    assert (list(move.fires), list(move.starts or ()), move.next_fire) == ([], [], NOW + timedelta(minutes=1))
    assert [gap.reason for gap in move.missed] == [Reason.EXCLUDED]


def test_a_jittered_job_whose_pause_is_over_and_not_caught_up_is_planned_like_any_other() -> None:
    over = PauseSpan(NOW - timedelta(minutes=5), NOW - timedelta(seconds=1), CatchUp.NONE, "moving")
    move = move_apart(
        cursor(jittered(), next_fire=NOW - timedelta(minutes=4)), NOW - timedelta(seconds=5), HORIZON, [over]
    )
    assert list(move.fires) == []
    assert list(move.starts or ()) == []


def test_whatever_one_job_raises_the_others_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    def falls(*_: Any) -> None:
        raise IndexError("a mistake of ours")

    monkeypatch.setattr(apart, "plan_job", falls)
    bad, good = moves_of(cursor(jittered(), 1), cursor(MINUTE, 2))
    assert good.fires == [NOW]
    assert (bad.fires, bad.next_fire) == ((), NOW + timedelta(seconds=10))
    assert bad.is_apart, "it is written by the statement for its sort"
    [told] = bad.missed
    assert (told.first, told.count, told.reason) == (NOW, 1, Reason.UNPLANNABLE)
    assert told.detail is not None
    assert "IndexError: a mistake of ours" in told.detail


def test_it_rests_longer_with_each_failure_and_briefly_again_when_the_last_one_is_long_ago() -> None:
    unplannable, job = Unplannable(), cursor(MINUTE)
    rests = []
    now = NOW
    for _ in range(8):
        next_fire = unplannable.put_aside(job, ValueError("no"), now).next_fire
        assert next_fire is not None
        rests.append((next_fire - now).total_seconds())
        now = next_fire
    assert rests == [10, 20, 40, 80, 160, 320, 600, 600]
    now += REST_MAX + timedelta(seconds=1)
    assert unplannable.put_aside(job, ValueError("no"), now).next_fire == now + timedelta(seconds=10)


def test_due_times_that_pass_while_it_rests_are_told_up_to_the_one_it_goes_on_with() -> None:
    job = cursor(Timing((Every(timedelta(seconds=1), NOW),)))
    move = Unplannable().put_aside(job, ValueError("no"), NOW)
    [told] = move.missed
    assert (told.first, told.last, told.count) == (NOW, NOW + timedelta(seconds=9), 10)
    assert told.next_due == move.next_fire


def test_one_whose_schedule_itself_raises_is_put_aside_without_a_word_in_the_ledger() -> None:
    [move] = moves_of(cursor(Timing(MINUTE.schedules, zone="Nowhere/Land", jitter=timedelta(seconds=1))))
    assert move.next_fire is not None
    assert move.next_fire <= NOW + REST_MAX
