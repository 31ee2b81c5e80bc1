"""/api/v1/runs: what happened, what is happening, stopping it and running it again."""

from datetime import datetime
from typing import Final
from uuid import UUID

from hourhand.api.answers import Answer, header, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.decoding import decode_optional_body, read_body, read_optional_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter, pick
from hourhand.api.views import (
    EmptyBody,
    RunDetailView,
    RunIdView,
    RunPageView,
    RunsCancelledView,
    RunsRetriedView,
    RunView,
    run_detail_view,
    run_view,
)
from hourhand.model.errors import InvalidParameter
from hourhand.model.local_time import InstantFault, parse_instant
from hourhand.model.states import Reason, RunState
from hourhand.operations.requests import CancelRunsRequest, RetryRunRequest, RetryRunsRequest, RunFilter
from hourhand.operations.runs import RunOperations
from hourhand.operations.selection import faults_of_selection, retry_faults

BASE: Final = "/api/v1/runs"
_ONE: Final = BASE + "/{run_id}"
_STATES: Final = {state.word: state for state in RunState}
STATUS: Final = Parameter(
    "status",
    "Only runs in these states; repeat it or write a comma list. `running` gives what runs at this moment.",
    {"type": "string", "enum": list(_STATES)},
    repeatable=True,
)
_REASONS: Final = {reason.value: reason.value for reason in Reason}
REASON: Final = Parameter(
    "reason",
    "Only finished runs with these reasons; repeat it or write a comma list. `poison` gives what is in quarantine.",
    {"type": "string", "enum": list(_REASONS)},
    repeatable=True,
)
SINCE: Final = Parameter(
    "since", "Only runs that stand for this time or a later one.", {"type": "string", "format": "date-time"}
)
UNTIL: Final = Parameter(
    "until", "Only runs that stand for an earlier time than this.", {"type": "string", "format": "date-time"}
)
FILTERS: Final = (STATUS, REASON, SINCE, UNTIL)


class RunRoutes:
    def __init__(self, runs: RunOperations) -> None:
        self._runs = runs

    def endpoints(self) -> list[Endpoint]:
        tag = "runs"
        job = Parameter("job_id", "Only runs of this job.", {"type": "string", "format": "uuid"})
        return [
            Endpoint(
                "GET",
                BASE,
                self.list_runs,
                tag,
                "List runs, newest first",
                RunPageView,
                parameters=(limit_parameter(50, 500), CURSOR, *FILTERS, job),
            ),
            Endpoint("GET", _ONE, self.get, tag, "One run and its earlier attempts", RunDetailView),
            Endpoint(
                "POST", _ONE + "/cancel", self.cancel, tag, "Stop a run", RunView, 202, EmptyBody, body_required=False
            ),
            Endpoint(
                "POST",
                _ONE + "/retry",
                self.retry,
                tag,
                "Run a finished run again",
                RunIdView,
                202,
                RetryRunRequest,
                body_required=False,
            ),
            Endpoint(
                "POST",
                BASE + "/cancel",
                self.cancel_many,
                tag,
                "Stop many runs",
                RunsCancelledView,
                202,
                CancelRunsRequest,
            ),
            Endpoint(
                "POST",
                BASE + "/retry",
                self.retry_many,
                tag,
                "Run many finished runs again",
                RunsRetriedView,
                202,
                RetryRunsRequest,
            ),
        ]

    async def list_runs(self, call: Call) -> Answer:
        return await run_page_answer(self._runs, call, call.query.uuid("job_id"))

    async def get(self, call: Call) -> Answer:
        run = await self._runs.get(call.caller, call.id("run_id"))
        attempts = await self._runs.attempts(call.caller, run.run_id)
        return json_answer(run_detail_view(run, attempts, await self._runs.retries(call.caller, run.run_id)))

    async def cancel(self, call: Call) -> Answer:
        decode_optional_body(call.body, EmptyBody)
        return json_answer(run_view(await self._runs.cancel(call.caller, call.id("run_id"))), 202)

    async def cancel_many(self, call: Call) -> Answer:
        request, form = read_body(call.body, CancelRunsRequest)
        if form:
            raise all_faults(form, faults_of_selection(request))
        done = await self._runs.cancel_many(call.caller, request)
        return json_answer(
            RunsCancelledView(len(done.ended), len(done.asked), [*done.ended, *done.asked], done.more), 202
        )

    async def retry(self, call: Call) -> Answer:
        request, form = read_optional_body(call.body, RetryRunRequest)
        if form:
            raise all_faults(form, retry_faults(request))
        run_id = await self._runs.retry(call.caller, call.id("run_id"), request)
        return json_answer(RunIdView(run_id), 202, [header("location", f"{BASE}/{run_id}")])

    async def retry_many(self, call: Call) -> Answer:
        request, form = read_body(call.body, RetryRunsRequest)
        if form:
            raise all_faults(form, faults_of_selection(request))
        done = await self._runs.retry_many(call.caller, request)
        return json_answer(RunsRetriedView(len(done.run_ids), done.run_ids, done.more), 202)


async def run_page_answer(runs: RunOperations, call: Call, job_id: UUID | None) -> Answer:
    """One page of runs, of all jobs or of one."""
    wanted = RunFilter(
        states=[pick("status", word, _STATES) for word in call.query.texts("status")] or None,
        job_id=job_id,
        reasons=[pick("reason", word, _REASONS) for word in call.query.texts("reason")] or None,
        since=_instant(call, "since"),
        until=_instant(call, "until"),
    )
    bound_to = f"runs {call.caller.namespace} {job_id} {call.query.filters('cursor', 'limit', 'namespace', 'job_id')}"
    before = read_cursor(call.query.text("cursor"), bound_to)
    limit = call.query.integer("limit", 50, 1, 500)
    page = await runs.list(call.caller, wanted, before, limit)
    cursor = None if page.next_before is None else make_cursor(page.next_before, bound_to)
    return json_answer(RunPageView([run_view(run) for run in page.runs], cursor))


def _instant(call: Call, name: str) -> datetime | None:
    text = call.query.text(name)
    if text is None:
        return None
    try:
        return parse_instant(text)
    except InstantFault as fault:
        raise InvalidParameter(name, str(fault)) from None
