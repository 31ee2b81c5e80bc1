"""Identifiers that sort by time."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.ids import SHARDS, instant_of, lowest_id_at, scheduled_run_id, shard_of, time_ordered_id

instants = st.datetimes(datetime(1970, 1, 1), datetime(2200, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
chances = st.integers(0, (1 << 74) - 1)
job_ids = st.builds(time_ordered_id, instants, chances)
MILLISECOND = timedelta(milliseconds=1)


def whole_millisecond(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


@given(instants, chances)
def test_an_id_is_a_uuid_of_version_seven_that_carries_its_time(instant: datetime, chance: int) -> None:
    identifier = time_ordered_id(instant, chance)
    assert (identifier.version, identifier.variant) == (7, "specified in RFC 4122")
    assert instant_of(identifier) == whole_millisecond(instant)


@given(instants, chances, chances)
def test_another_chance_makes_another_id(instant: datetime, first: int, second: int) -> None:
    assert (time_ordered_id(instant, first) == time_ordered_id(instant, second)) == (first == second)


@given(instants, job_ids)
def test_a_scheduled_run_carries_its_due_time_and_is_computed_never_drawn(due: datetime, job_id: UUID) -> None:
    run_id = scheduled_run_id(due, job_id)
    assert run_id == scheduled_run_id(due, UUID(bytes=job_id.bytes))
    assert (run_id.version, run_id.variant) == (7, "specified in RFC 4122")
    assert instant_of(run_id) == whole_millisecond(due)


@given(instants, instants, job_ids, job_ids)
def test_scheduled_runs_sort_by_their_due_time_to_the_microsecond(
    first: datetime, second: datetime, one: UUID, other: UUID
) -> None:
    if first < second:
        assert scheduled_run_id(first, one) < scheduled_run_id(second, other)


@given(instants, st.integers(1, 2000), job_ids)
def test_a_job_has_one_run_id_for_each_due_time_even_a_microsecond_apart(
    due: datetime, apart: int, job_id: UUID
) -> None:
    later = due + timedelta(microseconds=apart)
    assert scheduled_run_id(due, job_id) < scheduled_run_id(later, job_id)


@given(instants, st.sets(chances.map(lambda chance: chance & ((1 << 62) - 1)), min_size=2, max_size=20))
def test_jobs_that_fall_due_together_have_runs_of_their_own(due: datetime, jobs: set[int]) -> None:
    run_ids = {scheduled_run_id(due, time_ordered_id(due, job)) for job in jobs}
    assert len(run_ids) == len(jobs)


@given(instants, chances, job_ids)
def test_the_lowest_id_of_an_instant_lies_between_the_ids_before_and_after(
    instant: datetime, chance: int, job_id: UUID
) -> None:
    edge = lowest_id_at(instant)
    assert edge <= time_ordered_id(instant, chance)
    assert edge <= scheduled_run_id(instant, job_id)
    earlier = whole_millisecond(instant) - MILLISECOND
    if earlier.year >= 1970:
        assert time_ordered_id(earlier, chance) < edge
        assert scheduled_run_id(earlier, job_id) < edge


@given(job_ids)
def test_every_job_belongs_to_one_of_the_shards(job_id: UUID) -> None:
    assert 0 <= shard_of(job_id) < SHARDS


@given(instants, job_ids)
def test_a_job_and_its_runs_share_the_shard(due: datetime, job_id: UUID) -> None:
    assert shard_of(scheduled_run_id(due, job_id)) == shard_of(job_id)
