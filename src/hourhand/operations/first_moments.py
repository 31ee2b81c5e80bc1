"""The first due times of a new job: who makes their runs.

Those within the planner's horizon are made in the submitting transaction, so that nobody waits for a scheduler. While
there is any pause, due times of recurring schedules are left to the schedulers, who know what it holds. What runs once
is never asked about.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec.structs import replace

from hourhand.ports.pause_stores import PauseLook
from hourhand.ports.stores import NewJob


class PauseLooks(Protocol):
    async def look(self, now: datetime) -> PauseLook: ...


def makes_recurring_runs(new: NewJob) -> bool:
    return bool(new.fires) and new.definition.timing.only_instant is None and new.definition.timing.recurring


async def around_pauses(pauses: PauseLooks | None, news: Sequence[NewJob], now: datetime) -> list[NewJob]:
    """The jobs, those whose first recurring due times a pause may hold without runs and with a cursor there."""
    if pauses is None or not any(makes_recurring_runs(new) for new in news) or not (await pauses.look(now)).in_force:
        return list(news)
    return [replace(new, fires=(), next_due=new.fires[0]) if makes_recurring_runs(new) else new for new in news]
