"""Submissions that carry a key: each is stored once, however often and from however many sides it arrives.

The database decides who has a key. Here requests with the same key only take turns, so that those which arrive together
at one node wait without holding a connection, and can share commits with all others that carry keys. Submissions
without keys never come here.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from hourhand.model.errors import IdempotencyKeyReused, Overloaded
from hourhand.model.keys import IDEMPOTENCY_KEY_KEPT, IdempotencyKey
from hourhand.operations.group_commit import GroupCommit
from hourhand.ports.submission_stores import Duplicates, Earlier, Submission, SubmissionStore

TURN_SECONDS_MAX: Final = 30.0
"""How long a request waits for those before it that have the same key."""
_Turn = tuple[str, int, str]
"""Sort of key, namespace, key."""


@dataclass(slots=True)
class _Waiting:
    submission: Submission
    verdict: Earlier | Duplicates | None = None


class KeyedSubmissions:
    def __init__(self, store: SubmissionStore) -> None:
        self._store = store
        self._group = GroupCommit(self._insert_together)
        self._turns: WeakValueDictionary[_Turn, asyncio.Lock] = WeakValueDictionary()

    async def submit(self, submission: Submission) -> Earlier | Duplicates | None:
        """None once it is durable, else what stands against it: the same request was there before, or jobs that have
        the unique keys. Raises `IdempotencyKeyReused` when the key stands for another request."""
        async with AsyncExitStack() as turns:
            try:
                async with asyncio.timeout(TURN_SECONDS_MAX):
                    for turn in _turns_of(submission):
                        await turns.enter_async_context(self._turns.setdefault(turn, asyncio.Lock()))
            except TimeoutError:
                raise Overloaded("other requests with the same key are still under way; ask again") from None
            verdict = await self._insert(submission)
        if isinstance(verdict, Earlier) and submission.key and verdict.digest != submission.key.digest:
            raise IdempotencyKeyReused(submission.key.key)
        return verdict

    async def find(self, namespace_id: int, key: IdempotencyKey, now: datetime) -> Sequence[UUID]:
        """The jobs that the same request has made; none if it was not here."""
        earlier = await self._store.find_earlier(namespace_id, key.key, now - IDEMPOTENCY_KEY_KEPT)
        return earlier.job_ids if earlier is not None and earlier.digest == key.digest else ()

    async def _insert(self, submission: Submission) -> Earlier | Duplicates | None:
        if len(submission.jobs) > 1:  # a batch has a transaction of its own
            [verdict] = await self._store.insert_submissions([submission])
            return verdict
        waiting = _Waiting(submission)
        await self._group.store(waiting)
        return waiting.verdict

    async def _insert_together(self, waiting: Sequence[_Waiting]) -> None:
        verdicts = await self._store.insert_submissions([each.submission for each in waiting])
        for each, verdict in zip(waiting, verdicts, strict=True):
            each.verdict = verdict


def _turns_of(submission: Submission) -> list[_Turn]:
    """Always in this order: whoever holds the second waits for nobody."""
    turns = []
    if submission.key is not None:
        turns.append(("idempotency", submission.namespace_id, submission.key.key))
    [first, *others] = submission.jobs
    if first.unique is not None and not others:
        turns.append(("unique", submission.namespace_id, first.unique.key))
    return turns
