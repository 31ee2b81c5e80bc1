"""Before others may start runs that must not run twice, the executor that still has them is gone."""

import pytest

from hourhand.executor.last_resort import AWAKE_SECONDS, LastResort


class Ground:
    """Lease 15 s, to be ended by its own executor after 10 s, within 2 s: it is over half-way from 12 to 15."""

    def __init__(self) -> None:
        self.has_careful = True
        self.confirmed_at = 100.0
        self.kills = 0
        self.resort = LastResort(lambda: self.has_careful, lambda: self.confirmed_at, 10.0, 2.0, 15.0, self.kill)

    def kill(self) -> None:
        self.kills += 1

    def looks(self, start: float, end: float) -> float | None:
        """Looks four times a second; when it killed."""
        now = start
        while now <= end:
            self.resort.look(now)
            if self.kills:
                return now
            now += 0.25
        return None


def test_what_the_loop_could_not_end_is_ended_with_the_process_before_the_lease_is_over() -> None:
    assert Ground().looks(100.0, 120.0) == 113.5


def test_nothing_happens_while_renewals_are_confirmed() -> None:
    ground = Ground()
    for beat in range(20):
        ground.confirmed_at = 100.0 + 4 * beat
        assert ground.looks(ground.confirmed_at, ground.confirmed_at + 9) is None


def test_what_needs_no_lease_goes_on_without_one() -> None:
    ground = Ground()
    ground.has_careful = False
    assert ground.looks(100.0, 200.0) is None


@pytest.mark.parametrize("back", ["ended", "confirmed"])
def test_when_they_are_ended_in_time_or_the_lease_is_back_nothing_happens(back: str) -> None:
    ground = Ground()
    assert ground.looks(100.0, 112.0) is None
    if back == "ended":
        ground.has_careful = False
    else:
        ground.confirmed_at = 112.0
    assert ground.looks(112.25, 121.0) is None


def test_a_process_that_was_stopped_until_its_lease_was_over_gets_time_to_end_them_itself() -> None:
    assert Ground().looks(130.0, 150.0) == 130.0 + AWAKE_SECONDS
