"""Submissions with keys, as the operations need them. Those without go straight to the `JobStore`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

import msgspec

from hourhand.model.keys import IdempotencyKey
from hourhand.ports.stores import NewJob


class Submission(msgspec.Struct, frozen=True):
    """Jobs of one namespace that are stored together or not at all; at least one."""

    jobs: Sequence[NewJob]
    key: IdempotencyKey | None = None

    @property
    def namespace_id(self) -> int:
        return self.jobs[0].namespace_id


class Earlier(msgspec.Struct, frozen=True):
    """The submission that used the idempotency key before."""

    digest: bytes
    job_ids: Sequence[UUID]


class Duplicates(msgspec.Struct, frozen=True):
    """Unique keys that are taken."""

    holders: Mapping[int, UUID]
    """By the place of the job in its submission, the job that has the key."""


class SubmissionStore(Protocol):
    async def insert_submissions(self, submissions: Sequence[Submission]) -> list[Earlier | Duplicates | None]:
        """Stores each submission with its keys, or says why not; None for those that were stored. All in one
        transaction, which is committed when this returns. Who asks for a key that somebody else is just taking waits
        for the outcome, and is told that we are Overloaded when that takes too long. No two submissions of a call may
        have a key in common, and one with several jobs comes alone."""

    async def find_earlier(self, namespace_id: int, key: str, since: datetime) -> Earlier | None:
        """The submission that used an idempotency key since then."""
