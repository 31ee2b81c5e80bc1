"""Pauses: which due times they are about, who made them and why, in words.

A due time is paused when it is later than the pause's beginning and earlier than its end. At the very instant of its
beginning it still runs, at the very instant of `until` it runs again.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from hourhand.model.catchup import CatchUp
from hourhand.model.local_time import format_instant


class PauseScope(StrEnum):
    """How much is paused."""

    JOB = "job"
    LABEL = "label"
    QUEUE = "queue"
    NAMESPACE = "namespace"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause as people see it. `name`: the label, the queue, the namespace; empty for a job and the cluster."""

    scope: PauseScope
    name: str
    paused_at: datetime
    paused_by: str
    reason: str | None = None
    until: datetime | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    catch_up: CatchUp | None = None

    @property
    def words(self) -> str:
        """ "queue reports paused by ada since 2030-01-07T12:00:00Z until 2030-01-08T06:00:00Z: moving the disks" """
        what = "" if self.scope is PauseScope.JOB else f"{self.scope.value} {self.name} ".replace("  ", " ")
        until = f" until {format_instant(self.until)}" if self.until is not None and self.ended_at is None else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{what}paused by {self.paused_by} since {format_instant(self.paused_at)}{until}{why}"
