"""The load that is put on: due times, the order of sending, a day's submissions."""

import random
from itertools import pairwise

import pytest

from hourhand.bench.course import Sample, Table, brief, does
from hourhand.bench.day import Day, hours_of, plan_of, storage, submission_times, submissions_in
from hourhand.bench.flight import Flight, settings_for
from hourhand.bench.growth import cost_us
from hourhand.bench.soak import ratios, sample_at, typical_p99, worse
from hourhand.bench.steady import AHEAD_SECONDS, in_order_of_sending, spread
from hourhand.model.errors import InvalidParameter

BEGIN = 1_763_280_000_000_000


def test_due_times_are_evenly_spread() -> None:
    dues = list(spread(BEGIN, 2000, 3))
    assert len(dues) == 6000
    assert dues[0] == BEGIN
    assert {later - earlier for earlier, later in pairwise(dues)} == {500}


def test_a_rate_that_does_not_divide_a_second_keeps_its_pace() -> None:
    dues = list(spread(BEGIN, 3, 10))
    assert len(dues) == 30
    assert dues[-1] - BEGIN == pytest.approx(29 / 3 * 1_000_000, abs=1)


def test_jobs_are_sent_in_order_and_each_shortly_before_its_time() -> None:
    dues = list(spread(BEGIN, 500, 10))

    sending = list(in_order_of_sending(dues, random.Random(1)))

    assert sorted(due for _, due in sending) == dues
    assert [at for at, _ in sending] == sorted(at for at, _ in sending)
    ahead = [(due - at) / 1_000_000 for at, due in sending]
    assert min(ahead) >= AHEAD_SECONDS[0]
    assert max(ahead) <= AHEAD_SECONDS[1]
    assert max(ahead) - min(ahead) > 2  # not all alike


def test_a_day_has_fifty_thousand_submissions_most_of_them_at_work_time() -> None:
    assert sum(submissions_in(hour) for hour in range(24)) == pytest.approx(50_000)
    assert sum(submissions_in(hour) for hour in range(9, 17)) == pytest.approx(35_000)
    times = submission_times(Day())
    assert len(times) == 50_000
    assert times == sorted(times)
    assert 1430 < times[-1] < 1440  # 24 minutes
    assert len([at for at in times if 9 * 60 <= at < 17 * 60]) == 35_000


def test_a_part_of_a_day_begins_at_once() -> None:
    times = submission_times(Day(9, 10, 60))
    assert (times[0], len(times)) == (0.0, 4375)
    assert times[-1] < 60


def test_of_fifty_thousand_jobs_the_note_s_shares_recur_fail_and_change() -> None:
    plans = [plan_of(number) for number in range(50_000)]
    assert sum(plan.recurring for plan in plans) == 5000
    assert sum(plan.fails for plan in plans) == 500
    assert sum(plan.changed for plan in plans) == 10_000
    assert sum(plan.history for plan in plans) == 1000
    assert not any(plan.recurring and plan.fails for plan in plans)


@pytest.mark.parametrize("text", ["", "9", "17-9", "9-25", "a-b", "-1-3", "9-9"])
def test_hours_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="--hours"):
        hours_of(text)
    assert hours_of("9-17") == (9, 17)


def test_storage_is_told_for_a_whole_day() -> None:
    before = {"jobs": Table(1_000_000, 0, 0), "log_chunks": Table(0, 0, 0)}
    after = {
        "jobs": Table(5_000_000, 0, 0),
        "job_versions": Table(1_000_000, 0, 0),
        "log_chunks": Table(25_000_000, 0, 0),
        "runs": Table(1_000_000, 0, 0),
        "live_runs": Table(2_500_000, 0, 0),
    }
    found = storage(before, after, 5000)
    assert (found["metadata_mb"], found["logs_mb"], found["runs_mb"]) == (50.0, 250.0, 10.0)
    assert found["working_mb"] == 2.5  # does not grow with the days
    assert (found["month_gb"], found["month_note_gb"], found["note_mb"]) == (9.3, 9.0, 300.0)
    assert storage({}, {}, 5000) == {}


