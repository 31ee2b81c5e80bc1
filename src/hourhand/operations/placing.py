"""What a caller may ask about where runs went and what they took."""

from uuid import UUID

from hourhand.model.advice import SAMPLES_MAX, Advice, advise
from hourhand.model.errors import NotFound
from hourhand.operations.requests import Caller
from hourhand.ports.placing_stores import PlacingStore
from hourhand.ports.stores import JobStore


class PlacingOperations:
    def __init__(self, store: PlacingStore, jobs: JobStore) -> None:
        self._store = store
        self._jobs = jobs

    async def advice(self, caller: Caller, job_id: UUID) -> Advice:
        """Whether what the job declares fits what its last runs have taken."""
        job = await self._jobs.get_job(caller.namespace_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        samples = await self._store.usage_of_job(caller.namespace_id, job_id, SAMPLES_MAX)
        return advise(job.definition.policy.resources, samples)
