"""/api/v1/backfills: running the due times of a past range, as something that can be watched, paused and cancelled."""

from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, header, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.decoding import decode_optional_body, read_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter, pick
from hourhand.api.views import EmptyBody
from hourhand.model.backfill import Backfill, BackfillState
from hourhand.model.policy import format_rate
from hourhand.operations.backfill_requests import (
    BackfillPlan,
    BackfillProgress,
    BackfillReasonRequest,
    StartBackfillRequest,
)
from hourhand.operations.backfills import BackfillOperations

BASE: Final = "/api/v1/backfills"
_ONE: Final = BASE + "/{backfill_id}"
_START: Final = "/api/v1/jobs/{job_id}/backfill"
_STATES: Final = {state.value: state for state in BackfillState}
_STATUS: Final = Parameter(
    "status",
    "Only backfills in these states; repeat it or write a comma list.",
    {"type": "string", "enum": list(_STATES)},
    repeatable=True,
)
_JOB: Final = Parameter("job_id", "Only backfills of this job.", {"type": "string", "format": "uuid"})


class BackfillView(msgspec.Struct, kw_only=True, rename={"start": "from", "end": "to"}):
    backfill_id: UUID | None
    """None for a dry run."""
    job_id: UUID
    job_name: str
    status: str
    """`planned` for a dry run."""
    status_reason: str | None
    start: datetime
    end: datetime
    """Not included."""
    existing: str
    parallelism: int
    rate: str | None
    overlap: str | None
    reason: str | None
    note: str | None
    first_due: datetime
    last_due: datetime
    next_due: datetime | None
    """The first due time that is not dealt with yet."""
    total: int
    """Due times of the range."""
    left_out: int
    """Those that have a run already; of a dry run, all that would be."""
    remaining: int
    live: int
    """Released and not finished."""
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    percent: float
    estimate_seconds: float | None
    """How long the rest takes by what the job's runs took; None when nobody knows, or it is over."""
    notes: list[str]
    created_at: datetime | None
    created_by: str | None
    changed_at: datetime | None
    changed_by: str | None
    ended_at: datetime | None


class BackfillPageView(msgspec.Struct):
    backfills: list[BackfillView]
    next_cursor: str | None


