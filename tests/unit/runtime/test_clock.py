"""The database's clock as a node sees it."""

from datetime import UTC, datetime, timedelta

import pytest

from hourhand.runtime.clock import DatabaseClock

START = datetime(2030, 1, 1, tzinfo=UTC)


class Both:
    """A database and a node whose clocks can be set."""

    def __init__(self) -> None:
        self.monotonic = 1000.0
        self.ahead = 0.0
        self.clock = DatabaseClock(lambda: self.monotonic)

    def sample(self, round_trip: float = 0.002) -> None:
        middle = self.database_now(round_trip / 2)
        self.clock.observe(middle, self.monotonic, self.monotonic + round_trip)
        self.monotonic += round_trip

    def database_now(self, later: float = 0.0) -> datetime:
        return START + timedelta(seconds=self.monotonic + later + self.ahead)

    def passes(self, seconds: float) -> None:
        self.monotonic += seconds


@pytest.fixture
def both() -> Both:
    both = Both()
    for _ in range(4):
        both.sample()
        both.passes(3)
    return both


def test_it_shows_the_databases_time_whatever_the_node_believes(both: Both) -> None:
    assert abs((both.clock.now() - both.database_now()).total_seconds()) < 0.005


@pytest.mark.parametrize("jump", [-3600.0, -1.5, 1.5, 86400.0])
def test_a_jump_of_the_databases_clock_is_followed_at_once_and_remembered(both: Both, jump: float) -> None:
    assert both.clock.seconds_since_jump() > 1e9
    both.ahead += jump
    both.sample()
    assert abs((both.clock.now() - both.database_now()).total_seconds()) < 0.005
    both.passes(10)
    both.sample()
    assert both.clock.seconds_since_jump() == pytest.approx(10, abs=0.1)


def test_a_slow_answer_and_a_clock_that_drifts_are_no_jumps(both: Both) -> None:
    both.sample(round_trip=20.0)
    for _ in range(100):
        both.passes(4)
        both.ahead += 0.01
        both.sample()
    assert both.clock.seconds_since_jump() > 1e9


def test_the_first_sample_is_no_jump_however_wrong_the_nodes_own_clock_is() -> None:
    both = Both()
    both.ahead = 1e9
    both.sample()
    assert both.clock.seconds_since_jump() > 1e9


def test_a_jump_is_noticed_by_any_answer_and_nothing_else_is_taken_from_it(both: Both) -> None:
    error = both.clock.error_seconds
    both.clock.notice(both.database_now(0.5), both.monotonic, both.monotonic + 1.0)
    assert both.clock.error_seconds == error
    assert both.clock.seconds_since_jump() > 1e9
    both.ahead -= 120
    both.clock.notice(both.database_now(0.005), both.monotonic, both.monotonic + 0.01)
    assert abs((both.clock.now() - both.database_now()).total_seconds()) < 0.005
    assert both.clock.seconds_since_jump() < 1


def test_an_answer_that_tells_the_time_better_than_what_is_known_is_taken(both: Both) -> None:
    both.ahead += 120
    both.clock.notice(both.database_now(0.19), both.monotonic, both.monotonic + 0.2)
    assert both.clock.error_seconds == pytest.approx(0.1)
    assert abs((both.clock.now() - both.database_now()).total_seconds()) == pytest.approx(0.09, abs=0.001)
    both.clock.notice(both.database_now(0.0005), both.monotonic, both.monotonic + 0.001)
    assert both.clock.error_seconds == pytest.approx(0.0005)
    assert abs((both.clock.now() - both.database_now()).total_seconds()) < 0.001


@pytest.mark.parametrize(("ahead", "told"), [(-7.5, True), (-1.9, False), (0.0, False), (1.9, False), (300.0, True)])
def test_a_machine_whose_clock_is_off_is_told_of_and_nothing_changes(
    both: Both, capsys: pytest.CaptureFixture[str], ahead: float, told: bool
) -> None:
    """Row 191."""
    before = both.clock.now()
    both.clock.tell_if_apart(both.database_now().timestamp() + ahead)
    said = capsys.readouterr().out
    assert ("clock of this machine is not that of the database" in said, f"{ahead}" in said) == (told, told)
    assert both.clock.now() == before
