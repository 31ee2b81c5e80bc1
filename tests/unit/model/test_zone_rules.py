"""Rules of zones compared, and where jobs go on when they change."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from made_up_zones import tz_data_in, write_zone

from hourhand.model.local_time import load_zone
from hourhand.model.schedule import At, CronSchedule, Every, Timing
from hourhand.model.zone_rules import replanned, rules_digest

HOUR = timedelta(hours=1)


def made_up(tmp_path: Path, rule: str) -> str:
    write_zone(tmp_path, "Made/Up", rule)
    with tz_data_in(tmp_path):
        return rules_digest(load_zone("Made/Up"))


def test_zones_whose_clocks_agree_have_the_same_digest() -> None:
    assert rules_digest(ZoneInfo("Europe/Berlin")) == rules_digest(ZoneInfo("Europe/Paris"))
    assert rules_digest(ZoneInfo("UTC")) == rules_digest(ZoneInfo("Etc/UCT"))
    assert rules_digest(ZoneInfo("Europe/Berlin")) != rules_digest(ZoneInfo("Europe/Helsinki"))


@pytest.mark.parametrize(
    ("rule", "other"),
    [
        ("MAD-1", "MAD-2"),
        ("MAD-1", "MAD-1MST,M3.5.0,M10.5.0/3"),
        ("MAD-1MST,M3.5.0,M10.5.0/3", "MAD-1MST,M3.4.0,M10.5.0/3"),
        ("MAD-1MST,M3.5.0,M10.5.0/3", "MAD-1MST,M3.5.0/4,M10.5.0/3"),
    ],
)
def test_any_change_of_the_rules_is_another_digest(tmp_path: Path, rule: str, other: str) -> None:
    assert made_up(tmp_path, rule) != made_up(tmp_path, other)
    assert made_up(tmp_path, rule) == made_up(tmp_path, rule)


def test_how_a_clock_is_called_does_not_count(tmp_path: Path) -> None:
    assert made_up(tmp_path, "MAD-1") == made_up(tmp_path, "SAD-1")


def test_a_month_of_other_time_is_seen() -> None:
    """Morocco sets its clocks back for Ramadan, in another month each year."""
    assert rules_digest(ZoneInfo("Africa/Casablanca")) != rules_digest(ZoneInfo("Etc/GMT-1"))


def daily(text: str = "0 9 * * *") -> Timing:
    return Timing((CronSchedule(text),), zone="Made/Up")


def at(hour: float, day: int = 10) -> datetime:
    return datetime(2030, 6, day, tzinfo=UTC) + hour * HOUR


@pytest.mark.parametrize(
    ("text", "offset", "next_fire", "dealt_with", "expected"),
    [
        # Planned when the clock was two hours ahead of UTC: nine o'clock was 07:00.
        ("0 9 * * *", 2, at(7), at(7, 9), None),
        ("0 9 * * *", 1, at(7), at(7, 9), at(8)),
        ("0 9 * * *", 3, at(7), at(7, 9), at(6)),
        ("0 9 * * *", 3, at(7), None, at(6)),
        ("0 9 * * *", -9, at(7), at(7, 9), at(18)),
        # Every hour, half an hour or minute: whole hours change nothing.
        ("0 * * * *", 1, at(7), at(6), None),
        ("*/30 * * * *", 3.5, at(7), at(6.5), None),
        ("0 * * * *", 2.5, at(7), at(6), at(7.5)),
        # Two close together, the first of them dealt with: nothing goes back behind it.
        ("0,30 9 * * *", 3, at(7.5), at(7), at(6, 11)),
    ],
)
def test_a_cursor_moves_with_the_clock_of_its_zone(
    tmp_path: Path,
    text: str,
    offset: float,
    next_fire: datetime,
    dealt_with: datetime | None,
    expected: datetime | None,
) -> None:
    hours, minutes = divmod(abs(round(offset * 60)), 60)
    write_zone(tmp_path, "Made/Up", f"MAD{'-' if offset >= 0 else '+'}{hours}:{minutes:02}")
    with tz_data_in(tmp_path):
        assert replanned(daily(text), next_fire, dealt_with) == expected


def test_a_job_without_a_further_due_time_goes_back_to_the_one_it_had(tmp_path: Path) -> None:
    write_zone(tmp_path, "Made/Up", "MAD-3")
    with tz_data_in(tmp_path):
        last = Timing((CronSchedule("0 9 * * *"),), zone="Made/Up", end_at=at(7))
        assert replanned(last, at(7), at(7, 9)) == at(6)
        over = Timing((CronSchedule("0 9 * * *"),), zone="Made/Up", end_at=at(5.5))
        assert replanned(over, at(7), at(7, 9)) is None


def test_instants_and_intervals_have_nothing_to_do_with_a_zone(tmp_path: Path) -> None:
    write_zone(tmp_path, "Made/Up", "MAD-3")
    with tz_data_in(tmp_path):
        for schedule in (Every(timedelta(minutes=50), at(0.2)), At(at(5))):
            assert replanned(Timing((schedule,), zone="Made/Up"), at(7), None) is None


def test_a_job_of_every_second_is_not_walked_through(tmp_path: Path) -> None:
    write_zone(tmp_path, "Made/Up", "MAD-1:00:00")
    with tz_data_in(tmp_path):
        busy = Timing((CronSchedule("*/7 * * * * *"),), zone="Made/Up")
        due = replanned(busy, at(7) + timedelta(seconds=1), None)
        assert due is not None
        assert abs(due - at(7)) < timedelta(seconds=10)
