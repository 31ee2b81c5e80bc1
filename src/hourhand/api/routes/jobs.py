"""/api/v1/jobs: submit, look, change, pause, run now, cancel."""

from collections.abc import Sequence
from typing import Final

from hourhand.api.answers import Answer, header, json_answer, replay_header
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.decoding import (
    decode_optional_body,
    read_batch,
    read_body,
    read_lines,
    read_optional_body,
    read_plain_items,
)
from hourhand.api.endpoints import NDJSON, Call, Endpoint
from hourhand.api.faults import FAULTS_MAX, all_faults
from hourhand.api.parameters import CURSOR, IDEMPOTENCY_KEY, IF_MATCH, Parameter, Query, limit_parameter, pick
from hourhand.api.routes.runs import FILTERS, run_page_answer
from hourhand.api.settings import ApiSettings
from hourhand.api.views import (
    BatchView,
    ChangeView,
    JobPageView,
    JobStatusView,
    JobView,
    RunIdView,
    RunPageView,
    TimesView,
    change_view,
    job_view,
    run_view,
)
from hourhand.model.errors import Fault, InvalidParameter
from hourhand.model.job import PRIORITIES, PRIORITY_WORDS
from hourhand.model.states import JobState
from hourhand.operations.jobs import JobOperations
from hourhand.operations.pausing import read_resume
from hourhand.operations.requests import (
    Caller,
    Changed,
    JobFilter,
    JobPatch,
    JobRequest,
    PauseRequest,
    ResumeRequest,
    RunNowRequest,
)
from hourhand.operations.runs import RunOperations
from hourhand.operations.unique_keys import repeated_unique_keys
from hourhand.runtime.aside import Breath

BASE: Final = "/api/v1/jobs"
_BATCH: Final = BASE + "/batch"
_ONE: Final = BASE + "/{job_id}"
_STATES: Final = {state.value: state for state in JobState}
_PRIORITIES: Final = {**{str(number): number for number in PRIORITIES}, **PRIORITY_WORDS}
_FILTERS: Final = (
    Parameter("status", "Only jobs in this state.", {"type": "string", "enum": list(_STATES)}),
    Parameter("name", "Only jobs with this name."),
    Parameter("kind", "Only jobs of this kind."),
    Parameter("queue", "Only jobs of this queue."),
    Parameter("owner", "Only jobs of this owner."),
    Parameter(
        "label", "Only jobs with this label, written key:value; give it several times for several.", repeatable=True
    ),
    Parameter("priority", "Only jobs with this priority: 0 to 9, low, medium or high; a comma list takes several."),
)


