"""Cron expressions, compiled once into bit sets over naive local time.

Five fields, or six with seconds first. Knows nothing of zones: `local_time` maps what comes out to instants.

Choices where crons differ:
- Day of month and day of week both restricted: either is enough. A field that starts with `*` (also `*/2`) or `?`
  is no restriction; then both must match. Vixie cron and cronsim do the same.
- 0 and 7 are Sunday, and `*/2` counts from 0. `SUN` as the end of a range is 7, so `FRI-SUN` reads as written.
- `5/15` is `5-59/15`. A step that could only ever match its first value is refused, it never does what was meant.
- `15W` is the weekday nearest to the 15th within the month; `31W` means months that have a 31st.
- `H` stands for a value fixed by the seed, a different one per field; in day of month at most 28, so that no month
  is left out. `H/15` has a cadence like `*/15`; `H` alone is a fixed time.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import lru_cache
from typing import Final

from hourhand.model.local_time import YEAR_MAX

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
TEXT_LENGTH_MAX: Final = 1000

_WEEKDAYS: Final = {name: day for day, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_MONTHS: Final = {
    name: month
    for month, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), start=1
    )
}
_SUNDAY_AGAIN: Final = 7


class CronFault(ValueError):
    """The expression cannot be used; `code` is the stable word for the reason."""

    others: Sequence["CronFault"] = ()
    """What is wrong in fields further on."""

    def __init__(self, code: str, message: str, hint: str | None = None, allowed: Sequence[str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.allowed = allowed


@dataclass(frozen=True, slots=True)
class Days:
    """The days of a month that match. What they are depends on the month's length and first weekday only."""

    of_month: int
    of_week: int
    last_offsets: tuple[int, ...]
    """`L` is 0, `L-3` is 3."""
    nearest_weekdays: tuple[int, ...]
    """`15W` is 15; `LW` is 0 and `L-3W` is -3, counted from the last day."""
    nth_weekdays: tuple[tuple[int, int], ...]
    """`MON#2` is (1, 2); `5L` is (5, 0)."""
    both: bool
    """Whether day of month and day of week must both match."""
    _masks: dict[tuple[int, int], int] = field(default_factory=dict, init=False, compare=False, repr=False)

    def mask(self, shape: tuple[int, int]) -> int:
        """Bit n is set where day n matches, in a month of that first weekday (0 is Sunday) and length."""
        mask = self._masks.get(shape)
        if mask is None:
            mask = self._masks[shape] = self._mask(*shape)
        return mask

    def _mask(self, first_weekday: int, length: int) -> int:
        of_month = self.of_month
        for offset in self.last_offsets:
            of_month |= (1 << length) >> offset
        for day in self.nearest_weekdays:
            wanted = day if day > 0 else length + day
            if 1 <= wanted <= length:
                of_month |= 1 << _nearest_weekday(wanted, first_weekday, length)
        of_week = 0
        for day in range(1, length + 1):
            of_week |= (self.of_week >> (first_weekday + day - 1) % 7 & 1) << day
        for weekday, nth in self.nth_weekdays:
            first = 1 + (weekday - first_weekday) % 7
            of_week |= 1 << (first + 7 * (nth - 1) if nth else first + (length - first) // 7 * 7)
        days = of_month & of_week if self.both else of_month | of_week
        return days & ((2 << length) - 2)


@dataclass(frozen=True, slots=True)
class Cron:
    """One compiled expression. Equal texts with equal seeds are equal."""

    text: str
    """The expression as understood: one space between fields, names in capitals."""
    is_fixed_time: bool
    """No `*` and no open step in second, minute and hour: it names times of day instead of a cadence."""
    uses_hash: bool
    """Whether `H` occurs, so that the seed matters."""
    seconds: int
    minutes: int
    hours: int
    days: Days
    months: int
    _first: tuple[int, int, int]

    @staticmethod
    def parse(text: str, seed: int = 0) -> "Cron":
        """Compiles an expression; `seed` fixes what `H` stands for. Raises `CronFault`."""
        return _compile(text, seed)

    def next_local(self, after: datetime) -> datetime | None:
        """The first matching local time strictly later than `after`; None beyond the last year that is planned."""
        year, month, day = after.year, after.month, after.day
        days = self._days_of(year, month)
        if days >> day & 1:
            time = self._time_from(after.hour, after.minute, after.second + 1)
            if time is not None:
                return datetime(year, month, day, *time)  # noqa: DTZ001 - local time has no zone here
        days = days >> day + 1 << day + 1
        while not days:
            month += 1
            if month > 12:
                year, month = year + 1, 1
                if year > YEAR_MAX:
                    return None
            days = self._days_of(year, month)
        return datetime(year, month, _lowest(days), *self._first)  # noqa: DTZ001

    def _days_of(self, year: int, month: int) -> int:
        if not self.months >> month & 1:
            return 0
        return self.days.mask(_shape(year, month))

    def _time_from(self, hour: int, minute: int, second: int) -> tuple[int, int, int] | None:
        """The first matching time of day that is not earlier; `second` may be 60."""
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                seconds = self.seconds >> second
                if seconds:
                    return hour, minute, second + _lowest(seconds)
            minutes = self.minutes >> minute + 1
            if minutes:
                return hour, minute + 1 + _lowest(minutes), self._first[2]
        hours = self.hours >> hour + 1
        if hours:
            return hour + 1 + _lowest(hours), self._first[1], self._first[2]
        return None


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


@lru_cache(maxsize=4096)
def _shape(year: int, month: int) -> tuple[int, int]:
    """First weekday (0 is Sunday) and length of a month."""
    first = date(year, month, 1)
    following = date(year + month // 12, month % 12 + 1, 1)
    return first.isoweekday() % 7, (following - first).days


def _nearest_weekday(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


# --- reading ----------------------------------------------------------------------------------------------

HASH_DAY_MAX: Final = 28
"""`H` as a day stands for one that every month has."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: dict[str, int] = field(default_factory=dict)
    hash_high: int | None = None

    @property
    def shown(self) -> str:
        return f"{self.name} {self.low}-{self.high}"


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day of month", 1, 31, hash_high=HASH_DAY_MAX)
_MONTH: Final = _Field("month", 1, 12, _MONTHS)
_WEEKDAY: Final = _Field("weekday", 0, 7, _WEEKDAYS, hash_high=6)
_FIELDS: Final = (_SECOND, _MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY)

_SPECIAL_DAYS: Final = "L, L-3, 15W and LW belong in the day of month; FRIL and MON#2 in the weekday"
_ALLOWED: Final = re.compile(r"[A-Za-z0-9*,/#?()@\t -]*")
_PREFIX: Final = re.compile(r"\s*[A-Za-z_]+\s*=")
_VALUE: Final = r"[A-Z]+|[0-9]+"
_RANGE_TERM: Final = re.compile(
    rf"(?:(?P<star>\*)|(?P<hash>H)(?:\((?P<hash_low>[0-9]+)-(?P<hash_high>[0-9]+)\))?"
    rf"|(?P<low>{_VALUE})(?:-(?P<high>{_VALUE}))?)(?:/(?P<step>[0-9]+))?"
)
_LAST_DAY: Final = re.compile(r"L(?:-(?P<offset>[0-9]+))?(?P<weekday>W)?")
_NEAREST: Final = re.compile(r"(?P<day>[0-9]+)W")
_NTH: Final = re.compile(rf"(?P<weekday>{_VALUE})#(?P<nth>[0-9]+)")
_LAST_WEEKDAY: Final = re.compile(r"(?P<weekday>[0-9]+|SUN|MON|TUE|WED|THU|FRI|SAT)L")


# Expressions differ, but they are made of few different fields: a field is read once, and compiling takes a tenth.
# Where `H` occurs the seed matters, and it belongs to one job only.


@lru_cache(maxsize=16_384)
def _bits(text: str, place: int, seed: int) -> int:
    return _Reader(seed).bits(text, _FIELDS[place])


@lru_cache(maxsize=4096)
def _days(day_text: str, weekday_text: str, seed: int) -> Days:
    return _Reader(seed).days(day_text, weekday_text)


@lru_cache(maxsize=65_536)
def _compile(text: str, seed: int) -> Cron:
    parts = _split(text)
    written = " ".join(parts)
    if parts[0] in MACROS:
        parts = MACROS[parts[0]].split()
    full = ["0", *parts] if len(parts) == 5 else parts
    try:
        second, minute, hour, month = (_bits(full[at], at, seed) for at in (0, 1, 2, 4))
        days = _days(full[3], full[5], seed)
    except CronFault:
        raise _first_of(_faults_of(full, seed)) from None
    cron = Cron(
        text=written,
        is_fixed_time=not any("*" in part or re.search(r"H[^,]*/", part) for part in full[:3]),
        uses_hash=any("H" in re.sub("[A-Z]{2,}", "", part) for part in full),
        seconds=second,
        minutes=minute,
        hours=hour,
        days=days,
        months=month,
        _first=(_lowest(hour), _lowest(minute), _lowest(second)),
    )
    if not _ever_fires(days, month):
        raise CronFault("cron-never-fires", f"{written} never fires: no month it names has such a day")
    return cron


def _faults_of(fields: Sequence[str], seed: int) -> Iterator[CronFault]:
    """What is wrong, field by field: whoever corrects one should not have to come back for the next."""
    for place, text in enumerate(fields):
        try:
            if place in (3, 5):
                _days(*((text, "*") if place == 3 else ("*", text)), seed)
            else:
                _bits(text, place, seed)
        except CronFault as fault:
            yield fault


def _first_of(faults: Iterable[CronFault]) -> CronFault:
    first, *others = faults
    first.others = others
    return first


def _split(text: str) -> list[str]:
    """The fields as they are kept, or one macro; everything that is wrong with the text as a whole is refused here."""
    if not text.strip():
        raise CronFault("cron-empty", "the cron expression is empty; write for example 0 9 * * MON-FRI")
    if len(text) > TEXT_LENGTH_MAX:
        raise CronFault("cron-syntax", f"a cron expression has at most {TEXT_LENGTH_MAX} characters")
    if not text.isascii():
        strange = next(char for char in text if not char.isascii())
        raise CronFault("non-ascii", f"only plain ASCII characters are allowed, not U+{ord(strange):04X}")
    if _PREFIX.match(text):
        raise CronFault("unsupported-prefix", "variables in front are not supported", "name the time zone in zone")
    if not _ALLOWED.fullmatch(text):
        strange = next(char for char in text if not _ALLOWED.fullmatch(char))
        raise CronFault("cron-syntax", f"the character {strange!r} has no meaning in a cron expression")
    if text.lstrip().startswith("@"):
        return [_macro(text.strip().lower())]
    parts = text.upper().split()
    if len(parts) not in (5, 6):
        hint = "minute hour day-of-month month weekday, with seconds in front if wanted"
        if len(parts) == 7:
            hint += "; years are not supported, use start_at and end_at"
        raise CronFault("cron-field-count", f"5 or 6 fields are needed, not {len(parts)}", hint)
    weekday = ",".join({"7": "0", "0-7": "0-6"}.get(term, term) for term in parts[-1].split(","))
    return [*parts[:-1], weekday]


def _macro(word: str) -> str:
    if word in MACROS:
        return word
    if word.startswith("@reboot"):
        raise CronFault("unsupported-macro", "@reboot has no meaning for a cluster", "use the schedule now", [*MACROS])
    if word.startswith("@every"):
        raise CronFault("unsupported-macro", "@every is not a cron expression", 'write {"every": "15m"}', [*MACROS])
    raise CronFault("unknown-macro", f"there is no macro {word[:40]}; there are {', '.join(MACROS)}", None, [*MACROS])


@lru_cache(maxsize=4096)
def _ever_fires(days: Days, months: int) -> bool:
    # A leap year has every day there is; over the years each of its months opens on each weekday.
    lengths = {_shape(2024, month)[1] for month in range(1, 13) if months >> month & 1}
    return any(days.mask((weekday, length)) for length in lengths for weekday in range(7))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Turns the text of single fields into bits."""

    seed: int

    def bits(self, text: str, of: _Field) -> int:
        bits = 0
        for term in text.split(","):
            bits |= self._range(term, of)
        return bits

    def days(self, day_text: str, weekday_text: str) -> Days:
        of_month, last_offsets, nearest = 0, [], []
        for term in _star_for_question(day_text).split(","):
            if match := _LAST_DAY.fullmatch(term):
                offset = _within(match["offset"] or "0", 0, 30, "offset from the last day 0-30")
                nearest.append(-offset) if match["weekday"] else last_offsets.append(offset)
            elif match := _NEAREST.fullmatch(term):
                nearest.append(_within(match["day"], 1, 31, _DAY.shown))
            else:
                of_month |= self._range(term, _DAY)
        of_week, nth_weekdays = 0, []
        for term in _star_for_question(weekday_text).split(","):
            if match := _NTH.fullmatch(term):
                nth = _within(match["nth"], 1, 5, "number after # 1-5")
                nth_weekdays.append((_value(match["weekday"], _WEEKDAY) % 7, nth))
            elif match := _LAST_WEEKDAY.fullmatch(term):
                nth_weekdays.append((_value(match["weekday"], _WEEKDAY) % 7, 0))
            else:
                of_week |= self._range(term, _WEEKDAY)
        of_week |= of_week >> _SUNDAY_AGAIN
        both = day_text[0] in "*?" or weekday_text[0] in "*?"
        return Days(of_month, of_week & 0x7F, tuple(last_offsets), tuple(nearest), tuple(nth_weekdays), both)

    def _range(self, term: str, of: _Field) -> int:
        match = _RANGE_TERM.fullmatch(term)
        if not match:
            raise _not_understood(term, of)
        step = int(match["step"] or 1)
        if step == 0:
            raise CronFault("step-zero", f"{term} in {of.name}: a step must be at least 1")
        low, high = self._ends(match, of)
        count = high - low + 1
        if step > count:
            message = f"{term} in {of.name}: the step {step} is larger than the range of {count}"
            raise CronFault("step-larger-than-range", message)
        if match["hash"]:
            start = low + self._hash(of) % (step if match["step"] else count)
            return _every(step, start, high) if match["step"] else 1 << start
        return _every(step, low, high)

    def _ends(self, match: re.Match[str], of: _Field) -> tuple[int, int]:
        if match["star"]:
            return of.low, 6 if of is _WEEKDAY else of.high
        if match["hash"]:
            low, high = match["hash_low"], match["hash_high"]
            first = of.low if low is None else _value(low, of)
            last = (of.hash_high or of.high) if high is None else _value(high, of)
        else:
            first = _value(match["low"], of)
            last = first if match["step"] is None else of.high
            if match["high"] is not None:
                last = _SUNDAY_AGAIN if of is _WEEKDAY and match["high"] == "SUN" else _value(match["high"], of)
        if last < first:
            hint = None if match["hash"] else f"write {first}-{of.high},{of.low}-{last} to go past the end"
            raise CronFault("reversed-range", f"{match[0]} in {of.name} ends before it starts", hint)
        return first, last

    def _hash(self, of: _Field) -> int:
        return int.from_bytes(hashlib.sha256(f"{of.name}/{self.seed}".encode()).digest()[:8])


def _every(step: int, low: int, high: int) -> int:
    bits = 0
    for value in range(low, high + 1, step):
        bits |= 1 << value
    return bits


def _star_for_question(text: str) -> str:
    return "*" if text == "?" else text


def _value(text: str, of: _Field) -> int:
    if text.isdigit():
        return _within(text, of.low, of.high, of.shown)
    if text in of.names:
        return of.names[text]
    raise _unknown_name(text, of)


def _within(digits: str, low: int, high: int, shown: str) -> int:
    value = int(digits)
    if not low <= value <= high:
        raise CronFault("cron-out-of-range", f"{value} is out of range: {shown}")
    return value


def _unknown_name(text: str, of: _Field) -> CronFault:
    elsewhere = [other.name for other in (_MONTH, _WEEKDAY) if text in other.names]
    hint = None
    if text[:3] in of.names:
        hint = f"did you mean {text[:3]}?"
    elif elsewhere:
        hint = f"{text} belongs in the field for the {elsewhere[0]}"
    elif text in ("L", "W", "LW"):
        hint = _SPECIAL_DAYS
    return CronFault("unknown-name", f"{text[:40]} is no {of.name}: {of.shown}", hint, [*of.names] or None)


def _not_understood(term: str, of: _Field) -> CronFault:
    if not term:
        return CronFault("cron-syntax", f"{of.name} has an empty entry; look for a comma too many")
    hint = None
    if "W" in term or "L" in term or "#" in term:
        hint = _SPECIAL_DAYS
    elif "?" in term:
        hint = "? stands alone, in the day of month or the weekday"
    return CronFault("cron-syntax", f"{term[:40]} is not understood in {of.shown}", hint)
