"""Every due time is told once, with what became of it, in words a tired person understands."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hourhand.model.catchup import PauseSpan
from hourhand.model.ids import scheduled_run_id
from hourhand.model.ledger import Became, LedgerEntry, LedgerFacts, RangeFact, RunFact, ledger_page
from hourhand.model.schedule import CronSchedule, Every, Gap, Timing
from hourhand.model.schedule_form import parse_timing
from hourhand.model.states import Reason, RunState

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = Timing((Every(HOUR, NOW - timedelta(days=30)),))
JOB = UUID("01977777-0000-7000-8000-000000000001")


def facts(**known: Any) -> LedgerFacts:
    plain = LedgerFacts(NOW, NOW - 24 * HOUR, NOW, NOW - timedelta(days=20), HOURLY)
    return replace(plain, **known)


def told(known: LedgerFacts, compact: bool = False) -> list[LedgerEntry]:
    entries, more = ledger_page(known, None, 1000, compact)
    assert more is None
    return entries


def ago(hours: float) -> datetime:
    return NOW - hours * HOUR


def run(hours: float, state: RunState = RunState.SUCCEEDED, *why: str) -> RunFact:
    return RunFact(scheduled_run_id(ago(hours), JOB), ago(hours), state, *why)


def gap(first: float, last: float, became: Became, reason: str, detail: str | None = None) -> RangeFact:
    return RangeFact(ago(first), ago(last), round(first - last) + 1, became, reason, HOURLY, detail)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (run(3), None),
        (run(3, RunState.FAILED, "exit_code", "ended with 3\nlong tail"), "no success: ended with 3"),
        (run(3, RunState.SKIPPED, "overlap"), "an earlier run of the job was not finished"),
        (run(3, RunState.MISSED, "queue_timeout"), "could not start within the job's queue_timeout"),
        (run(3, RunState.CANCELLED, "cancelled"), "somebody cancelled it"),
        (run(3, RunState.QUEUED), "`hourhand run explain` tells why"),
        (run(3, RunState.RUNNING), "it runs"),
    ],
)
def test_a_run_tells_its_state_and_why_it_is_no_success(one: RunFact, why: str | None) -> None:
    [entry] = told(facts(runs=[one]))
    assert (entry.due_at, entry.status, entry.run_id) == (ago(3), one.state.word, one.run_id)
    assert (entry.why is None) if why is None else (why in str(entry.why))


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (gap(5, 3, Became.MISSED, "catchup_window"), "longer ago than the job's catch-up window (1h)"),
        (
            gap(5, 3, Became.MISSED, "catchup_last"),
            "catch-up leaves it out: of what was missed `last` runs",
        ),
        (gap(5, 3, Became.MISSED, "job_cancelled"), "its job was cancelled before it started"),
        (gap(5, 3, Became.PAUSED, "paused", "paused by ada since …: moving"), "paused by ada since …: moving"),
        (gap(5, 3, Became.EXCLUDED, "excluded", "calendar holidays"), "calendar holidays"),
    ],
)
def test_a_stretch_is_told_one_by_one_or_as_one_with_its_reason(one: RangeFact, why: str) -> None:
    each, [whole] = told(facts(ranges=[one])), told(facts(ranges=[one]), compact=True)
    assert [entry.due_at for entry in each] == [ago(5), ago(4), ago(3)]
    assert (whole.due_at, whole.last_due, whole.count) == (ago(5), ago(3), 3)
    for entry in [*each, whole]:
        assert (entry.status, entry.reason) == (one.became.value, one.reason)
        assert why in str(entry.why)


def test_of_a_stretch_only_what_lies_between_the_two_ends_is_told() -> None:
    one = gap(10, 2, Became.MISSED, "catchup_window")
    known = facts(ranges=[one], begin=ago(7.5), until=ago(4))
    assert [entry.due_at for entry in told(known)] == [ago(7), ago(6), ago(5), ago(4)]
    [whole] = told(known, compact=True)
    assert (whole.due_at, whole.last_due, whole.count) == (ago(7), ago(4), 4)
    assert told(replace(known, begin=ago(1)), compact=True) == []


@pytest.mark.parametrize("limit", [1, 3, 1000])
@pytest.mark.parametrize(
    "schedule",
    [[{"every": "1s"}], [{"cron": "* * * * * *"}, {"every": "7s"}], [{"rrule": "FREQ=SECONDLY;INTERVAL=2"}]],
)
def test_of_a_long_stretch_that_reaches_over_both_ends_all_in_between_is_told(schedule: Any, limit: int) -> None:
    begin = NOW - timedelta(days=3)
    timing = parse_timing(schedule, "Europe/Berlin", now=begin, seed=1)
    first = timing.next_after(begin)
    assert first is not None
    one = RangeFact(first, NOW, 10**6, Became.MISSED, "catchup_window", timing)
    known = facts(timing=timing, ranges=[one], begin=NOW - 4 * HOUR, until=NOW - HOUR)
    expected = timing.due_between(known.begin - timedelta(microseconds=1), known.until, 10**6)
    entries: list[LedgerEntry] = []
    page, after = ledger_page(known, None, limit, compact=True)
    while after is not None:
        entries += page
        page, after = ledger_page(known, after, limit, compact=True)
    entries += page
    assert sum(entry.count for entry in entries) == len(expected)
    assert (entries[0].due_at, entries[-1].last_due) == (expected[0], expected[-1])


def test_what_nobody_has_planned_is_told_as_such_and_what_a_pause_holds_as_paused() -> None:
    spans = [PauseSpan(ago(4.5), ago(2.5), detail="by ada"), PauseSpan(ago(1.5), None, detail="by bob")]
    entries = told(facts(cursor=ago(5), spans=spans))
    assert [(entry.due_at, entry.status) for entry in entries] == [
        (ago(5), "unplanned"),
        (ago(4), "paused"),
        (ago(3), "paused"),
        (ago(2), "unplanned"),
        (ago(1), "paused"),
        (ago(0), "paused"),
    ]
    assert [entry.why for entry in entries if entry.status == "paused"] == ["by ada", "by ada", "by bob", "by bob"]


def test_a_pause_of_the_job_itself_is_told_while_it_goes_on() -> None:
    own = PauseSpan(ago(2.5), NOW + timedelta(microseconds=1), detail="paused by ada")
    entries = told(facts(own_span=own))
    assert [(entry.due_at, entry.status, entry.why) for entry in entries] == [
        (ago(back), "paused", "paused by ada") for back in (2, 1, 0)
    ]


def test_a_due_time_that_made_a_run_is_not_told_once_more_by_a_stretch_around_it() -> None:
    entries = told(facts(runs=[run(4)], ranges=[gap(5, 3, Became.PAUSED, "paused")]))
    assert [(entry.due_at, entry.status) for entry in entries] == [
        (ago(5), "paused"),
        (ago(4), "succeeded"),
        (ago(3), "paused"),
    ]


# --- clocks that are set ----------------------------------------------------------------------------------

SPRING = datetime(2026, 3, 29, tzinfo=UTC)
JUMP = datetime(2026, 3, 29, 1, tzinfo=UTC)


def spring_night(cron: str, gap: Gap = Gap.FIRE_AFTER, **known: Any) -> list[LedgerEntry]:
    timing = Timing((CronSchedule(cron),), "Europe/Berlin", gap=gap)
    span = {"begin": SPRING, "until": SPRING + 6 * HOUR, "now": SPRING + 8 * HOUR, "created_at": SPRING - 99 * HOUR}
    return told(facts(timing=timing, **(span | known)))


def test_a_time_that_the_clock_jumped_over_is_told_when_the_job_skips_it() -> None:
    [entry] = spring_night("30 2 * * *", Gap.SKIP)
    assert (entry.due_at, entry.status, entry.count) == (JUMP, "dst_gap", 1)
    assert entry.why == "2026-03-29 02:30:00 did not exist in Europe/Berlin: clocks went from 02:00 to 03:00"


def test_a_time_that_fires_after_the_jump_left_nothing_out() -> None:
    assert spring_night("30 2 * * *") == []


def test_of_a_cadence_all_times_that_did_not_exist_are_one_entry() -> None:
    [entry] = spring_night("*/10 * * * *")
    assert (entry.count, entry.status) == (6, "dst_gap")
    assert "02:00:00 and 5 more up to 02:50:00" in str(entry.why)


@pytest.mark.parametrize(
    "known",
    [
        {"created_at": SPRING + 2 * HOUR},
        {"begin": SPRING + 2 * HOUR},
        {"until": SPRING},
        {"now": SPRING},
        {"ended_at": SPRING},
        {"earlier": [(SPRING + 3 * HOUR, Timing((CronSchedule("0 9 * * *"),), "Europe/Berlin"))]},
    ],
)
def test_nothing_is_left_out_where_the_job_or_its_schedule_was_not_there(known: dict[str, Any]) -> None:
    assert spring_night("30 2 * * *", Gap.SKIP, **known) == []


@pytest.mark.parametrize("zone", ["Asia/Gaza", "Asia/Hebron"])
def test_a_jump_at_midnight_by_utc_is_told_by_a_ledger_that_begins_there(zone: str) -> None:
    jump = datetime(2026, 3, 28, tzinfo=UTC)
    timing = Timing((CronSchedule("30 2 * * *"),), zone, gap=Gap.SKIP)
    for begin in (jump, jump - HOUR):
        span = {"begin": begin, "until": jump + 6 * HOUR, "now": jump + 8 * HOUR, "created_at": jump - 99 * HOUR}
        assert [entry.due_at for entry in told(facts(timing=timing, **span))] == [jump]


def test_an_earlier_schedule_tells_what_it_left_out() -> None:
    old = Timing((CronSchedule("15 2 * * *"),), "Europe/Berlin", gap=Gap.SKIP)
    [entry] = spring_night("0 9 * * *", earlier=[(SPRING + 3 * HOUR, old)])
    assert "02:15:00 did not exist" in str(entry.why)


def test_a_run_at_the_instant_of_the_jump_and_what_the_jump_left_out_are_both_told_across_pages() -> None:
    timing = Timing((CronSchedule("30 2 * * *"),), "Europe/Berlin", gap=Gap.SKIP)
    ran = RunFact(scheduled_run_id(JUMP, JOB), JUMP, RunState.SUCCEEDED)
    known = facts(timing=timing, runs=[ran], begin=SPRING, until=SPRING + 6 * HOUR, now=SPRING + 8 * HOUR)
    known = replace(known, created_at=SPRING - HOUR)
    [first], after = ledger_page(known, None, 1, compact=False)
    assert after is not None
    [second], more = ledger_page(known, after, 1, compact=False)
    assert (first.status, second.status, more) == ("succeeded", "dst_gap", None)


def test_every_reason_there_is_can_be_told() -> None:
    for reason in Reason:
        [entry] = told(facts(runs=[run(3, RunState.FAILED, reason.value)]))
        assert entry.why
