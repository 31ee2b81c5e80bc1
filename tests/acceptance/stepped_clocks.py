"""Wall clocks that can be stepped while processes run by them, and what must hold of jobs meanwhile.

The database's clock decides. So a run is early when it starts before its due time by that clock as it stands at the
start. A due time that the clock has walked through must have run. One that it was set past is overdue: by the job's
catch-up policy it runs late or the ledger has it as missed, and nothing else may have become of it. When the clock is
set back, due times that were dealt with do not come again: each is told once, and runs once at most.
"""

import shutil
import struct
import subprocess
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

HERE = Path(__file__).parent
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MEASURING_SECONDS = 0.005
"""What may lie between a start and the witness's look at the clock, and between two clocks of one machine."""
UNDER_WAY_SECONDS = 0.5
"""What was claimed before a step starts by the old time: so long after it both count."""
PLANNED_SECONDS = 3.0
"""Runs are made so long ahead of their time. A step past several of one job finds them together."""
ENDING_SECONDS = 0.5
"""From the start of a run that does nothing until everybody knows that it has ended, on a busy machine."""
TOLD_REASONS = {"missed": {"catchup_last", "catchup_window"}, "skipped": {"overlap"}}


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def compile_shim(folder: Path) -> Path:
    """The library that sets a process's clock apart."""
    made, cc = folder / "clock_shim.so", compiler()
    assert cc is not None
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([cc, *options, "-o", str(made), str(HERE / "clock_shim.c"), "-ldl"], check=True)
    return made


class SteppedClock:
    """The wall clock of the processes that are started with its environment."""

    def __init__(self, folder: Path, name: str, shim: Path) -> None:
        self._path = folder / f"{name}.clock"
        self._path.write_bytes(struct.pack("q", 0))
        self._path.chmod(0o644)
        self.environment = {"LD_PRELOAD": str(shim), "CLOCK_SHIM_FILE": str(self._path)}
        self.times = Times(time.time() - time.monotonic())

    def set(self, seconds: float) -> None:
        """So far ahead of the machine's clock, from now on."""
        before = time.monotonic()
        with self._path.open("r+b", buffering=0) as file:
            file.write(struct.pack("q", round(seconds * 1_000_000_000)))
        self.times.stepped(before, time.monotonic(), seconds)

    def now(self) -> datetime:
        return self.times.at(time.monotonic())


class Times:
    """What a stepped clock showed when, by the monotonic clock."""

    def __init__(self, base: float, ahead: float = 0.0, begun: float = -float("inf")) -> None:
        self._base = base
        self._ahead = ahead
        """How far ahead the clock was before the first step."""
        self._begun = begun
        self._steps: list[tuple[float, float, float]] = []
        """When each step began and was done, and how far ahead the clock was from then on."""

    def stepped(self, before: float, after: float, ahead: float) -> None:
        self._steps.append((before, after, ahead))

    def since(self, monotonic: float) -> "Times":
        """The same for somebody who came at that moment: what it had shown before counts for nothing."""
        place = self._place(monotonic)
        later = Times(self._base, self._ahead_of(place), monotonic)
        later._steps = self._steps[place:]
        return later

    def before_last_step(self, monotonic: float) -> float:
        """A moment shortly before the last step that was done by then."""
        place = self._place(monotonic)
        return self._steps[place - 1][0] - 0.001 if place else monotonic

    def at(self, monotonic: float) -> datetime:
        return self._show(monotonic, self._ahead_of(self._place(monotonic)))

    def _place(self, monotonic: float) -> int:
        return bisect_right(self._steps, monotonic, key=lambda step: step[1])

    def _ahead_of(self, place: int) -> float:
        return self._steps[place - 1][2] if place else self._ahead

    def latest_near(self, monotonic: float, seconds: float) -> datetime:
        """The latest that it showed, counted on to this moment, from so many seconds before it on."""
        shown = [self.at(monotonic)]
        for (before, after, ahead), earlier in zip(
            self._steps, [self._ahead, *(step[2] for step in self._steps)], strict=False
        ):
            if before <= monotonic <= after + seconds:
                shown += [self._show(monotonic, ahead), self._show(monotonic, earlier)]
        return max(shown)

    def jumps(self) -> list[tuple[datetime, datetime]]:
        """The stretches that the clock was set past: from the latest it had ever shown to what it showed then."""
        found, earlier, latest = [], self._ahead, EPOCH
        for before, after, ahead in self._steps:
            latest = max(latest, self._show(before, earlier))
            shown = self._show(after, ahead)
            if shown > latest + timedelta(seconds=1):
                found.append((latest, shown))
            latest, earlier = max(latest, shown), ahead
        return found

    def walked(self, instant: datetime, until: float) -> float | None:
        """When the clock first walked through the instant, up to a moment; None when it was set past it."""
        earlier, begun = self._ahead, self._begun
        for before, after, ahead in [*self._steps, (until, until, 0.0)]:
            reached = (instant - EPOCH).total_seconds() - self._base - earlier
            if reached < begun:
                return None
            if reached < before:
                return reached
            earlier, begun = ahead, after
        return None

    def _show(self, monotonic: float, ahead: float) -> datetime:
        return EPOCH + timedelta(seconds=self._base + monotonic + ahead)


