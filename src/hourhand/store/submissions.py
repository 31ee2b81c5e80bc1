"""Submissions with keys: the rows of the keys are written in the transaction that stores the jobs.

So a key is never taken without its jobs nor the other way round, whatever dies in between. Whoever comes second waits
for the row of the first, and then sees what became of it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import asyncpg

from hourhand.database.connections import Connection, Database, Record, tried_twice
from hourhand.database.queries import load_queries
from hourhand.model.errors import Overloaded
from hourhand.model.keys import IDEMPOTENCY_KEY_KEPT
from hourhand.ports.stores import NewJob
from hourhand.ports.submission_stores import Duplicates, Earlier, Submission
from hourhand.store.job_rows import rows_of
from hourhand.store.jobs import Jobs

WAIT_SECONDS_MAX: Final = 3.0
"""How long to wait for somebody who is taking the same key. Others in the same transaction wait as long."""

Verdict = Earlier | Duplicates | None
_Unique = tuple[int, int, NewJob]
"""A job with a unique key: which submission, which place in it, the job."""


class _NothingStored(Exception):
    """Rolls the transaction back."""


class Submissions:
    def __init__(self, database: Database, jobs: Jobs) -> None:
        self._database = database
        self._jobs = jobs
        self._queries = load_queries("hourhand.store.sql", "submissions.sql", database.schema)

    @tried_twice
    async def insert_submissions(self, submissions: Sequence[Submission]) -> list[Verdict]:
        """Stores each with its keys, or says why not. All in one transaction; returns after its commit."""
        assert len(submissions) == 1 or all(len(each.jobs) == 1 for each in submissions), "a batch comes alone"
        verdicts: list[Verdict] = [None] * len(submissions)
        everything = [new for each in submissions for new in each.jobs]
        numbers = await self._jobs.numbers(everything, keep=True)
        tables = rows_of(everything, numbers)  # before the transaction: nearly always all of it is stored
        try:
            async with self._database.transaction() as db:
                await self._claim_keys(db, submissions, verdicts)
                await self._claim_unique_keys(db, submissions, verdicts)
                stored = [new for _, each in _open(submissions, verdicts) for new in each.jobs]
                if not stored:
                    raise _NothingStored
                await self._jobs.put_limits(db, stored)  # not those of requests that are refused or were here before
                await self._jobs.copy(db, tables if len(stored) == len(everything) else rows_of(stored, numbers))
        except _NothingStored:
            pass
        except asyncpg.LockNotAvailableError:
            raise Overloaded(
                "another request with the same key, or for the same limit, is still under way; ask again"
            ) from None
        return verdicts

    async def find_earlier(self, namespace_id: int, key: str, since: datetime) -> Earlier | None:
        row = await self._database.fetch_one(self._queries["find_key"], namespace_id=namespace_id, key=key, since=since)
        return None if row is None else Earlier(row["digest"], row["job_ids"])

    # --- steps -------------------------------------------------------------------------------------------

    async def _claim_keys(self, db: Connection, submissions: Sequence[Submission], verdicts: list[Verdict]) -> None:
        keyed = {(each.namespace_id, each.key.key): place for place, each in enumerate(submissions) if each.key}
        if not keyed:
            return
        rows = await self._fetch(
            db,
            "claim_keys",
            **_columns(list(keyed)),
            patience=_PATIENCE,
            digests=[key.digest for each in submissions if (key := each.key)],
            job_ids=[_ids_text(each) for each in submissions if each.key],
            created_at=[each.jobs[0].created_at for each in submissions if each.key],
            kept=IDEMPOTENCY_KEY_KEPT,
        )
        for row in rows:
            place = keyed[row["namespace_id"], row["key"]]
            if row["job_ids"][0] != submissions[place].jobs[0].job_id:
                verdicts[place] = Earlier(row["digest"], row["job_ids"])

    async def _claim_unique_keys(
        self, db: Connection, submissions: Sequence[Submission], verdicts: list[Verdict]
    ) -> None:
        wanted = {
            (new.namespace_id, new.unique.key): (place, item, new)
            for place, each in _open(submissions, verdicts)
            for item, new in enumerate(each.jobs)
            if new.unique
        }
        if not wanted:
            return
        rows = await self._fetch(db, "claim_unique_keys", **_unique_columns(wanted), patience=_PATIENCE)
        held = {(row["namespace_id"], row["key"]): row["job_id"] for row in rows}
        taken = {key: each for key, each in wanted.items() if held[key] != each[2].job_id}
        if taken:
            nows = [new.created_at for _, _, new in taken.values()]
            rows = await self._fetch(db, "take_over_unique_keys", **_unique_columns(taken), nows=nows)
            for row in rows:
                del taken[row["namespace_id"], row["key"]]
        holders: dict[int, dict[int, UUID]] = {}
        for key, (place, item, _) in taken.items():
            holders.setdefault(place, {})[item] = held[key]
        for place, found in holders.items():
            verdicts[place] = Duplicates(dict(sorted(found.items())))
        await self._drop_keys(db, [submissions[place] for place in holders])

    async def _drop_keys(self, db: Connection, refused: Sequence[Submission]) -> None:
        keys = [(each.namespace_id, each.key.key) for each in refused if each.key]
        if keys:
            await self._fetch(db, "drop_keys", **_columns(keys))

    async def _fetch(self, db: Connection, query: str, /, **values: Any) -> list[Record]:
        return await self._database.fetch_on(db, self._queries[query], **values)


_PATIENCE: Final = f"{WAIT_SECONDS_MAX * 1000:.0f}ms"


def _open(submissions: Sequence[Submission], verdicts: Sequence[Verdict]) -> list[tuple[int, Submission]]:
    """Those that nothing speaks against so far, with their places."""
    return [(place, each) for place, each in enumerate(submissions) if verdicts[place] is None]


def _columns(keys: Sequence[tuple[int, str]]) -> dict[str, list[Any]]:
    return {"namespace_ids": [namespace_id for namespace_id, _ in keys], "keys": [key for _, key in keys]}


def _unique_columns(wanted: dict[tuple[int, str], _Unique]) -> dict[str, list[Any]]:
    jobs = [new for _, _, new in wanted.values()]
    until = [new.unique and new.unique.until for new in jobs]
    return {**_columns(list(wanted)), "job_ids": [new.job_id for new in jobs], "untils": until}


def _ids_text(submission: Submission) -> str:
    """As PostgreSQL writes an array: lists of different lengths cannot be sent as one."""
    return "{" + ",".join(str(new.job_id) for new in submission.jobs) + "}"
