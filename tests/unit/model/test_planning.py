"""Where calendars, pauses, budgets and delays meet: every due time is run or told once, for one reason."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from hourhand.model.calendar import Blackout, CalendarRule
from hourhand.model.catchup import CatchUp, CatchUpPolicy, MissedRange, PauseSpan
from hourhand.model.exclusion import TimingAround, around
from hourhand.model.ledger import LedgerFacts, ledger_page
from hourhand.model.planning import overdue, plan_job
from hourhand.model.schedule import AfterCompletion, Every, OnExcluded, Timing
from hourhand.model.states import Reason

NOON = datetime(2030, 1, 7, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HORIZON = timedelta(seconds=2)
HOURLY = Timing((Every(HOUR, NOON - timedelta(days=30)),), calendars=("closed",))
DELAY = Timing((AfterCompletion(HOUR, NOON),))


def at(hours: float) -> datetime:
    return NOON + hours * HOUR


def closed(*spans: tuple[float, float], timing: Timing = HOURLY, on: OnExcluded = OnExcluded.SKIP) -> TimingAround:
    rule = CalendarRule(blackouts=tuple(Blackout(at(begin), at(end)) for begin, end in spans))
    fields = {name: getattr(timing, name) for name in Timing.__struct_fields__} | {"on_excluded": on}
    found = around(Timing(**fields), {"closed": rule})
    assert isinstance(found, TimingAround)
    return found


def pause(begin: float, end: float | None, catch_up: CatchUp = CatchUp.NONE) -> PauseSpan:
    return PauseSpan(at(begin), None if end is None else at(end), catch_up, "paused by ada")


def told(missed: list[MissedRange]) -> list[tuple[float, float, int, Reason]]:
    return [((gap.first - NOON) / HOUR, (gap.last - NOON) / HOUR, gap.count, gap.reason) for gap in missed]


ALL_DAY = CatchUpPolicy(CatchUp.LAST, timedelta(days=1))


def test_what_a_calendar_leaves_out_is_excluded_also_in_a_pause() -> None:
    planned = plan_job(closed((2, 4)), at(1), at(6.5), HORIZON, ALL_DAY, [pause(0.5, 5.5)])
    assert told(planned.missed) == [(1, 1, 1, Reason.PAUSED), (2, 3, 2, Reason.EXCLUDED), (4, 5, 2, Reason.PAUSED)]
    assert (planned.fires, planned.next_due) == ([at(6)], at(7))


def test_a_range_never_reaches_over_due_times_that_have_another_reason() -> None:
    planned = plan_job(closed((2, 4)), at(0), at(6.5), HORIZON, CatchUpPolicy(CatchUp.NONE, timedelta(days=1)))
    assert told(planned.missed) == [
        (0, 1, 2, Reason.CATCHUP_LAST), (2, 3, 2, Reason.EXCLUDED), (4, 6, 3, Reason.CATCHUP_LAST),
    ]  # fmt: skip
    assert [gap.next_due for gap in planned.missed] == [at(2), at(4), at(7)]


def test_the_last_of_a_pause_that_is_to_be_caught_up_is_one_that_the_calendar_allows() -> None:
    planned = plan_job(closed((4, 6)), at(1), at(6.5), HORIZON, ALL_DAY, [pause(0.5, 5.5, CatchUp.LAST)])
    assert planned.fires == [at(3), at(6)]
    assert told(planned.missed) == [(1, 2, 2, Reason.PAUSED), (4, 5, 2, Reason.EXCLUDED)]


def test_a_pause_that_goes_on_holds_the_cursor_and_what_was_excluded_before_it_is_told() -> None:
    planned = plan_job(closed((0, 2)), at(0), at(4.5), HORIZON, ALL_DAY, [pause(-0.5, None)])
    assert (planned.fires, planned.next_due) == ([], at(2))
    assert told(planned.missed) == [(0, 1, 2, Reason.EXCLUDED)]


def test_the_next_allowed_time_falls_into_a_pause_like_any_other() -> None:
    timing = closed((0.5, 2.25), on=OnExcluded.NEXT_ALLOWED)
    planned = plan_job(timing, at(1), at(3.5), HORIZON, ALL_DAY, [pause(2.1, 2.5)])
    assert told(planned.missed) == [(1, 2, 2, Reason.EXCLUDED), (2.25, 2.25, 1, Reason.PAUSED)]
    assert planned.fires == [at(3)]


def test_the_next_allowed_time_is_the_same_from_wherever_one_looks() -> None:
    timing = closed((0.5, 2.25), on=OnExcluded.NEXT_ALLOWED)
    assert {timing.next_after(at(0.5 + step / 100)) for step in range(50, 170)} == {at(2.25)}
    assert timing.next_event(at(1.5), since=at(1.2)) == at(2)


def test_a_pause_puts_off_what_is_due_after_completion_to_its_end() -> None:
    planned = plan_job(DELAY, at(1), at(3), HORIZON, ALL_DAY, [pause(0.5, 2.5)])
    assert (planned.fires, planned.next_due) == ([], at(2.5))
    assert told(planned.missed) == [(1, 1, 1, Reason.PAUSED)]
    assert plan_job(DELAY, at(2.5), at(3), HORIZON, ALL_DAY, [pause(0.5, 2.5)]).fires == [at(2.5)]
    assert plan_job(DELAY, at(1), at(2), HORIZON, ALL_DAY, [pause(0.5, None)]).next_due == at(1)
    assert plan_job(DELAY, at(1), at(3), HORIZON, ALL_DAY, [pause(0.5, 2.5, CatchUp.LAST)]).fires == [at(1)]


def test_a_budget_ends_the_schedule_whatever_is_caught_up() -> None:
    everything = CatchUpPolicy(CatchUp.ALL, timedelta(days=1))
    planned = plan_job(closed((2, 4)), at(1), at(8.5), HORIZON, everything, runs_left=2)
    assert (planned.fires, planned.next_due) == ([at(1), at(4)], None)
    assert told(planned.missed) == [(2, 3, 2, Reason.EXCLUDED)]


@pytest.mark.parametrize("on_excluded", list(OnExcluded))
@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_whenever_each_due_time_has_one_end_and_one_reason(seed: int, on_excluded: OnExcluded) -> None:
    chance = Random(seed)
    spans = [(begin, begin + chance.uniform(0.2, 6)) for begin in sorted(chance.uniform(0, 60) for _ in range(4))]
    base = Timing((Every(timedelta(minutes=chance.choice([7, 20, 60])), NOON),), calendars=("closed",))
    timing = closed(*spans, timing=base, on=on_excluded)
    begins = sorted(chance.uniform(0, 60) for _ in range(3))
    pauses = [pause(b, b + chance.uniform(0.1, 8), chance.choice(list(CatchUp))) for b in begins]
    policy = CatchUpPolicy(chance.choice(list(CatchUp)), chance.choice([timedelta(0), HOUR, 5 * HOUR]))
    ends: Counter[datetime] = Counter()
    why: dict[datetime, Reason] = {}
    cursor: datetime | None = timing.next_event(NOON)
    now = NOON
    while now < at(72):
        in_force = [span for span in pauses if span.start <= now]
        known = [PauseSpan(s.start, s.end if s.end and s.end <= now else None, s.catch_up, s.detail) for s in in_force]
        if cursor is not None and cursor <= now + HORIZON:
            planned = plan_job(timing, cursor, now, HORIZON, policy, known)
            ends.update(planned.fires)
            for gap in planned.missed:
                dues = [gap.first, *timing.without_calendars.due_between(gap.first, gap.last, 10_000)]
                assert len(dues) == gap.count, "told one by one it is as many"
                ends.update(dues)
                why |= dict.fromkeys(dues, gap.reason)
            cursor = planned.next_due
        now += timedelta(seconds=chance.choice([1, 30, 600, 20_000]))
    assert cursor is not None
    expected = {due for due in timing.without_calendars.due_between(NOON, cursor - HORIZON, 100_000) if due < cursor}
    extra = {timing.allowed_from(due) for due in expected} if on_excluded is OnExcluded.NEXT_ALLOWED else set()
    assert set(ends.values()) == {1}
    assert expected <= set(ends)
    assert set(ends) - expected <= extra
    assert {due for due, reason in why.items() if reason is Reason.EXCLUDED} == {
        due for due in ends if timing.is_excluded(due)
    }


def test_all_that_is_overdue_is_told_when_a_job_changes_also_of_a_pause_that_goes_on() -> None:
    found = overdue(closed((2, 4)), at(0), at(6), ALL_DAY, [pause(4.5, None)])
    assert found is not None
    assert told(found.missed) == [
        (0, 1, 2, Reason.CATCHUP_LAST), (2, 3, 2, Reason.EXCLUDED), (5, 6, 2, Reason.PAUSED),
    ]  # fmt: skip
    assert found.fires == [at(4)]


def ledger(**known: Any) -> list[tuple[float, float, int, str]]:
    facts = LedgerFacts(at(6.5), at(0), at(6.5), at(-10), closed((2, 4)), **known)
    entries, more = ledger_page(facts, None, 100, compact=True)
    assert more is None
    one_by_one, _ = ledger_page(facts, None, 100, compact=False)
    assert len(one_by_one) == len({entry.due_at for entry in one_by_one}) == sum(entry.count for entry in entries)
    return [((e.due_at - NOON) / HOUR, (e.last_due - NOON) / HOUR, e.count, e.status) for e in entries]


def test_while_a_pause_goes_on_the_ledger_tells_apart_what_calendars_leave_out() -> None:
    assert ledger(own_span=pause(0.5, 6.5)) == [(1, 1, 1, "paused"), (2, 3, 2, "excluded"), (4, 6, 3, "paused")]
    held = ledger(cursor=at(1), spans=[pause(0.5, None)])
    assert held == [(1, 1, 1, "paused"), (2, 3, 2, "excluded"), (4, 6, 3, "paused")]
    assert ledger(cursor=at(3)) == [(3, 3, 1, "excluded"), (4, 6, 3, "unplanned")]
