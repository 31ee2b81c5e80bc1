"""How often to look at everything."""

from hourhand.runtime.looks import REST, SLOW_SECONDS, ThoroughLooks


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


def test_after_a_slow_one_the_next_waits_in_proportion() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert look(looks, clock, 0.3)
    assert not look(looks, clock, 0.3)
    clock.now += 0.3 * REST - 0.01
    assert not look(looks, clock, 0.3)
    clock.now += 0.02
    assert look(looks, clock, 0.001)
    assert look(looks, clock, 0.001), "it is quick again"


def test_one_that_was_given_up_does_not_count() -> None:
    clock = Clock()
    looks = ThoroughLooks(clock)
    assert looks.begin() is not None
    clock.now += 1000
    assert looks.begin() is not None
