"""Clock changes, against a walker that knows nothing but how a zone shows each minute."""

# ruff: noqa: DTZ001 - local times have no zone here

import itertools
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo
from zoneinfo._common import load_data  # type: ignore[import-not-found]

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.model import local_time
from hourhand.model.cron import Cron
from hourhand.model.local_time import (
    DstOverlap,
    DstRule,
    Gap,
    InstantFault,
    ZoneFault,
    format_instant,
    instants_of,
    load_zone,
    next_instant,
    parse_instant,
    readings_of,
)

MINUTE = timedelta(minutes=1)

# Zone and a UTC day at which its clock changes.
CHANGES = [
    ("Europe/Berlin", "2026-03-29"),
    ("Europe/Berlin", "2026-10-25"),
    ("America/New_York", "2026-03-08"),
    ("America/New_York", "2026-11-01"),
    ("America/New_York", "2045-11-05"),  # beyond the table, by rule
    ("Australia/Lord_Howe", "2026-04-04"),  # back by half an hour
    ("Australia/Lord_Howe", "2026-10-03"),
    ("Africa/Casablanca", "2026-02-15"),  # back for Ramadan
    ("Africa/Casablanca", "2026-03-22"),
    ("Asia/Kathmandu", "1985-12-31"),  # ahead by a quarter of an hour, once and for all
    ("Pacific/Apia", "2011-12-30"),  # a whole calendar day left out
    ("Pacific/Apia", "2012-03-31"),
]


# --- the walker: shares nothing with the product ----------------------------------------------------------


@dataclass(frozen=True)
class Clock:
    """What a clock on the wall shows at each minute of a few days, and which minutes it jumps over."""

    start: datetime
    end: datetime
    change: datetime
    shown: dict[datetime, list[datetime]]
    jumped: dict[datetime, datetime]


@cache
def watch(zone: str, day: str) -> Clock:
    start = datetime.fromisoformat(day).replace(tzinfo=UTC) - timedelta(days=1)
    end = start + timedelta(days=3)
    shown: dict[datetime, list[datetime]] = {}
    jumped: dict[datetime, datetime] = {}
    change = start
    instant, before = start, start.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
    while instant < end:
        instant += MINUTE
        face = instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None, fold=0)
        shown.setdefault(face, []).append(instant)
        missing = before + MINUTE
        if face != missing:
            change = instant
        while missing < face:
            jumped[missing] = instant
            missing += MINUTE
        before = face
    return Clock(start, end, change, shown, jumped)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
def test_the_watched_days_do_hold_a_clock_change(zone: str, day: str) -> None:
    clock = watch(zone, day)
    assert clock.start < clock.change < clock.end
    assert clock.jumped or any(len(instants) > 1 for instants in clock.shown.values())


