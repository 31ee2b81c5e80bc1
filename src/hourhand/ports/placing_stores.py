"""What is read of the runs of a job to see where they went and what they took."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from hourhand.model.advice import Sample
from hourhand.model.parts import Part


class PartsRead(Protocol):
    async def parts_of(self, parent_id: UUID) -> Sequence[Part]:
        """The caller may read their run."""

    async def parts_by_run(self, run_ids: Sequence[UUID]) -> Mapping[UUID, Sequence[UUID]]:
        """The parts of these runs, in their order; of runs that have none nothing is told."""

    async def run_of_part(self, run_id: UUID) -> UUID | None:
        """None when it is no part, or known no more."""


class PlacingStore(Protocol):
    async def usage_of_job(self, namespace_id: int, job_id: UUID, limit: int) -> Sequence[Sample]:
        """What the last runs of a job have taken, newest first; of those that say nothing of it nothing is told. Looks
        at a bounded number of runs."""