class BackfillRoutes:
    def __init__(self, backfills: BackfillOperations) -> None:
        self._backfills = backfills

    def endpoints(self) -> list[Endpoint]:
        tag = "backfills"
        return [
            Endpoint(
                "POST", _START, self.start, tag, "Run the due times of a past range", BackfillView, 202,
                StartBackfillRequest,
                description="With `dry_run` nothing is stored and the answer, 200, says what would be done.",
            ),
            Endpoint(
                "GET", BASE, self.list_backfills, tag, "List backfills, newest first", BackfillPageView,
                parameters=(limit_parameter(50, 500), CURSOR, _STATUS, _JOB),
            ),
            Endpoint("GET", _ONE, self.get, tag, "One backfill and how far it has come", BackfillView),
            Endpoint(
                "POST", _ONE + "/pause", self.pause, tag, "Release no more; what is released goes on", BackfillView,
                200, BackfillReasonRequest, body_required=False,
            ),
            Endpoint(
                "POST", _ONE + "/resume", self.resume, tag, "Go on", BackfillView, 200, EmptyBody, body_required=False
            ),
            Endpoint(
                "POST", _ONE + "/cancel", self.cancel, tag, "End it and its unfinished runs", BackfillView, 200,
                BackfillReasonRequest, body_required=False,
            ),
        ]  # fmt: skip

    async def start(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        request, form = read_body(call.body, StartBackfillRequest)
        if form:
            raise all_faults(form, await self._backfills.faults_of_start(call.caller, job_id, request))
        if request.dry_run:
            return json_answer(_planned(await self._backfills.plan(call.caller, job_id, request), request))
        made = await self._backfills.start(call.caller, job_id, request)
        return json_answer(_view(made), 202, [header("location", f"{BASE}/{made.backfill.backfill_id}")])

    async def list_backfills(self, call: Call) -> Answer:
        states = [pick("status", word, _STATES) for word in call.query.texts("status")]
        bound_to = f"backfills {call.caller.namespace} {call.query.filters('cursor', 'limit', 'namespace')}"
        before = read_cursor(call.query.text("cursor"), bound_to)
        limit = call.query.integer("limit", 50, 1, 500)
        page = await self._backfills.list(call.caller, call.query.uuid("job_id"), states, before, limit)
        cursor = None if page.next_before is None else make_cursor(page.next_before, bound_to)
        return json_answer(BackfillPageView([_view_of(each, None) for each in page.backfills], cursor))

    async def get(self, call: Call) -> Answer:
        return json_answer(_view(await self._backfills.get(call.caller, call.id("backfill_id"))))

    async def pause(self, call: Call) -> Answer:
        reason = decode_optional_body(call.body, BackfillReasonRequest).reason
        return json_answer(_view(await self._backfills.pause(call.caller, call.id("backfill_id"), reason)))

    async def resume(self, call: Call) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        return json_answer(_view(await self._backfills.resume(call.caller, call.id("backfill_id"))))

    async def cancel(self, call: Call) -> Answer:
        reason = decode_optional_body(call.body, BackfillReasonRequest).reason
        return json_answer(_view(await self._backfills.cancel(call.caller, call.id("backfill_id"), reason)))


def _view(progress: BackfillProgress) -> BackfillView:
    return _view_of(progress.backfill, progress.estimate_seconds)


def _view_of(backfill: Backfill, estimate: float | None) -> BackfillView:
    request = backfill.request
    return BackfillView(
        backfill_id=backfill.backfill_id,
        job_id=backfill.job_id,
        job_name=backfill.job_name,
        status=backfill.state.value,
        status_reason=backfill.state_reason,
        start=request.start,
        end=request.end,
        existing=request.existing.value,
        parallelism=request.parallelism,
        rate=None if request.rate is None else format_rate(request.rate),
        overlap=request.overlap and request.overlap.value,
        reason=request.reason,
        note=request.note,
        first_due=backfill.first_due,
        last_due=backfill.last_due,
        next_due=backfill.next_due,
        total=backfill.total,
        left_out=backfill.left_out,
        remaining=backfill.remaining,
        live=backfill.live,
        succeeded=backfill.succeeded,
        failed=backfill.failed,
        cancelled=backfill.cancelled,
        skipped=backfill.skipped,
        percent=round(100 * backfill.share_done, 1),
        estimate_seconds=estimate,
        notes=[],
        created_at=backfill.created_at,
        created_by=backfill.created_by,
        changed_at=backfill.changed_at,
        changed_by=backfill.changed_by,
        ended_at=backfill.ended_at,
    )


def _planned(plan: BackfillPlan, request: StartBackfillRequest) -> BackfillView:
    return BackfillView(
        backfill_id=None,
        job_id=plan.job_id,
        job_name=plan.job_name,
        status="planned",
        status_reason=None,
        start=plan.start,
        end=plan.end,
        existing=request.existing or "skip",
        parallelism=request.parallelism or 1,
        rate=request.rate,
        overlap=request.overlap,
        reason=request.reason,
        note=request.note,
        first_due=plan.first_due,
        last_due=plan.last_due,
        next_due=plan.first_due,
        total=plan.total,
        left_out=plan.left_out,
        remaining=plan.total - plan.left_out,
        live=0,
        succeeded=0,
        failed=0,
        cancelled=0,
        skipped=0,
        percent=0.0,
        estimate_seconds=plan.estimate_seconds,
        notes=plan.notes,
        created_at=None,
        created_by=None,
        changed_at=None,
        changed_by=None,
        ended_at=None,
    )
