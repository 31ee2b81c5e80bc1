"""How often to look at everything."""

from hourhand.runtime.looks import REST, SLOW_SECONDS, ThoroughLook


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_as_long_as_it_is_quick_every_look_is_thorough() -> None:
    clock = Clock()
    look = ThoroughLook(clock)
    for _ in range(10):
        assert look.is_due()
        clock.now += SLOW_SECONDS / 2
        look.ended()


def test_after_a_slow_one_the_next_waits_in_proportion() -> None:
    clock = Clock()
    look = ThoroughLook(clock)
    assert look.is_due()
    clock.now += 0.3
    look.ended()
    assert not look.is_due()
    clock.now += 0.3 * REST - 0.01
    assert not look.is_due()
    clock.now += 0.02
    assert look.is_due()
    clock.now += 0.001
    look.ended()
    assert look.is_due(), "it is quick again"
