"""What a caller may ask about where runs went and what they took."""

from collections.abc import Sequence
from uuid import UUID

from hourhand.model.advice import SAMPLES_MAX, Advice, advise
from hourhand.model.errors import NotFound
from hourhand.model.parts import Part
from hourhand.operations.requests import Caller
from hourhand.ports.placing_stores import PartsRead, PlacingStore
from hourhand.ports.stores import JobStore, RunStore


class PlacingOperations:
    def __init__(self, store: PlacingStore, jobs: JobStore, runs: RunStore, parts: PartsRead) -> None:
        self._store = store
        self._jobs = jobs
        self._runs = runs
        self._parts = parts

    async def parts(self, caller: Caller, run_id: UUID) -> Sequence[Part]:
        """Where the parts of a run went and what became of each; none of a run that goes to one executor."""
        if await self._runs.get_run(caller.namespace_id, run_id) is None:
            raise NotFound("run", run_id)
        return await self._parts.parts_of(run_id)

    async def advice(self, caller: Caller, job_id: UUID) -> Advice:
        """Whether what the job declares fits what its last runs have taken."""
        job = await self._jobs.get_job(caller.namespace_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        samples = await self._store.usage_of_job(caller.namespace_id, job_id, SAMPLES_MAX)
        return advise(job.definition.policy.resources, samples)
