"""What took longest, of the times that are not long ago."""

from hourhand.runtime.longest import REMEMBERED_SECONDS, Longest


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def noted(longest: Longest, clock: Clock, seconds: float) -> float:
    began = clock.now
    clock.now += seconds
    longest.note(began)
    return longest.seconds()


def test_the_longest_counts_however_short_those_after_it_are() -> None:
    clock = Clock()
    longest = Longest(clock)
    assert longest.seconds() == 0
    assert noted(longest, clock, 3.0) == 3.0
    assert noted(longest, clock, 1.0) == 3.0
    assert noted(longest, clock, 4.0) == 4.0


def test_it_is_remembered_for_a_while_and_not_for_ever() -> None:
    clock = Clock()
    longest = Longest(clock)
    noted(longest, clock, 3.0)
    clock.now += REMEMBERED_SECONDS
    assert noted(longest, clock, 1.0) == 3.0
    clock.now += REMEMBERED_SECONDS
    assert longest.seconds() == 1.0
    clock.now += REMEMBERED_SECONDS
    assert longest.seconds() == 0.0


def test_after_a_long_silence_nothing_is_remembered() -> None:
    clock = Clock()
    longest = Longest(clock)
    noted(longest, clock, 3.0)
    clock.now += 2 * REMEMBERED_SECONDS
    assert longest.seconds() == 0.0
