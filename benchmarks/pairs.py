"""What the comparisons share: running all sides in turn, telling each round, and the ratios of a round.

Machines are shared and noisy, so only the ratio within a round means anything; who goes first changes from round to
round. A round beside a side of which the host took more than a quarter of a core is set aside and measured again, twice
at most; it is told all the same. After that rounds count as they are: a host that always takes must not decide how long
it lasts.
"""

import asyncio
import contextlib
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from hourhand.bench.ending import cancel_once_by_signals
from hourhand.bench.meter import machine_seconds

T = TypeVar("T")
HERE = Path(__file__).parent
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
OURS = "hourhand"
END_SECONDS_MAX = 90.0
"""How long a command may take to clear away what it has started."""
HOST_CORES_MAX = 0.25
ASIDE_MAX = 2
"""Rounds of one call that may be set aside."""
TELLING_SECONDS_MIN = 1.0
"""The kernel counts what the host takes in hundredths of a second: of less time than this they say nothing."""
Rates = dict[str, float]
"""The rate of each side."""
Look = tuple[float, float]
"""The time, and how much of all cores the host has taken so far; both in seconds."""

noted_settings: dict[str, str] = {}
"""Those of the server that was measured last."""
noted_others: list[float] = []
"""Cores that others took, or the host, in each measurement so far. Whoever wants those of some clears it before."""


@dataclass(frozen=True)
class Round:
    rates: Rates
    stolen: float
    """Cores that the host took, beside the side where it took most."""
    counts: bool = True
    """False: it was set aside."""


@dataclass
class Spare:
    """How many seconds may be spent on rounds that are set aside. Calls that share one share its seconds."""

    seconds: float = math.inf

    def take(self, seconds: float) -> bool:
        """Whether so many are left; then they are gone."""
        if seconds > self.seconds:
            return False
        self.seconds -= seconds
        return True


def run_whole(work: Coroutine[Any, Any, T]) -> T:
    """Runs it on a loop. Ended from outside it still ends what it has started: a temporary cluster would go on for
    ever."""

    async def ended_by_signal() -> T:
        task = asyncio.current_task()
        assert task is not None
        cancel_once_by_signals(task)
        try:
            return await work
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None

    return uvloop.run(ended_by_signal())


def run(command: list[str]) -> dict[str, Any]:
    """Runs a command that prints one JSON object as its last line. Ended from outside, by Ctrl-C or otherwise, it ends
    the command the same way and waits until that has cleared away what it had started."""
    with _ending_by_signals(), _started(command) as process:
        try:
            said, complained = process.communicate()
        except BaseException:
            _end(process)
            raise
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{complained[-2000:]}")
    found: dict[str, Any] = json.loads(said.strip().splitlines()[-1])
    return found


def _started(command: list[str]) -> "subprocess.Popen[str]":
    """In a group of its own, so that it is ended once: a terminal would send its Ctrl-C to everybody."""
    pipe = subprocess.PIPE
    environment = {**os.environ, "PATH": search_path()}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0, env=environment)


def search_path() -> str:
    """Where programs are looked for. The floor's server calls `useradd`, which is not where everybody looks."""
    return f"{os.environ.get('PATH') or os.defpath}:/usr/sbin:/sbin"


