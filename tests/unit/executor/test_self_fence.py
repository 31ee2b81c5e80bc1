"""An executor ends what must not go on without a lease, before others may start it, and only that."""

from typing import Any, cast

from hourhand.executor.duty import FORCE_SECONDS
from hourhand.executor.self_fence import LOOK_SECONDS, SelfFence


class Hands:
    """Attempts that end after they were told so often."""

    def __init__(self, careful: int, times: int = 1) -> None:
        self.careful = careful
        self.times = times
        self.told = 0

    def end_careful(self) -> int:
        if self.told >= self.times:
            return 0
        self.told += 1
        return self.careful


class Ground:
    def __init__(self, hands: Hands) -> None:
        self.now = 100.0
        self.confirmed_at = 100.0
        self.changes: list[bool] = []
        self.fence = SelfFence(
            cast("Any", hands), lambda: self.confirmed_at, self.changes.append, 10.0, 2.0, lambda: self.now
        )


async def test_nothing_is_ended_while_renewals_are_confirmed() -> None:
    hands = Hands(3)
    ground = Ground(hands)
    for _ in range(20):
        ground.now += 4
        ground.confirmed_at = ground.now - 1
        assert await ground.fence.run_once() == 9
    assert ground.fence.lease_is_sure()
    assert (hands.told, ground.changes) == (0, [])


async def test_careful_attempts_are_ended_when_the_time_is_over_and_told_again_until_they_are_gone() -> None:
    hands = Hands(3, times=2)
    ground = Ground(hands)
    ground.now = 109.5
    assert await ground.fence.run_once() == 0.5
    ground.now = 110.0
    assert not ground.fence.lease_is_sure()
    assert await ground.fence.run_once() == FORCE_SECONDS
    assert await ground.fence.run_once() == FORCE_SECONDS
    assert await ground.fence.run_once() == LOOK_SECONDS
    assert (hands.told, ground.changes) == (2, [False])


async def test_careful_work_is_taken_again_once_a_renewal_is_confirmed() -> None:
    ground = Ground(Hands(0))
    ground.now = 111.0
    await ground.fence.run_once()
    ground.confirmed_at = 111.5
    ground.now = 112.0
    assert await ground.fence.run_once() == 9.5
    assert ground.fence.lease_is_sure()
    assert ground.changes == [False, True]


async def test_attempts_that_do_not_end_in_time_are_told_of_once(capsys: Any) -> None:
    ground = Ground(Hands(1, times=1000))
    ground.now = 110.0
    for _ in range(100):
        await ground.fence.run_once()
        ground.now += 0.05
    assert capsys.readouterr().out.count("attempts do not end") == 1
