"""What the comparisons share: running both sides in turn, and telling each pair and the median of their ratios.

Machines are shared and noisy, so only the ratio within a pair means anything; who goes first changes from pair to pair.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


def run(command: list[str]) -> dict[str, Any]:
    """Runs a command that prints one JSON object as its last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def bench(*words: str, whole: bool = True) -> dict[str, Any]:
    """`hourhand bench …` on a temporary cluster. The disk must be real; and, if not said otherwise, nothing may be
    lost or doubled: a rate of what did not happen is none."""
    found = run([sys.executable, "-m", "hourhand.cli", "bench", *words, "--json"])
    settings = found.get("settings", {})
    wrong = {key: settings.get(key) for key in DURABLE if settings.get(key) != "on"}
    if whole:
        wrong |= {key: found[key] for key in ("lost", "doubled") if found.get(key)}
    if wrong:
        raise SystemExit(f"bench {' '.join(words)}: {wrong}")
    return found


def floor(mode: str, seconds: float) -> dict[str, Any]:
    return run([sys.executable, str(HERE / "floor.py"), "--seconds", str(seconds), "--mode", mode, "--json"])


def ratios(name: str, pairs: int, ours: Callable[[], float], theirs: Callable[[], float], other: str) -> list[float]:
    """Both sides so many times, in turn; each a rate per second."""
    found = []
    for pair in range(pairs):
        if pair % 2 == 0:
            base = theirs()
            rate = ours()
        else:
            rate = ours()
            base = theirs()
        found.append(rate / base)
        print(
            f"{name:10} pair {pair + 1}: {other} {base:9,.0f}/s   hourhand {rate:9,.0f}/s   ratio {found[-1]:.2f}",
            file=sys.stderr,
            flush=True,
        )
    return found


def median(values: list[float]) -> float:
    return statistics.median(values)