def test_the_last_minutes_are_compared_with_the_first() -> None:
    assert ratios({"p99_ms": 10.0, "cpu_us": 100.0, "dead": 0.0}, {"p99_ms": 12.0, "cpu_us": 90.0, "dead": 5.0}) == {
        "p99": 1.2,
        "cpu": 0.9,
    }
    first = {"live_runs_mb": 4.0, "live_runs_dead": 100.0}
    assert ratios(first, {"live_runs_mb": 8.0, "live_runs_dead": 50.0}) == {"live_runs": 2.0, "live_runs_dead": 0.5}


STRETCH = {"starts_per_second": 5000.0, "p99_typical_ms": 5.0, "cpu_us": 100.0}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({}, []),
        ({"p99_typical_ms": 5.9}, []),  # less than can be told apart
        ({"p99_typical_ms": 6.1}, ["p99_typical"]),
        ({"starts_per_second": 4600.0, "cpu_us": 109.0}, []),
        ({"starts_per_second": 4500.0}, ["starts_per_second"]),
        ({"cpu_us": 111.0}, ["cpu"]),
        ({"starts_per_second": 9000.0, "p99_typical_ms": 1.0, "cpu_us": 10.0}, []),
    ],
)
def test_the_last_minutes_are_worse_by_a_tenth_and_by_what_can_be_told_apart(
    last: dict[str, float], expected: list[str]
) -> None:
    assert worse(STRETCH, STRETCH | last) == expected
    late = {"p99_typical_ms": 50.0}
    assert worse(STRETCH | late, STRETCH | {"p99_typical_ms": 54.9}) == []
    assert worse(STRETCH | late, STRETCH | {"p99_typical_ms": 55.1}) == ["p99_typical"]


def test_one_bad_moment_is_not_what_is_typical_and_a_bad_half_is() -> None:
    seconds = [second * 1_000_000 for second in range(60) for _ in range(100)]
    calm = [4.0] * len(seconds)
    hiccup = [400.0 if at == 30_000_000 else 4.0 for at in seconds]
    worn = [9.0 if at >= 20_000_000 else 4.0 for at in seconds]
    assert [typical_p99(seconds, late, 0, 60_000_000) for late in (calm, hiccup, worn)] == [4.0, 4.0, 9.0]
    assert typical_p99(seconds, worn, 0, 30_000_000) == 4.0, "what comes later is no part of it"
    assert typical_p99([], [], 0, 60_000_000) == 0.0


def test_the_nearest_sample_counts() -> None:
    samples = [Sample(at, {}, {}, {}, 0, {}) for at in (10.0, 11.0, 12.1)]
    assert sample_at(samples, 11.4).at == 11.0
    assert sample_at(samples, 99.0).at == 12.1


def test_the_cost_of_a_job_is_everybody_s_but_the_client_s() -> None:
    facts = {"cpu": {"api": 0.5, "postgres api": 0.25, "client": 0.75}, "seconds": 10.0, "jobs": 100_000}
    assert cost_us(facts) == 75.0


def test_the_executor_gets_room_for_all_runs_in_flight() -> None:
    assert settings_for(Flight(10_000, "async")) == {"executor.slots_inline": "10000"}
    assert settings_for(Flight(1000, "process"))["executor.slots_process"] == "1000"
    assert Flight(1000, "process").hold > Flight(1000, "async").hold
    assert Flight(10, "http", 3.0).hold == 3.0


def test_sessions_are_named_by_whom_they_serve() -> None:
    assert does("client backend", "hourhand executor recorder") == "executor recorder"
    assert does("client backend", "") == does(None, None) == "unknown"
    assert does("autovacuum worker", "") == does("autovacuum launcher", "") == "autovacuum"
    assert does("checkpointer", "") == "checkpointer"
    parts = {"postgres executor": 1.0, "postgres executor recorder": 2.0, "postgres checkpointer": 4.0, "executor": 8.0}
    assert brief(parts) == {"postgres executor": 3.0, "postgres checkpointer": 4.0, "executor": 8.0}
