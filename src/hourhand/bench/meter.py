"""Processor time and memory of a cluster's processes, by role.

Totals only ever grow: a process that is gone leaves what it was last seen with, and what it used after that look is in
its parent's books, where it counts as `other`. So short-lived processes, autovacuum's above all, are never missed.
Reads /proc; where there is none, there is nothing to tell.
"""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
POSTGRES: Final = "postgres"
OTHER: Final = f"{POSTGRES} other"
CLIENT: Final = "client"


class Meter:
    """`roles`: process ids with the role of each, counted with all they start. `alone`: counted by themselves."""

    def __init__(self, roles: Mapping[int, str], alone: Mapping[int, str], postmaster: int | None) -> None:
        self._roles = dict(roles)
        self._alone = {**alone, os.getpid(): CLIENT}
        self._postmaster = postmaster
        self._seen: dict[int, tuple[str, float]] = {}
        self._gone: dict[str, float] = {}

    def seconds(self, backends: Mapping[int, str] | None = None) -> dict[str, float]:
        """Processor time so far, by role. `backends`: what each process of PostgreSQL does."""
        for pid, role in self._alone.items():
            self._note(pid, role, own_seconds(pid))
        for root, role in self._roles.items():
            for pid in family(root):
                self._note(pid, role, seconds_with_dead_children(pid))
        for pid, does in (backends or {}).items():
            self._note(pid, f"{POSTGRES} {does}", own_seconds(pid))
        totals: dict[str, float] = dict(self._gone)
        for role, spent in self._seen.values():
            totals[role] = totals.get(role, 0.0) + spent
        if self._postmaster is not None:
            labelled = sum(spent for role, spent in totals.items() if role.startswith(f"{POSTGRES} ") and role != OTHER)
            totals[OTHER] = max(self.postgres_seconds() - labelled, 0.0)
        return totals

    def postgres_seconds(self) -> float:
        """All of PostgreSQL, what has ended included."""
        if self._postmaster is None:
            return 0.0
        living = sum(own_seconds(pid) or 0.0 for pid in children_of(self._postmaster))
        return (seconds_with_dead_children(self._postmaster) or 0.0) + living

    def all_seconds(self) -> float:
        """Everything but this very process: the roles, the supervisor and PostgreSQL, what has ended included."""
        roles = sum(seconds_with_dead_children(pid) or 0.0 for root in self._roles for pid in family(root))
        alone = sum(own_seconds(pid) or 0.0 for pid in self._alone if pid != os.getpid())
        return roles + alone + self.postgres_seconds()

    def resident_mb(self) -> dict[str, float]:
        """Memory by role; pages that several share count for each."""
        found: dict[str, float] = {}
        for pid, role in self._processes():
            with contextlib.suppress(OSError, ValueError, IndexError):
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                found[role] = found.get(role, 0.0) + pages * _PAGE_BYTES / 1e6
        return found

    def proportional_mb(self) -> dict[str, float]:
        """Memory by role; pages that several share are divided among them. Takes milliseconds per process."""
        found: dict[str, float] = {}
        for pid, role in self._processes():
            found[role] = found.get(role, 0.0) + proportional_mb_of(pid)
        return found

    def _processes(self) -> Iterator[tuple[int, str]]:
        yield from self._alone.items()
        for root, role in self._roles.items():
            yield from ((pid, role) for pid in family(root))
        if self._postmaster is not None:
            yield from ((pid, POSTGRES) for pid in family(self._postmaster))

    def _note(self, pid: int, role: str, spent: float | None) -> None:
        if spent is None:
            return
        before = self._seen.get(pid)
        if before is not None and spent < before[1]:  # another process with the same number
            self._gone[before[0]] = self._gone.get(before[0], 0.0) + before[1]
        self._seen[pid] = (role, spent)


def machine_seconds() -> dict[str, float]:
    """What the cores that we may use have done since the machine started: worked, for whomever, waited for the disk,
    been taken away by the host, had nothing to do."""
    if sys.platform != "linux":
        return {}
    ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    cores = [line.split()[1:9] for line in _lines("/proc/stat") if line.partition(" ")[0] in ours]
    if not cores:
        return {}
    user, nice, system, idle, waiting, hard, soft, stolen = (
        sum(int(core[place]) for core in cores) / _TICKS for place in range(8)
    )
    busy = user + nice + system + hard + soft
    return {"busy": busy, "disk_wait": waiting, "stolen": stolen, "idle": idle}


def own_seconds(pid: int) -> float | None:
    """Processor time of one process; None when it is gone."""
    ticks = _ticks(pid)
    return None if ticks is None else (ticks[0] + ticks[1]) / _TICKS


def seconds_with_dead_children(pid: int) -> float | None:
    """The same with that of children which have ended and been waited for."""
    ticks = _ticks(pid)
    return None if ticks is None else sum(ticks) / _TICKS


def proportional_mb_of(pid: int) -> float:
    """The memory of one process; pages that it shares with others count in part."""
    lines = [line for line in _lines(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:")]
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines)


def family(root: int) -> list[int]:
    """A process and everything that it or its children have started and that is still there."""
    found, open_ends = [root], [root]
    while open_ends:
        children = children_of(open_ends.pop())
        found += children
        open_ends += children
    return found


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # the kernel lists children by the thread that made them
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def _ticks(pid: int) -> list[int] | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return [int(number) for number in fields[11:15]]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
