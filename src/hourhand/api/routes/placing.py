"""/api/v1/jobs/{job_id}/advice: whether what a job declares fits what its runs take.

And /api/v1/runs/{run_id}/parts: where the parts of a run went.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.operations.placing import PlacingOperations


class RemarkView(msgspec.Struct, kw_only=True):
    resource: str
    code: str
    text: str
    declared: str | float | None
    suggested: str | float


class AdviceView(msgspec.Struct, kw_only=True):
    job_id: UUID
    runs: int
    """How many of the last runs say what they took."""
    memory_bytes_p95: int | None
    memory_cached_p95: int | None
    """How much of it may be the cache of files."""
    cpu_p95: float | None
    """Cores, on the average of each run."""
    remarks: list[RemarkView]


class PartView(msgspec.Struct, kw_only=True):
    index: int
    total: int
    run_id: UUID
    status: str
    executor: str | None
    """The one that it is for; null while there is none."""
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    reason: str | None
    error: str | None
    result: Any


class PartsView(msgspec.Struct, kw_only=True):
    run_id: UUID
    parts: list[PartView]


class PlacingRoutes:
    def __init__(self, placing: PlacingOperations) -> None:
        self._placing = placing

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/api/v1/jobs/{job_id}/advice",
                self.advice,
                "jobs",
                "Whether what a job declares fits what its last runs have taken",
                AdviceView,
            ),
            Endpoint(
                "GET",
                "/api/v1/runs/{run_id}/parts",
                self.parts,
                "runs",
                "Where the parts of a run went, and what became of each",
                PartsView,
            ),
        ]

    async def parts(self, call: Call) -> Answer:
        run_id = call.id("run_id")
        found = await self._placing.parts(call.caller, run_id)
        views = [
            PartView(
                index=part.place,
                total=part.total,
                run_id=part.run_id,
                status=part.state.word,
                executor=part.node,
                attempt=part.attempt,
                started_at=part.started_at,
                ended_at=part.ended_at,
                reason=part.reason,
                error=part.error,
                result=part.result,
            )
            for part in found
        ]
        return json_answer(PartsView(run_id=run_id, parts=views))

    async def advice(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        found = await self._placing.advice(call.caller, job_id)
        remarks = [
            RemarkView(
                resource=remark.resource,
                code=remark.code.value,
                text=remark.text,
                declared=remark.declared,
                suggested=remark.suggested,
            )
            for remark in found.remarks
        ]
        view = AdviceView(
            job_id=job_id,
            runs=found.samples,
            memory_bytes_p95=found.memory_bytes_p95,
            memory_cached_p95=found.memory_cached_p95,
            cpu_p95=found.cpu_p95,
            remarks=remarks,
        )
        return json_answer(view)