@dataclass(frozen=True, slots=True)
class Started:
    """One line of the witness."""

    job_id: UUID
    due: datetime
    run_id: UUID
    attempt: int
    monotonic: float


def read_started(path: Path) -> list[Started]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [_read(line.split()) for line in lines]


def _read(words: Sequence[str]) -> Started:
    job_id, due, run_id, attempt, nanos = words
    return Started(UUID(job_id), datetime.fromisoformat(due), UUID(run_id), int(attempt), int(nanos) / 1e9)


@dataclass(frozen=True, slots=True)
class Told:
    """One due time in the ledger."""

    due: datetime
    status: str
    reason: str | None = None


# --- what must hold ---------------------------------------------------------------------------------------


def early(started: Iterable[Started], times: Times) -> Iterator[str]:
    for line in started:
        shown = times.latest_near(line.monotonic, UNDER_WAY_SECONDS)
        if shown < line.due - timedelta(seconds=MEASURING_SECONDS):
            yield f"early by {line.due - shown}: {line.job_id} due {line.due}"


def doubled(started: Iterable[Started]) -> Iterator[str]:
    for (job_id, due), count in Counter((line.job_id, line.due) for line in started).items():
        if count > 1:
            yield f"started {count} times: {job_id} due {due}"


def unaccounted(job_id: UUID, expected: Sequence[datetime], told: Sequence[Told]) -> Iterator[str]:
    """Every due time of the job is in the ledger once, and nothing else is."""
    counts = Counter(entry.due for entry in told)
    yield from (f"told {count} times: {job_id} due {due}" for due, count in counts.items() if count > 1)
    yield from (f"missed without a word: {job_id} due {due}" for due in expected if due not in counts)
    yield from (f"never due: {job_id} {due}" for due in counts.keys() - set(expected))


def untrue(job_id: UUID, told: Sequence[Told], started: Iterable[Started], times: Times) -> Iterator[str]:
    """What the ledger says is what the witness saw. Whatever did not run was jumped over by the clock, or an earlier
    run was in its way."""
    ran = {line.due: line.monotonic for line in started if line.job_id == job_id}
    planned = timedelta(seconds=PLANNED_SECONDS)
    around = [(begin - planned, end + planned) for begin, end in times.jumps()]
    for entry in told:
        if entry.status == "succeeded":
            if entry.due not in ran:
                yield f"told as a run, but nobody saw it: {job_id} due {entry.due}"
        elif entry.due in ran:
            yield f"ran, but is told as {entry.status}: {job_id} due {entry.due}"
        elif entry.reason not in TOLD_REASONS.get(entry.status, ()):
            yield f"{entry.status} because of {entry.reason}: {job_id} due {entry.due}"
        elif any(begin <= entry.due <= end for begin, end in around):
            continue
        elif entry.status != "skipped" or not _was_in_the_way(entry.due, ran, times):
            yield f"{entry.status} although the clock walked through it: {job_id} due {entry.due}"


def _was_in_the_way(due: datetime, ran: Mapping[datetime, float], times: Times) -> bool:
    """Whether an earlier run can have been unfinished at the due time: it started shortly before it, or later."""
    reached = times.walked(due, float("inf"))
    return reached is not None and any(
        earlier < due and moment > reached - ENDING_SECONDS for earlier, moment in ran.items()
    )


def lateness(
    started: Sequence[Started], times: Times, away_seconds: float, until: float, made: Mapping[UUID, float]
) -> Mapping[UUID, float]:
    """Of runs whose due time the clock walked through with no step near: the longest time from then to the start.
    `made`: since when there are the jobs."""
    steps = [step[0] for step in times._steps]
    worst: dict[UUID, float] = {}
    for line in started:
        reached = times.since(made[line.job_id]).walked(line.due, until)
        if reached is not None and all(abs(reached - step) > away_seconds for step in steps):
            worst[line.job_id] = max(worst.get(line.job_id, 0.0), line.monotonic - reached)
    return worst
