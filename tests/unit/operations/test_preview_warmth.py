"""The first preview that is asked for is as quick as the others."""

from datetime import UTC, datetime

from hourhand.model import local_time
from hourhand.operations.previews import warm_up

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_warming_up_goes_through_as_many_times_as_a_preview_may_have() -> None:
    local_time.forget_zones()
    assert warm_up(NOW) == 500
    before = local_time._steady_offset.cache_info().misses
    assert warm_up(NOW) == 500
    assert local_time._steady_offset.cache_info().misses == before, "the second time nothing is new"
