"""What the ledger must say, found by looking at every minute there is. Shares no code with the product.

It knows cron fields made of `*`, `*/n`, numbers, lists and ranges, one minute as the smallest step, the choices for
clocks that are set, and what becomes of due times in an outage or a pause. It is slow and simple on purpose.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
GRACE = timedelta(seconds=15)
AHEAD = timedelta(seconds=2)

Row = tuple[datetime, str, str | None, int]
"""When it was due, what became of it, why, and how many it stands for."""


@dataclass(frozen=True)
class Outage:
    """Nobody plans between these: at `begin` for the last time, at `end` again."""

    begin: datetime
    end: datetime


@dataclass(frozen=True)
class Spec:
    """A job as the oracle knows it. Exactly one of cron and every."""

    name: str
    cron: str | None = None
    every: timedelta | None = None
    zone: str = "UTC"
    gap: str = "fire_after"
    overlap: str = "auto"
    catchup: str = "last"
    window: timedelta = timedelta(hours=1)
    most: int = 100
    takes: timedelta | None = None
    """How long a run takes that others must not overlap with; None: they may, and it takes no time."""
    pauses: Sequence[tuple[datetime, datetime]] = field(default=())


def expected_ledger(spec: Spec, begin: datetime, end: datetime, outage: Outage) -> list[Row]:
    """Every due time in (begin, end], and what the clock left out."""
    dues, gaps = _due_times(spec, begin, end)
    paused = [due for due in dues if _is_paused(spec, due)]
    rows: list[Row] = [(due, "paused", "paused", 1) for due in paused]
    rows += [(jump, "dst_gap", "dst_gap", count) for jump, count in gaps]
    open_dues = [due for due in dues if due not in set(paused)]
    late = [due for due in open_dues if outage.begin + AHEAD < due < outage.end - GRACE]
    inside = [due for due in late if outage.end - due <= spec.window]
    is_one_fresh = any(outage.end - GRACE <= due <= outage.end for due in open_dues)
    keep = {"last": 0 if is_one_fresh else 1, "all": spec.most, "none": 0}[spec.catchup]
    caught = inside[len(inside) - min(keep, len(inside)) :]
    for due in late:
        if due not in caught:
            rows.append((due, "missed", "catchup_last" if due in inside else "catchup_window", 1))
    runs = [due for due in open_dues if due not in late or due in caught]
    return sorted([*rows, *_overlaps(spec, runs)], key=lambda row: (row[0], row[1] == "dst_gap"))


def _overlaps(spec: Spec, runs: Sequence[datetime]) -> Iterator[Row]:
    free_at = datetime.min.replace(tzinfo=UTC)
    for due in runs:
        if spec.takes is None or due >= free_at:
            yield due, "succeeded", None, 1
            free_at = due + (spec.takes or timedelta(0))
        else:
            yield due, "skipped", "overlap", 1


def _is_paused(spec: Spec, due: datetime) -> bool:
    return any(since < due <= until for since, until in spec.pauses)


# --- when it is due ---------------------------------------------------------------------------------------


def _due_times(spec: Spec, begin: datetime, end: datetime) -> tuple[list[datetime], list[tuple[datetime, int]]]:
    if spec.every is not None:
        count = int((end - begin) / spec.every)
        return [begin + spec.every * step for step in range(1, count + 1)], []
    return _cron_times(spec, begin, end)


def _cron_times(spec: Spec, begin: datetime, end: datetime) -> tuple[list[datetime], list[tuple[datetime, int]]]:
    assert spec.cron is not None
    fields = spec.cron.split()
    fixed = "*" not in fields[0] + fields[1]
    zone = ZoneInfo(spec.zone)
    dues: list[datetime] = []
    gaps: list[tuple[datetime, int]] = []
    instant = begin
    before = _clock(instant, zone)
    while instant < end:
        instant += MINUTE
        local = _clock(instant, zone)
        jumped_over = [t for t in _minutes_between(before, local) if _matches(fields, t)]
        fires = _matches(fields, local) and _this_pass(spec, fixed, local, instant, zone)
        if jumped_over and fixed and spec.gap == "fire_after":
            fires = True
        elif jumped_over:
            gaps.append((instant, len(jumped_over)))
        if fires:
            dues.append(instant)
        before = local
    return dues, gaps


def _clock(instant: datetime, zone: ZoneInfo) -> datetime:
    """What a clock on the wall shows."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _minutes_between(before: datetime, behind: datetime) -> Iterator[datetime]:
    shown = before + MINUTE
    while shown < behind:
        yield shown
        shown += MINUTE


def _this_pass(spec: Spec, fixed: bool, local: datetime, instant: datetime, zone: ZoneInfo) -> bool:
    """Whether it fires now, of the two times that the clock shows this."""
    shown = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
    if shown[0] == shown[1]:
        return True
    is_first = instant == shown[0]
    if spec.overlap == "both" or (spec.overlap == "auto" and not fixed):
        return True
    return is_first if spec.overlap in ("auto", "first") else not is_first


def _matches(fields: Sequence[str], local: datetime) -> bool:
    minute, hour, day, month, weekday = fields
    dates = _is_in(day, local.day, 1), _is_in(weekday, local.isoweekday() % 7, 0)
    both = day.startswith("*") or weekday.startswith("*")
    return (
        _is_in(minute, local.minute, 0)
        and _is_in(hour, local.hour, 0)
        and _is_in(month, local.month, 1)
        and (all(dates) if both else any(dates))
    )


def _is_in(text: str, value: int, low: int) -> bool:
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        ends = (low, 10**6) if span == "*" else (int(first), int(last or first))
        if ends[0] <= value <= ends[1] and (value - ends[0]) % int(step or 1) == 0:
            return True
    return False