def _end(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Being told to end, or losing the terminal, is taken like Ctrl-C meanwhile."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt  # not an end of the row alone, which then only could not be measured

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def bench(*words: str, whole: bool = True) -> dict[str, Any]:
    """`hourhand bench …` on a temporary cluster. The disk must be real; and, if not said otherwise, nothing may be
    lost, doubled, early or for another time: a rate of what did not happen is none."""
    found = run([sys.executable, "-m", "hourhand.cli", "bench", *words, "--json"])
    refuse_unsound(f"bench {' '.join(words)}", found, whole=whole)
    return found


def refuse_unsound(what: str, found: Mapping[str, Any], *, whole: bool = True) -> None:
    """Ends with a message when the figures do not count."""
    settings = found.get("settings") or {}
    wrong = {key: settings.get(key) for key in DURABLE if settings.get(key) != "on"}
    if whole:
        wrong |= {key: found[key] for key in ("lost", "doubled", "early", "misdated") if found.get(key)}
    if wrong:
        raise SystemExit(f"{what}: {wrong}")
    noted_settings.update(settings)
    others = others_of(found)
    if others is not None:
        noted_others.append(others)


def others_of(found: Mapping[str, Any]) -> float | None:
    """Cores that were busy for others than what was measured, or taken away by the host. None if that is not known."""
    machine, cpu = found.get("machine"), found.get("cpu")
    if not machine or not cpu:
        return None
    return float(max(machine["busy"] - sum(cpu.values()), 0.0) + machine["stolen"])


def floor(mode: str, seconds: float) -> dict[str, Any]:
    """The floor's own run. What it is measured against must be as durable, and whole."""
    found = run([sys.executable, str(HERE / "floor.py"), "--seconds", str(seconds), "--mode", mode, "--json"])
    wrong = {key: found[key] for key in DURABLE if found[key] != "on"}
    if wrong or found["stored"] != found["jobs"]:
        raise SystemExit(f"floor {mode}: {wrong}, {found['stored']} of {found['jobs']} stored")
    return found


def rounds(name: str, count: int, sides: Mapping[str, Callable[[], float]], spare: Spare | None = None) -> list[Round]:
    """All sides so many times, in turn; each gives a rate per second. In the order in which they were measured, those
    that were set aside among them."""
    found: list[Round] = []
    spare, number = spare or Spare(), 0
    while number < count:
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        left = spare if len(_aside(found)) < ASIDE_MAX else Spare(0.0)
        found.append(_round(f"{name:10} pair {number + 1}", sides, order, left))
        number += found[-1].counts
    return found


def _round(title: str, sides: Mapping[str, Callable[[], float]], order: Sequence[str], spare: Spare) -> Round:
    """One round. It does not count when the host took too much, as long as there are seconds to spare for another."""
    noted, began = len(noted_others), look()[0]
    rates, stolen = Rates(), 0.0
    for side in order:
        before = look()
        rates[side] = sides[side]()
        stolen = max(stolen, stolen_cores(before, look()))
    told = "   ".join(f"{side} {rates[side]:9,.0f}/s" for side in sides)
    shares = ", ".join(f"{rates[OURS] / rates[side]:.2f}" for side in sides if side != OURS and OURS in sides)
    print(f"{title}: {told}   ratio {shares}", file=sys.stderr, flush=True)
    if stolen <= HOST_CORES_MAX or not spare.take(look()[0] - began):
        return Round(rates, stolen)
    print(f"{title} is set aside: the host took {stolen:.2f} cores", file=sys.stderr, flush=True)
    del noted_others[noted:]  # they are of what does not count
    return Round(rates, stolen, counts=False)


def look() -> Look:
    return time.monotonic(), machine_seconds().get("stolen", 0.0)


def stolen_cores(before: Look, after: Look) -> float:
    """Cores that the host took in between; none where that was too short to say."""
    seconds = after[0] - before[0]
    return max(after[1] - before[1], 0.0) / seconds if seconds >= TELLING_SECONDS_MIN else 0.0


def ratios(name: str, pairs: int, ours: Callable[[], float], theirs: Callable[[], float], other: str) -> list[float]:
    """Both sides so many times, in turn; each a rate per second."""
    return shares_of(rounds(name, pairs, {other: theirs, OURS: ours}), other)


def shares_of(found: Sequence[Round], other: str) -> list[float]:
    """Our rate as a share of the other's, round by round, of those that count."""
    return [_share(each, other) for each in found if each.counts]


def told_share(found: Sequence[Round], other: str) -> str:
    """The median, the extremes, and what it is a share of; and what was set aside."""
    shares = shares_of(found, other)
    ours, theirs = (median([each.rates[side] for each in found if each.counts]) for side in (OURS, other))
    told = f"{median(shares):.2f} × ({min(shares):.2f} to {max(shares):.2f}; {ours:,.0f} of {theirs:,.0f}/s)"
    return told + _told_aside(_aside(found), other)


def _told_aside(aside: Sequence[Round], other: str) -> str:
    if not aside:
        return ""
    taken = " and ".join(f"{each.stolen:.2f}" for each in aside)
    shares = " and ".join(f"{_share(each, other):.2f}" for each in aside)
    rounds_told = "1 round" if len(aside) == 1 else f"{len(aside)} rounds"
    return f"; {rounds_told} set aside, beside which the host took {taken} cores: {shares} ×"


def _aside(found: Sequence[Round]) -> list[Round]:
    return [each for each in found if not each.counts]


def _share(found: Round, other: str) -> float:
    return found.rates[OURS] / found.rates[other]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def interpreter() -> str:
    """The very build of Python. The version alone does not tell: one that was compiled without a profile takes a
    quarter longer for the same code, and not every build says how it was made."""
    return f"{platform.python_implementation()} {sys.version.partition('[')[0].strip()}"
