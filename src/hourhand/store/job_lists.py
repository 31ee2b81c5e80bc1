"""Lists and searches of jobs. What one page costs follows from what it looks at, never from what is stored.

Most jobs ran once and are over, and no index but that by their ids has them: any other would cost those who submit. So
a search walks over them from the newest on, over so many and no more, and says how far it came (`Walked.reached`): a
page may be short, and its cursor leads on from there. What recurs, is paused or cancelled has indexes of its own. What
is alive is found from the rows of the timetable and of the live runs.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from hourhand.database.connections import Database, Record
from hourhand.database.queries import load_queries
from hourhand.model.job import Job
from hourhand.model.states import JobState
from hourhand.ports.stores import NEVER, Walked
from hourhand.store.job_definitions import definition_of
from hourhand.store.job_pauses import pauses_of
from hourhand.store.jsons import to_json
from hourhand.store.names import Names

LOOK: Final = 10_000
"""Jobs that a page looks at, where their own rows say whether they fit: some five milliseconds."""
LOOK_ALIVE: Final = 2000
"""The same where it must be looked up of each whether it is alive."""
LOOK_MORE_BY_NUMBER: Final = 10
"""So many times more of both for a page that is asked for by its number: no other page goes on where it ends."""
LOOK_NEWEST: Final = 300
"""Those who look for what is alive look at the newest first: after a burst of submissions it is there."""
LIVING_SECONDS_MAX: Final = 0.25
"""How long it may take to find what is alive from its own rows, which may be many, or not cleared away yet."""

_HIGHEST_ID: Final = UUID(int=(1 << 128) - 1)
_SET_ASIDE: Final = {JobState.PAUSED: 1, JobState.CANCELLED: 2}


class _Asked(NamedTuple):
    """One page of one list."""

    namespace_id: int
    before: UUID
    limit: int
    skip: int
    values: Mapping[str, Any]
    """What the jobs must be like."""


class JobLists:
    def __init__(self, database: Database, names: Names) -> None:
        self._database = database
        self._names = names
        self._queries = load_queries("hourhand.store.sql", "job_lists.sql", database.schema)

    async def list_jobs(
        self, namespace_id: int, before: UUID | None, limit: int, skip: int | None, filters: Mapping[str, Any]
    ) -> Walked[Job]:
        asked = _Asked(namespace_id, before or _HIGHEST_ID, limit, skip or 0, _values_of(filters))
        state = filters.get("state")
        look = (LOOK if state is None else LOOK_ALIVE) * (1 if skip is None else LOOK_MORE_BY_NUMBER)
        if state in _SET_ASIDE:
            return await self._walk("walk_set_aside", asked, look, status=_SET_ASIDE[state])
        if state is JobState.SCHEDULED:
            return await self._living(asked)
        if filters.get("recurring"):
            named = "walk_recurring" if filters.get("name") is None else "walk_recurring_named"
            return await self._walk(named, asked, look, state=state)
        if filters.get("name") is not None and filters.get("recurring") is None and skip is None:
            return await self._named(asked, look, state, is_first=before is None)
        return await self._walk("walk_jobs", asked, look, state=state)

    async def _named(self, asked: _Asked, look: int, state: JobState | None, *, is_first: bool) -> Walked[Job]:
        """Those that recur first, off their index: who asks by name mostly means one of them, and it may be older than
        any number of jobs that ran once."""
        found: Walked[Job] = Walked()
        if is_first or await self._recurs(asked):
            found = await self._walk("walk_recurring_named", asked, look, state=state)
            if len(found) >= asked.limit or found.reached is not None:
                return found
            asked = asked._replace(before=_HIGHEST_ID)
        once = {**asked.values, "recurring": False}
        rest = await self._walk(
            "walk_jobs", asked._replace(limit=asked.limit - len(found), values=once), look, state=state
        )
        # The cursor must not be the id of a job that recurs, or the next page would begin with those again.
        reached = None if rest.reached is None else UUID(int=rest.reached.int + 1)
        return Walked([*found, *rest], reached)

    async def _recurs(self, asked: _Asked) -> bool:
        query = self._queries["recurs"]
        row = await self._database.fetch_one(query, namespace_id=asked.namespace_id, job_id=asked.before)
        return row is not None and row["recurs"]

    async def _living(self, asked: _Asked) -> Walked[Job]:
        """Among the newest jobs first, which takes no notice of how much is alive; then from the rows of what is. Where
        those are too many, the walk over all jobs goes on instead, and the page may be short."""
        newest: Walked[Job] = Walked()
        if not asked.skip:
            newest = await self._walk("walk_jobs", asked, LOOK_NEWEST, state=JobState.SCHEDULED)
            if newest.reached is None or len(newest) >= asked.limit:
                return newest
            asked = asked._replace(before=newest.reached, limit=asked.limit - len(newest))
        rest = await self._from_what_is_alive(asked)
        if rest is None:
            rest = await self._walk("walk_jobs", asked, LOOK_ALIVE, state=JobState.SCHEDULED)
        return Walked([*newest, *rest], rest.reached)

    async def _from_what_is_alive(self, asked: _Asked) -> Walked[Job] | None:
        rows = await self._database.fetch_within(
            LIVING_SECONDS_MAX, self._queries["walk_living"], **_sent(asked), look=LOOK_ALIVE
        )
        return None if rows is None else await self._walked(asked, rows)

    async def _walk(self, name: str, asked: _Asked, look: int, **more: Any) -> Walked[Job]:
        rows = await self._database.fetch(self._queries[name], **_sent(asked), look=look, **more)
        return await self._walked(asked, rows)

    async def _walked(self, asked: _Asked, rows: list[Record]) -> Walked[Job]:
        namespace = await self._names.namespace_name(asked.namespace_id)
        reached = rows[-1]["job_id"] if rows and rows[-1]["is_last"] else None
        return Walked([job_of(row, namespace) for row in rows if row["fits"]], reached)


def _values_of(filters: Mapping[str, Any]) -> dict[str, Any]:
    labels = filters.get("labels")
    return {
        **{name: filters.get(name) for name in ("name", "kind", "owner", "queue", "recurring")},
        "labels": to_json(labels) if labels else None,
        "priority": filters.get("priorities"),
    }


def _sent(asked: _Asked) -> dict[str, Any]:
    where = {"namespace_id": asked.namespace_id, "before": asked.before, "limit": asked.limit, "skip": asked.skip}
    return {**where, **asked.values}


def job_of(row: Record, namespace: str) -> Job:
    state = JobState.SCHEDULED if row["alive"] else JobState.COMPLETED
    if row["status"]:
        state = JobState.CANCELLED if row["status"] == 2 else JobState.PAUSED if row["paused"] else state
    upcoming = [due for due in (row["next_live"], row["next_fire"]) if due is not None and due != NEVER]
    return Job(
        job_id=row["job_id"],
        namespace=namespace,
        definition=definition_of(row),
        version=row["version"],
        state=state,
        next_due=min(upcoming, default=None),
        created_at=row["created_at"],
        created_by=row["created_by"],
        updated_at=row["updated_at"],
        pause_reason=row["pause_reason"] if state is JobState.PAUSED else None,
        unique_key=row["unique_key"],
        pauses=pauses_of(row, namespace) if row["paused"] or row["held_by"] is not None else (),
    )
