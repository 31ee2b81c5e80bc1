"""How often to look at everything."""

import pytest

from hourhand.runtime.looks import REST, REST_SECONDS_MAX, SLOW_SECONDS, ThoroughLooks


class Clock:
    def __init__(self) -> None:
        self.now = 50_000.0

    def __call__(self) -> float:
        return self.now


def look(looks: ThoroughLooks, clock: Clock, seconds: float) -> bool:
    begun = looks.begin()
    if begun is None:
        return False
    clock.now += seconds
    begun.end()
    return True


def test_as_long_as_it_is_quick_every_look_is_thorough() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert all(look(looks, clock, SLOW_SECONDS / 2) for _ in range(10))


def test_after_two_slow_ones_in_a_row_the_next_waits_in_proportion() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert look(looks, clock, 0.1)
    assert look(looks, clock, 0.1), "one alone may have waited for something else"
    assert not look(looks, clock, 0.1)
    assert looks.seconds_left() == pytest.approx(0.1 * REST)
    clock.now += 0.1 * REST - 0.01
    assert not look(looks, clock, 0.1)
    clock.now += 0.02
    assert look(looks, clock, 0.001)
    assert look(looks, clock, 0.001), "it is quick again"
    assert looks.seconds_left() == 0


def test_one_that_comes_after_slow_ones_is_expected_to_be_slow() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    for took, is_slow in ((0.1, False), (0.1, False), (0.001, True), (0.001, False)):
        begun = looks.begin()
        assert begun is not None
        assert begun.is_slow is is_slow
        clock.now += took
        begun.end()
        clock.now += REST_SECONDS_MAX


def test_however_slow_it_is_the_next_does_not_wait_for_long() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert look(looks, clock, 9.0)
    assert look(looks, clock, 9.0)
    assert looks.seconds_left() == REST_SECONDS_MAX


def test_one_that_was_given_up_does_not_count() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert looks.begin() is not None
    clock.now += 1000
    assert looks.begin() is not None
