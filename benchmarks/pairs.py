"""What the comparisons share: running all sides in turn, telling each round, and the ratios of a round.

Machines are shared and noisy, so only the ratio within a round means anything; who goes first changes from round to
round.
"""

import asyncio
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from hourhand.bench.ending import cancel_once_by_signals

T = TypeVar("T")
HERE = Path(__file__).parent
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")
OURS = "hourhand"
END_SECONDS_MAX = 90.0
"""How long a command may take to clear away what it has started."""
Rates = dict[str, float]
"""A round: the rate of each side."""

noted_settings: dict[str, str] = {}
"""Those of the server that was measured last."""
noted_others: list[float] = []
"""Cores that others took, or the host, in each measurement so far. Whoever wants those of some clears it before."""


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


def rounds(name: str, count: int, sides: Mapping[str, Callable[[], float]]) -> list[Rates]:
    """All sides so many times, in turn; each gives a rate per second."""
    found: list[Rates] = []
    for number in range(count):
        order = list(sides) if number % 2 == 0 else list(reversed(sides))
        rates = {side: sides[side]() for side in order}
        found.append(rates)
        told = "   ".join(f"{side} {rates[side]:9,.0f}/s" for side in sides)
        shares = ", ".join(f"{rates[OURS] / rates[side]:.2f}" for side in sides if side != OURS and OURS in sides)
        print(f"{name:10} pair {number + 1}: {told}   ratio {shares}", file=sys.stderr, flush=True)
    return found


def ratios(name: str, pairs: int, ours: Callable[[], float], theirs: Callable[[], float], other: str) -> list[float]:
    """Both sides so many times, in turn; each a rate per second."""
    return shares_of(rounds(name, pairs, {other: theirs, OURS: ours}), other)


def shares_of(found: Sequence[Rates], other: str) -> list[float]:
    """Our rate as a share of the other's, round by round."""
    return [rates[OURS] / rates[other] for rates in found]


def told_share(found: Sequence[Rates], other: str) -> str:
    """The median, the extremes, and what it is a share of."""
    shares = shares_of(found, other)
    ours, theirs = (median([rates[side] for rates in found]) for side in (OURS, other))
    return f"{median(shares):.2f} × ({min(shares):.2f} to {max(shares):.2f}; {ours:,.0f} of {theirs:,.0f}/s)"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def interpreter() -> str:
    """The very build of Python. The version alone does not tell: one that was compiled without a profile takes a
    quarter longer for the same code, and not every build says how it was made."""
    return f"{platform.python_implementation()} {sys.version.partition('[')[0].strip()}"
