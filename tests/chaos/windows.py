"""Stretches of time in which something was broken, and those in which nothing was."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.chaos.history import Fault, Settings

DATABASE_ACTIONS: Final = frozenset(
    {"postgres_restart", "postgres_kill", "backend_kill", "failover", "disk", "lock_storm", "connections"}
)
"""Faults that touch every node, because they touch the database."""
SILENCING_ACTIONS: Final = frozenset({"kill", "stop", "partition", "mark_lost", "clock"})
"""Faults after which a node may not renew its lease in time, or not hear what it is asked. A drain is none of them."""
HARMLESS_ACTIONS: Final = frozenset({"drop_notify"})
"""Faults under which all promises of time hold as if there were none."""
MARGIN_SECONDS: Final = 3.0
"""Between the end of a lease and the next attempt: sweep, claim, start of a process."""


@dataclass(frozen=True, slots=True)
class Window:
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


def merged(windows: Iterable[Window]) -> list[Window]:
    """The same stretches without overlaps, in order."""
    result: list[Window] = []
    for window in sorted(windows, key=lambda window: window.start):
        if result and window.start <= result[-1].end:
            result[-1] = Window(result[-1].start, max(result[-1].end, window.end))
        else:
            result.append(window)
    return result


class Disturbances:
    """When the cluster was, or could still be, out of order."""

    def __init__(self, faults: Sequence[Fault], settings: Settings) -> None:
        self._settings = settings
        harmful = [fault for fault in faults if fault.action not in HARMLESS_ACTIONS]
        self.broken = merged(Window(fault.started, fault.ended) for fault in harmful)
        """From the injection to the healing."""
        # A killed executor may be back at once, but its runs come back with the end of its lease.
        self.aftermath_seconds = max(settings.recovery_seconds, settings.lease_seconds + MARGIN_SECONDS)
        self._troubled = merged(Window(window.start, window.end + self.aftermath_seconds) for window in self.broken)
        self._starts = [window.start for window in self._troubled]
        self._by_target: dict[str, list[Fault]] = {}
        self.of_database: list[Fault] = []
        for fault in sorted(harmful, key=lambda fault: fault.started):
            if fault.action in DATABASE_ACTIONS or not fault.target:
                self.of_database.append(fault)
            elif fault.action in SILENCING_ACTIONS:
                self._by_target.setdefault(fault.target, []).append(fault)

    def calm(self, start: float, end: float) -> bool:
        """Nothing was broken or recovering at any moment from `start` to `end`."""
        place = bisect_right(self._starts, end) - 1
        return place < 0 or self._troubled[place].end < start

    def calm_windows(self) -> list[Window]:
        edges = [self._settings.started_at]
        for window in self._troubled:
            edges += [window.start, window.end]
        edges.append(self._settings.read_at)
        return [
            Window(start, end)
            for start, end in zip(edges[::2], edges[1::2], strict=True)
            if end > start and self.calm(start + 1e-6, end - 1e-6)
        ]

    def on(self, node: str | None, start: float, end: float, margin: float = 0.0) -> list[Fault]:
        """Faults that silenced the node, or the database, and touch the stretch, each prolonged by `margin`.

        The node may be unknown: then every fault of any node could be meant.
        """
        if node is None:
            own = [fault for faults in self._by_target.values() for fault in faults]
        else:
            own = self._by_target.get(node, [])
        return [
            fault
            for faults in (own, self.of_database)
            for fault in faults
            if fault.started <= end and fault.ended + margin >= start
        ]