@dataclass(frozen=True)
class Times:
    """Minutes and hours of every day; `text` says the same as cron."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    fixed: bool

    def match(self, face: datetime) -> bool:
        return face.minute in self.minutes and face.hour in self.hours


def walk(clock: Clock, times: Times, gap: str, overlap: str) -> list[datetime]:
    due: set[datetime] = set()
    for face, instants in clock.shown.items():
        if not times.match(face):
            continue
        once = overlap == "first" or (overlap == "auto" and times.fixed)
        due.update(instants[:1] if once else instants[-1:] if overlap == "last" else instants)
    if times.fixed and gap == "fire_after":
        due.update(instant for face, instant in clock.jumped.items() if times.match(face))
    return sorted(due)


@st.composite
def times_of_day(draw: st.DrawFn) -> Times:
    minutes = draw(st.frozensets(st.integers(0, 59), min_size=1, max_size=4))
    hours = draw(st.frozensets(st.integers(0, 4) | st.integers(0, 23), min_size=1, max_size=6))
    minute_text, hour_text = (",".join(map(str, sorted(values))) for values in (minutes, hours))
    step = draw(st.sampled_from([1, 7, 15, 30]))
    match draw(st.sampled_from(["fixed", "open minutes", "open hours", "open"])):
        case "fixed":
            return Times(f"{minute_text} {hour_text} * * *", minutes, hours, True)
        case "open minutes":
            return Times(f"*/{step} {hour_text} * * *", frozenset(range(0, 60, step)), hours, False)
        case "open hours":
            return Times(f"{minute_text} * * * *", minutes, frozenset(range(24)), False)
    return Times(f"*/{step} */2 * * *", frozenset(range(0, 60, step)), frozenset(range(0, 24, 2)), False)


GAPS = st.sampled_from(list(Gap))
OVERLAPS = st.sampled_from(list(DstOverlap))


def due_times(
    times: Times, zone: str, gap: Gap, overlap: DstOverlap, after: datetime, until: datetime
) -> list[datetime]:
    cron = Cron.parse(times.text)
    rule = DstRule(cron.is_fixed_time, gap, overlap)
    found: list[datetime] = []
    due = next_instant(after, cron.next_local, load_zone(zone), rule)
    while due is not None and due <= until:
        found.append(due)
        due = next_instant(due, cron.next_local, load_zone(zone), rule)
    return found


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@settings(max_examples=60, deadline=None)
@given(times=times_of_day(), gap=GAPS, overlap=OVERLAPS)
def test_due_times_around_a_clock_change_are_those_a_watcher_of_the_clock_notes(
    zone: str, day: str, times: Times, gap: Gap, overlap: DstOverlap
) -> None:
    clock = watch(zone, day)
    assert due_times(times, zone, gap, overlap, clock.start, clock.end) == walk(clock, times, gap.value, overlap.value)


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@settings(max_examples=80, deadline=None)
@given(
    times=times_of_day(),
    gap=GAPS,
    overlap=OVERLAPS,
    seconds=st.integers(-2 * 3600, 2 * 3600),
    micros=st.integers(0, 1),
)
def test_the_next_due_time_from_any_instant_is_the_first_later_one_the_watcher_notes(
    zone: str, day: str, times: Times, gap: Gap, overlap: DstOverlap, seconds: int, micros: int
) -> None:
    clock = watch(zone, day)
    after = clock.change + timedelta(seconds=seconds, microseconds=micros)
    later = [due for due in walk(clock, times, gap.value, overlap.value) if due > after]
    cron = Cron.parse(times.text)
    found = next_instant(after, cron.next_local, load_zone(zone), DstRule(cron.is_fixed_time, gap, overlap))
    assert found == later[0] if later else found is None or found > clock.end


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@settings(max_examples=20, deadline=None)
@given(times=times_of_day(), gap=GAPS, overlap=OVERLAPS)
def test_each_local_time_maps_to_the_instants_the_watcher_notes_for_it(
    zone: str, day: str, times: Times, gap: Gap, overlap: DstOverlap
) -> None:
    clock = watch(zone, day)
    rule = DstRule(times.fixed, gap, overlap)
    mapped: set[datetime] = set()
    for face in [*clock.shown, *clock.jumped]:
        if times.match(face):
            mapped.update(instants_of(face, load_zone(zone), rule))
    assert sorted(mapped) == walk(clock, times, gap.value, overlap.value)


# --- the promises, word by word ---------------------------------------------------------------------------


def on(text: str, zone: str, day: str, gap: Gap = Gap.FIRE_AFTER, overlap: DstOverlap = DstOverlap.AUTO) -> list[str]:
    """Due instants of one local day, as UTC times."""
    cron = Cron.parse(text)
    rule = DstRule(cron.is_fixed_time, gap, overlap)
    here = load_zone(zone)
    start = datetime.fromisoformat(day).replace(tzinfo=here).astimezone(UTC) - timedelta(microseconds=1)
    found: list[str] = []
    due = next_instant(start, cron.next_local, here, rule)
    while due is not None and due.astimezone(here).date().isoformat() == day:
        found.append(f"{due:%H:%M}")
        due = next_instant(due, cron.next_local, here, rule)
    return found


def test_a_fixed_time_in_the_gap_fires_at_the_first_instant_after_it() -> None:
    assert on("30 2 * * *", "Europe/Berlin", "2026-03-29") == ["01:00"]


def test_two_fixed_times_in_the_gap_fire_once_together() -> None:
    assert on("0,30 2,3 * * *", "Europe/Berlin", "2026-03-29") == ["01:00", "01:30"]


def test_a_fixed_time_in_the_gap_is_left_out_when_the_job_says_skip() -> None:
    assert on("30 2 * * *", "Europe/Berlin", "2026-03-29", Gap.SKIP) == []


def test_a_cadence_does_not_fire_for_local_times_that_do_not_exist() -> None:
    assert on("*/30 1-3 * * *", "Europe/Berlin", "2026-03-29") == ["00:00", "00:30", "01:00", "01:30"]
    assert on("30 * * * *", "Europe/Berlin", "2026-03-29")[:3] == ["23:30", "00:30", "01:30"]


def test_a_fixed_time_that_comes_twice_fires_at_the_first_pass() -> None:
    assert on("30 2 * * *", "Europe/Berlin", "2026-10-25") == ["00:30"]


@pytest.mark.parametrize(
    ("overlap", "due"),
    [(DstOverlap.FIRST, ["00:30"]), (DstOverlap.LAST, ["01:30"]), (DstOverlap.BOTH, ["00:30", "01:30"])],
)
def test_a_job_may_choose_the_pass(overlap: DstOverlap, due: list[str]) -> None:
    assert on("30 2 * * *", "Europe/Berlin", "2026-10-25", overlap=overlap) == due


def test_a_cadence_fires_on_both_passes() -> None:
    assert on("*/30 2 * * *", "Europe/Berlin", "2026-10-25") == ["00:00", "00:30", "01:00", "01:30"]
    assert len(on("0 * * * *", "Europe/Berlin", "2026-10-25")) == 25


def test_a_skipped_calendar_day_moves_its_fixed_times_to_the_next_midnight() -> None:
    cron = Cron.parse("0 9 30 12 *")
    after = datetime(2011, 12, 1, tzinfo=UTC)
    apia = load_zone("Pacific/Apia")
    fire_after = next_instant(after, cron.next_local, apia, DstRule(True))
    assert fire_after is not None
    assert fire_after.astimezone(apia).replace(tzinfo=None) == datetime(2011, 12, 31)
    skipped = next_instant(after, cron.next_local, apia, DstRule(True, Gap.SKIP))
    assert skipped is not None
    assert skipped.astimezone(apia).replace(tzinfo=None) == datetime(2012, 12, 30, 9)


def test_from_within_the_first_pass_a_far_time_in_a_gap_still_fires_after_it() -> None:
    cron = Cron.parse("30 2 29 3 *")
    first_pass = datetime(2025, 10, 26, 0, 15, tzinfo=UTC)
    rule = DstRule(True, Gap.FIRE_AFTER, DstOverlap.BOTH)
    due = next_instant(first_pass, cron.next_local, load_zone("Europe/Berlin"), rule)
    assert due == datetime(2026, 3, 29, 1, tzinfo=UTC)


def test_a_time_that_always_falls_into_the_gap_has_no_next_instant() -> None:
    cron = Cron.parse("30 2 ? 3 SUN#2")
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert next_instant(after, cron.next_local, load_zone("America/New_York"), DstRule(True, Gap.SKIP)) is None


def test_a_cadence_of_seconds_crosses_a_gap_without_trying_each_second() -> None:
    asked = 0
    cron = Cron.parse("* * * * * *")

    def counted(after: datetime) -> datetime | None:
        nonlocal asked
        asked += 1
        return cron.next_local(after)

    last = datetime(2011, 12, 30, 9, 59, 59, tzinfo=UTC)
    assert next_instant(last, counted, load_zone("Pacific/Apia"), DstRule(False)) == last + timedelta(seconds=1)
    assert asked <= 2


def test_a_local_time_reads_as_none_one_or_two_times_of_its_zone() -> None:
    berlin = load_zone("Europe/Berlin")
    assert readings_of(datetime(2026, 3, 29, 2, 30), berlin) == []
    assert [one.isoformat() for one in readings_of(datetime(2026, 7, 1), berlin)] == ["2026-07-01T00:00:00+02:00"]
    twice = [one.isoformat() for one in readings_of(datetime(2026, 10, 25, 2, 30), berlin)]
    assert twice == ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]


# --- zones ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT"])
def test_zones_of_the_tz_database_are_found(name: str) -> None:
    assert load_zone(name).key == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "UTC+99",
        "CET+25",
        "../../x",
        "../../../etc/passwd",
        "/etc/localtime",
        "/usr/share/zoneinfo/Europe/Berlin",
        "Europe/../Europe/Berlin",
        "Europe//Berlin",
        "Europe/",
        "Europe",
        "Europe/Berlin\x00",
        "Europe/Berlin\n",
        "\x00",
        "E" * 4096,
        "C:\\zone",
        "europe/berlin ",
        "zone.tab",
        "tzdata.zi",
        "leapseconds",
        "localtime",
        "posixrules",
        "right/Europe/Berlin",
        "posix/Europe/Berlin",
        "Ｕ",
    ],
)
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(ZoneFault) as caught:
        load_zone(name)
    assert caught.value.code == "unknown-timezone"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/../../b", "x\x00y", "E" * 4096])
def test_a_name_that_could_lead_elsewhere_never_reaches_the_file_system(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("a file was looked for")

    monkeypatch.setattr("hourhand.model.local_time.ZoneInfo", touched)
    monkeypatch.setattr("hourhand.model.local_time.available_timezones", touched)
    with pytest.raises(ZoneFault):
        load_zone(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Europe/Berln", "Europe/Berlin"), ("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin")],
)
def test_a_mistyped_zone_is_answered_with_at_most_three_suggestions(name: str, meant: str) -> None:
    with pytest.raises(ZoneFault) as caught:
        load_zone(name)
    assert caught.value.suggestions[0] == meant
    assert len(caught.value.suggestions) <= 3
    assert meant in str(caught.value)


# --- instants ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31t09:00:00z", datetime(2026, 1, 31, 9, tzinfo=UTC)),
        ("2026-01-31T09:00:00+05:30", datetime(2026, 1, 31, 3, 30, tzinfo=UTC)),
        ("2026-01-31T09:00:00-08:00", datetime(2026, 1, 31, 17, tzinfo=UTC)),
        ("2026-01-31T09:00:00.5Z", datetime(2026, 1, 31, 9, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-01-31T09:00:00.123456789Z", datetime(2026, 1, 31, 9, 0, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_an_rfc_3339_text_names_an_instant(text: str, instant: datetime) -> None:
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("2026-01-31T09:00:00", "offset-required"),
        ("2026-02-30T10:00:00Z", "invalid-date-time"),
        ("2026-01-31T24:00:00Z", "invalid-date-time"),
        ("2026-06-30T23:59:60Z", "invalid-date-time"),
        ("2026-13-01T00:00:00Z", "invalid-date-time"),
        ("2026-01-31T09:00:00+99:00", "invalid-date-time"),
        ("2026-01-31T09:00:00+01:60", "invalid-date-time"),
        ("2026-01-31T09:00:00+0100", "invalid-date-time"),
        ("2026-01-31 09:00:00Z", "invalid-date-time"),
        ("2026-01-31T09:00Z", "invalid-date-time"),
        ("2026-01-31", "invalid-date-time"),
        ("20260131T090000Z", "invalid-date-time"),
        ("2026-01-31T09:00:00Z\n", "invalid-date-time"),
        ("٢٠٢٦-01-31T09:00:00Z", "invalid-date-time"),
        ("tomorrow", "invalid-date-time"),
        ("1767225600", "invalid-date-time"),
        ("", "invalid-date-time"),
        ("10000-01-01T00:00:00Z", "time-out-of-range"),
        ("0001-01-01T00:00:00Z", "time-out-of-range"),
        ("0000-01-01T00:00:00Z", "time-out-of-range"),
        ("1969-12-31T23:59:59Z", "time-out-of-range"),
        ("2201-01-01T00:00:00Z", "time-out-of-range"),
        ("1970-01-01T00:00:00+01:00", "time-out-of-range"),
    ],
)
def test_what_names_no_instant_is_refused(text: str, code: str) -> None:
    with pytest.raises(InstantFault) as caught:
        parse_instant(text)
    assert caught.value.code == code


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2200, 12, 31), timezones=st.just(UTC)))
def test_an_instant_reads_back_as_written(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant


# --- the short way ----------------------------------------------------------------------------------------


ZONES = [
    line for line in files("tzdata").joinpath("zones").read_text().split() if not line.startswith(("Etc/", "Factory"))
]


def offset_changes(name: str) -> list[int]:
    """When a zone's offset changes by its file, in seconds since 1970."""
    with files("tzdata.zoneinfo").joinpath(*name.split("/")).open("rb") as file:
        indexes, transitions, offsets, *_ = load_data(file)
    changes, before = [], offsets[0]
    for at, index in zip(transitions, indexes, strict=True):
        if offsets[index] != before:
            changes.append(at)
        before = offsets[index]
    return changes