class JobRoutes:
    def __init__(self, jobs: JobOperations, runs: RunOperations, settings: ApiSettings) -> None:
        self._jobs = jobs
        self._runs = runs
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        tag = "jobs"
        return [
            Endpoint(
                "POST",
                BASE,
                self.create,
                tag,
                "Submit a job",
                JobView,
                202,
                JobRequest,
                headers=(IDEMPOTENCY_KEY,),
            ),
            Endpoint(
                "POST",
                _BATCH,
                self.create_many,
                tag,
                "Submit many jobs, all or none",
                BatchView,
                202,
                list[JobRequest],
                body_media=("application/json", NDJSON),
                body_bytes_max=self._settings.batch_bytes_max,
                body_setting="api.batch_bytes_max",
                headers=(IDEMPOTENCY_KEY,),
            ),
            Endpoint(
                "GET",
                BASE,
                self.list_jobs,
                tag,
                "List jobs, newest first",
                JobPageView,
                parameters=(limit_parameter(50, 500), CURSOR, *_FILTERS),
            ),
            Endpoint("GET", _ONE, self.get, tag, "One job", JobView),
            Endpoint(
                "PATCH",
                _ONE,
                self.patch,
                tag,
                "Change a job; only the fields given change",
                ChangeView,
                200,
                JobPatch,
                headers=(IF_MATCH,),
            ),
            Endpoint(
                "PUT", _ONE, self.update, tag, "The same as PATCH", ChangeView, 200, JobPatch, headers=(IF_MATCH,)
            ),
            Endpoint("DELETE", _ONE, self.cancel, tag, "Cancel a job", ChangeView, headers=(IF_MATCH,)),
            *self._verbs(tag),
            *self._questions(tag),
        ]

    def _verbs(self, tag: str) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                _ONE + "/pause",
                self.pause,
                tag,
                "Make no new runs",
                ChangeView,
                200,
                PauseRequest,
                body_required=False,
                headers=(IF_MATCH,),
            ),
            Endpoint(
                "POST",
                _ONE + "/resume",
                self.resume,
                tag,
                "Make runs again",
                ChangeView,
                200,
                ResumeRequest,
                body_required=False,
                headers=(IF_MATCH,),
            ),
            Endpoint(
                "POST",
                _ONE + "/run",
                self.run,
                tag,
                "Run a job now",
                RunIdView,
                202,
                RunNowRequest,
                body_required=False,
                headers=(IF_MATCH,),
            ),
        ]

    def _questions(self, tag: str) -> list[Endpoint]:
        count = Parameter("count", "How many.", {"type": "integer", "minimum": 1, "maximum": 500, "default": 10})
        return [
            Endpoint("GET", _ONE + "/status", self.status, tag, "State, next due time and latest run", JobStatusView),
            Endpoint(
                "GET",
                _ONE + "/runs",
                self.runs,
                tag,
                "Runs of a job, newest first",
                RunPageView,
                parameters=(limit_parameter(50, 500), CURSOR, *FILTERS),
            ),
            Endpoint(
                "GET", _ONE + "/next", self.next_times, tag, "When it falls due next", TimesView, parameters=(count,)
            ),
        ]

    async def create(self, call: Call) -> Answer:
        key = call.idempotency_key(BASE)
        request, form = read_body(call.body, JobRequest)
        clashes = _namespace_clashes(call, request.namespace, "/namespace")
        if form or clashes:
            raise all_faults(form, clashes, self._jobs.faults_of(call.caller, request))
        made = await self._jobs.create(await _caller_for(call, request.namespace), request, key)
        location = header("location", f"{BASE}/{made.job.job_id}")
        return json_answer(job_view(made.job), 202, [location, *replay_header(made.replayed)])

    async def create_many(self, call: Call) -> Answer:
        key = call.idempotency_key(_BATCH)
        if key is None and call.content_type != NDJSON and (plain := await self._plain_batch(call)) is not None:
            return plain
        read = read_lines if call.content_type == NDJSON else read_batch
        requests, form = read(call.body, JobRequest, self._settings.batch_items_max)
        namespace, clashes = _one_namespace(call, requests)
        if form or clashes:
            raise all_faults(form, clashes, await self._faults_of_many(call.caller, requests), depth=2)
        caller = await _caller_for(call, namespace)
        made = await self._jobs.create_many(caller, requests, key)
        return json_answer(BatchView(made.job_ids, len(made.job_ids)), 202, replay_header(made.replayed))

    async def _plain_batch(self, call: Call) -> Answer | None:
        """The short way of a batch of plain jobs; None leaves it, from its beginning, to whoever knows all else."""
        items = read_plain_items(call.body, self._settings.batch_items_max)
        news = None if items is None else await self._jobs.plain.read_many(call.caller, items)
        if not news:
            return None
        await self._jobs.plain.store_many(news)
        return json_answer(BatchView([new.job_id for new in news], len(news)), 202)

    async def _faults_of_many(self, caller: Caller, requests: Sequence[JobRequest]) -> list[Fault]:
        faults: list[Fault] = []
        breath = Breath()
        for place, request in enumerate(requests):
            if breath.is_out():  # a large batch must not keep everybody else waiting
                await breath.take()
            faults += [fault.under(f"/{place}") for fault in self._jobs.faults_of(caller, request)]
            if len(faults) >= 1000:  # far more than will be told
                break
        return faults + repeated_unique_keys(requests)

    async def list_jobs(self, call: Call) -> Answer:
        filters = job_filter(call.query)
        bound_to = _bound_to(call)
        before = read_cursor(call.query.text("cursor"), bound_to)
        page = await self._jobs.list(call.caller, filters, before, call.query.integer("limit", 50, 1, 500))
        cursor = None if page.next_before is None else make_cursor(page.next_before, bound_to)
        return json_answer(JobPageView([job_view(job) for job in page.jobs], cursor))

    async def get(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("job_id"))
        return json_answer(job_view(job), 200, [header("etag", f'"{job.version}"')])

    async def patch(self, call: Call) -> Answer:
        return await self.update(call)

    async def update(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        if_version = call.if_version()
        patch, form = read_body(call.body, JobPatch)
        if form:
            raise all_faults(form, await self._jobs.faults_of_change(call.caller, job_id, patch))
        return changed_answer(await self._jobs.update(call.caller, job_id, patch, if_version))

    async def cancel(self, call: Call) -> Answer:
        return changed_answer(await self._jobs.cancel(call.caller, call.id("job_id"), if_version=call.if_version()))

    async def pause(self, call: Call) -> Answer:
        request, form = read_optional_body(call.body, PauseRequest)
        if form:
            raise all_faults(form, self._jobs.faults_of_pause(request))
        wish, version = self._jobs.read_pause(request), call.if_version()
        return changed_answer(await self._jobs.pause(call.caller, call.id("job_id"), *wish, if_version=version))

    async def resume(self, call: Call) -> Answer:
        catch_up, version = read_resume(decode_optional_body(call.body, ResumeRequest)), call.if_version()
        return changed_answer(await self._jobs.resume(call.caller, call.id("job_id"), catch_up, if_version=version))

    async def run(self, call: Call) -> Answer:
        job_id = call.id("job_id")
        if_version = call.if_version()
        request, form = read_optional_body(call.body, RunNowRequest)
        if form:
            raise all_faults(form, await self._jobs.faults_of_run(call.caller, job_id, request))
        run_id = await self._jobs.run_now(call.caller, job_id, request, if_version=if_version)
        return json_answer(RunIdView(run_id), 202, [header("location", f"/api/v1/runs/{run_id}")])

    async def status(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("job_id"))
        latest = await self._runs.latest(call.caller, job)
        view = JobStatusView(job.job_id, job.state.value, job.next_due, None if latest is None else run_view(latest))
        return json_answer(view)

    async def runs(self, call: Call) -> Answer:
        job = await self._jobs.get(call.caller, call.id("job_id"))  # an unknown job is an error, not an empty list
        return await run_page_answer(self._runs, call, job.job_id)

    async def next_times(self, call: Call) -> Answer:
        count = call.query.integer("count", 10, 1, 500)
        return json_answer(TimesView(await self._jobs.next_times(call.caller, call.id("job_id"), count)))


async def _caller_for(call: Call, namespace: str | None) -> Caller:
    """The caller in the namespace that the body names."""
    if namespace is None or namespace == call.caller.namespace:
        return call.caller
    return await call.caller_in(namespace)


def _namespace_clashes(call: Call, namespace: str | None, pointer: str) -> list[Fault]:
    if namespace in (None, call.caller.namespace) or call.query.text("namespace") is None:
        return []
    message = f"the body says {str(namespace)[:100]!r}, the address says {call.caller.namespace!r}"
    return [Fault(pointer, "conflicting-namespace", message)]


def job_filter(query: Query) -> JobFilter:
    return JobFilter(
        state=query.choice("status", _STATES),
        name=query.text("name"),
        kind=query.text("kind"),
        queue=query.text("queue"),
        owner=query.text("owner"),
        labels=_labels(query.repeated("label")),
        priorities=[pick("priority", word, _PRIORITIES) for word in query.texts("priority")] or None,
    )


def _labels(given: Sequence[str]) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    for text in given:
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise InvalidParameter("label", f"must be written key:value, not {text[:60]!r}")
        labels[key] = value
    return labels or None


def _one_namespace(call: Call, requests: Sequence[JobRequest]) -> tuple[str | None, list[Fault]]:
    """A batch is one transaction of one caller, so all its jobs go to one namespace."""
    home = call.caller.namespace
    first = requests[0].namespace or home
    message = f"the batch goes to {first!r}; one batch has one namespace"
    clashes = [
        Fault(f"/{index}/namespace", "conflicting-namespace", message, beside="/0/namespace")
        for index, request in enumerate(requests)
        if (request.namespace or home) != first
    ]
    return first, [*_namespace_clashes(call, first, "/0/namespace"), *clashes[:FAULTS_MAX]]


def changed_answer(changed: Changed) -> Answer:
    """A job after a change; its version is the ETag."""
    return json_answer(change_view(changed), 200, [header("etag", f'"{changed.job.version}"')])


def _bound_to(call: Call) -> str:
    return f"jobs {call.caller.namespace} {call.query.filters('cursor', 'limit', 'namespace')}"
