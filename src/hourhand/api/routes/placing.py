"""/api/v1/jobs/{job_id}/advice: whether what a job declares fits what its runs take."""

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
    cpu_p95: float | None
    """Cores, on the average of each run."""
    remarks: list[RemarkView]


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
        ]

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
            cpu_p95=found.cpu_p95,
            remarks=remarks,
        )
        return json_answer(view)