def test_no_zone_changes_its_offset_twice_within_a_day() -> None:
    # The short way looks at a zone once a day: a clock that is set and set back in between would be overlooked.
    close = {
        (name, early)
        for name in ZONES
        for early, late in itertools.pairwise(offset_changes(name))
        if late - early <= 86_400 and early > 0
    }
    assert len(ZONES) > 400
    assert not close


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"])
def test_the_short_way_leads_where_the_long_one_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zone, chance = local_time.load_zone(name), random.Random(name)
    texts = ("*/7 * * * *", "30 2 * * *", "0 0 1 * *", "15 */3 * * 1", "59 59 23 29 2 *", "* * * * * *")
    crons = [Cron.parse(text) for text in texts]
    near = [at + chance.randint(-4 * 86_400, 4 * 86_400) for at in offset_changes(name)[-40:] for _ in range(8)]
    far = [chance.randint(0, 4_000_000_000) for _ in range(300)]
    asked = [
        (datetime.fromtimestamp(at, UTC), chance.choice(crons), chance.choice([*Gap]), chance.choice([*DstOverlap]))
        for at in near + far
    ]

    def answers() -> list[datetime | None]:
        return [
            local_time.next_instant(at, cron.next_local, zone, DstRule(cron.is_fixed_time, gap, overlap))
            for at, cron, gap, overlap in asked
        ]

    short = answers()
    monkeypatch.setattr(local_time, "_steady_offset", lambda *_: None)
    assert short == answers()


@pytest.mark.parametrize("zone", ["Asia/Gaza", "Africa/Casablanca", "America/Recife", "Africa/Tunis", "Pacific/Apia"])
def test_a_day_is_steady_only_if_a_look_at_every_day_around_it_says_so(zone: str) -> None:
    found = load_zone(zone)
    first, last = date(1970, 1, 10).toordinal(), date(2038, 1, 1).toordinal()
    offsets = {
        ordinal: datetime.fromordinal(ordinal).replace(tzinfo=UTC).astimezone(found).utcoffset()
        for ordinal in range(first - 2, last + 4)
    }
    for ordinal in range(first, last):
        around = {offsets[ordinal + near] for near in range(-2, 4)}
        assert local_time._steady_offset.__wrapped__(found, ordinal) == (offsets[ordinal] if len(around) == 1 else None)


@pytest.mark.parametrize("name", ["localtime", "Factory", "factory", "posixrules"])
def test_a_zone_that_is_refused_is_not_offered(name: str) -> None:
    with pytest.raises(ZoneFault) as refused:
        load_zone(name)
    assert not {"localtime", "Factory", "posixrules"} & set(refused.value.suggestions)
    assert f"did you mean {name}?" not in str(refused.value)
