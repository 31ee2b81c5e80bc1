"""Puts the API together: endpoints behind a router, behind the gate.

Every request takes the same way: gate (host, sizes) → router → caller → parameters → form of answer → body → handler.
Only plain submissions take a shorter one (`short_road.py`). Somebody else serves the application; nothing here listens.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from hourhand.api.accepting import negotiate
from hourhand.api.answers import TEXT, Answer, Facts, facts_of, header
from hourhand.api.asgi import App, Receive, Scope, Send
from hourhand.api.auth import Authenticator, Credentials, LoginThrottle, read_credentials
from hourhand.api.bodies import BodyRoom, Patience, Place, content_type_of, read_body, refuse_other_content, stream_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.gate import Gate
from hourhand.api.multipart import FORM, boundary_of, one_file
from hourhand.api.openapi import openapi_document
from hourhand.api.parameters import IDEMPOTENCY_KEY, parse_query
from hourhand.api.problems import problem_answer
from hourhand.api.refusals import BadRequest
from hourhand.api.router import Router
from hourhand.api.routes.artifacts import ArtifactRoutes
from hourhand.api.routes.backfills import BackfillRoutes
from hourhand.api.routes.calendars import CalendarRoutes
from hourhand.api.routes.callbacks import CallbackRoutes
from hourhand.api.routes.cluster import ClusterRoutes
from hourhand.api.routes.contract_job_service import JobServiceRoutes
from hourhand.api.routes.contract_schedule_service import ScheduleServiceRoutes
from hourhand.api.routes.explain import ExplainRoutes
from hourhand.api.routes.forecast import ForecastRoutes
from hourhand.api.routes.health import HealthRoutes
from hourhand.api.routes.history import HistoryRoutes
from hourhand.api.routes.jobs import JobRoutes
from hourhand.api.routes.logs import LogRoutes
from hourhand.api.routes.nodes import NodeRoutes
from hourhand.api.routes.pauses import PauseRoutes
from hourhand.api.routes.placing import PlacingRoutes
from hourhand.api.routes.previews import PreviewRoutes
from hourhand.api.routes.queues import QueueRoutes
from hourhand.api.routes.run_events import RunEventRoutes
from hourhand.api.routes.run_files import RunFileRoutes
from hourhand.api.routes.runs import RunRoutes
from hourhand.api.routes.secrets import SecretRoutes
from hourhand.api.routes.start_page import PageRoutes
from hourhand.api.routes.versions import VersionRoutes
from hourhand.api.settings import ApiSettings
from hourhand.api.short_road import ShortRoad
from hourhand.api.streaming import StreamAnswer, Streams
from hourhand.model.errors import BodyTooLarge
from hourhand.operations.access import Access
from hourhand.operations.artifacts import ArtifactOperations
from hourhand.operations.backfills import BackfillOperations
from hourhand.operations.calendars import CalendarOperations
from hourhand.operations.callbacks import CallbackOperations
from hourhand.operations.cluster import ClusterOperations
from hourhand.operations.explain import ExplainOperations
from hourhand.operations.forecast import ForecastOperations
from hourhand.operations.history import HistoryOperations
from hourhand.operations.jobs import JobOperations
from hourhand.operations.logs import LogOperations
from hourhand.operations.nodes import NodeOperations
from hourhand.operations.pauses import PauseOperations
from hourhand.operations.placing import PlacingOperations
from hourhand.operations.previews import PreviewOperations
from hourhand.operations.queues import QueueOperations
from hourhand.operations.requests import Caller
from hourhand.operations.run_files import RunFileOperations
from hourhand.operations.run_watch import RunWatch
from hourhand.operations.runs import RunOperations
from hourhand.operations.secrets import SecretOperations
from hourhand.operations.versions import VersionOperations

__all__ = ["ApiOperations", "ApiSettings", "Application", "Service", "build_app", "list_endpoints"]

_KEYED_ROUTES: Final = "POST /api/v1/jobs, /api/v1/jobs/batch, /jobs and /api/jobs"


@dataclass(frozen=True, slots=True)
class ApiOperations:
    """Everything the API may ask for."""

    jobs: JobOperations
    runs: RunOperations
    cluster: ClusterOperations
    access: Access
    nodes: NodeOperations
    queues: QueueOperations
    explain: ExplainOperations
    calendars: CalendarOperations
    previews: PreviewOperations
    history: HistoryOperations
    pauses: PauseOperations
    backfills: BackfillOperations
    versions: VersionOperations
    forecast: ForecastOperations
    placing: PlacingOperations
    watch: RunWatch
    callbacks: CallbackOperations
    artifacts: ArtifactOperations
    logs: LogOperations
    run_files: RunFileOperations
    secrets: SecretOperations


def build_app(operations: ApiOperations, settings: ApiSettings, streams: Streams | None = None) -> App:
    """The whole API as an ASGI application. Whoever stops it closes `streams` first."""
    authenticator = Authenticator(operations.access, settings)
    service = Service(authenticator, settings)
    streams = Streams(settings.streams_max) if streams is None else streams  # an idle one counts as false
    gate = Gate(Application(service, Router(list_endpoints(operations, settings, streams))), settings)
    return ShortRoad(gate, operations.jobs, authenticator, settings, service.room, service.patience)


def list_endpoints(operations: ApiOperations, settings: ApiSettings, streams: Streams | None = None) -> list[Endpoint]:
    """Every route there is."""
    streams = Streams(settings.streams_max) if streams is None else streams  # an idle one counts as false
    jobs, runs = operations.jobs, operations.runs
    endpoints = [
        *JobRoutes(jobs, runs, settings).endpoints(),
        *VersionRoutes(operations.versions).endpoints(),
        *RunRoutes(runs).endpoints(),
        *RunEventRoutes(runs, operations.watch, streams).endpoints(),
        *CallbackRoutes(operations.callbacks).endpoints(),
        *LogRoutes(operations.logs, streams).endpoints(),
        *RunFileRoutes(operations.run_files, streams).endpoints(),
        *HistoryRoutes(operations.history).endpoints(),
        *ExplainRoutes(operations.explain).endpoints(),
        *PlacingRoutes(operations.placing).endpoints(),
        *CalendarRoutes(operations.calendars).endpoints(),
        *PreviewRoutes(operations.previews).endpoints(),
        *PauseRoutes(operations.pauses).endpoints(),
        *BackfillRoutes(operations.backfills).endpoints(),
        *ForecastRoutes(operations.forecast).endpoints(),
        *ArtifactRoutes(operations.artifacts, settings, streams).endpoints(),
        *SecretRoutes(operations.secrets).endpoints(),
        *QueueRoutes(operations.queues).endpoints(),
        *NodeRoutes(operations.nodes).endpoints(),
        *ClusterRoutes(operations.cluster).endpoints(),
        *ScheduleServiceRoutes(jobs, runs).endpoints(),
        *JobServiceRoutes(jobs, runs, operations.logs).endpoints(),
        *HealthRoutes(operations.cluster).endpoints(),
    ]
    throttle = LoginThrottle(settings.login_failures_max)
    endpoints += PageRoutes(operations.access, throttle, lambda: openapi_document(endpoints)).endpoints()
    return endpoints


class Application:
    """Answers every request that the gate lets in."""

    def __init__(self, service: "Service", router: Router) -> None:
        self._service = service
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Answer | StreamAnswer
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:  # whatever it is, the caller gets an answer; what nobody expected is logged
            answer = problem_answer(error, facts_of(scope).request_id, scope["method"], scope["path"])
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer | StreamAnswer:
        method, path = scope["method"], scope["path"]
        if method == "OPTIONS":
            methods = ", ".join(sorted([*self._router.methods_at(path), "OPTIONS"]))
            return Answer(b"", 204, TEXT, [header("allow", methods)])
        endpoint, parameters = self._router.find(method, path)
        return await self._service.serve(endpoint, parameters, scope, receive)


class Service:
    """What every endpoint needs before its handler can run."""

    def __init__(self, authenticator: Authenticator, settings: ApiSettings) -> None:
        self._authenticator = authenticator
        self._settings = settings
        self.room = BodyRoom(settings.bodies_bytes_max)
        self.patience = Patience(settings.body_seconds_max)

    async def serve(
        self, endpoint: Endpoint, parameters: Mapping[str, str], scope: Scope, receive: Receive
    ) -> Answer | StreamAnswer:
        """`parameters`: those in the path."""
        facts = facts_of(scope)
        if endpoint.public:
            credentials, media_type = None, endpoint.media_types[0]
        else:
            credentials = read_credentials(facts.headers, scope["method"], self._settings.public_url)
            media_type = negotiate(facts.headers.get(b"accept"), endpoint.media_types)
        _refuse_key_without_meaning(endpoint, facts)
        query = parse_query(scope["query_string"], endpoint.known_parameters)
        caller = await self._caller(credentials, query.text("namespace"))
        try:
            with Place(self.room) as place:
                body, content_type = await self._body(endpoint, facts, receive, place)
                call = Call(
                    query=query,
                    path=parameters,
                    headers=facts.headers,
                    body=body,
                    media_type=media_type,
                    content_type=content_type,
                    base_url=self._base_url(scope, facts),
                    client_address=scope["client"][0] if scope.get("client") else "",
                    authenticated=caller,
                    caller_in=lambda namespace: self._authenticated(credentials, namespace),
                    stream=self._stream(endpoint, facts, receive) if endpoint.streamed else None,
                )
                return await endpoint.handler(call)
        except BodyTooLarge as error:
            raise BodyTooLarge(error.limit_bytes, endpoint.body_limited_by) from None

    async def _caller(self, credentials: Credentials | None, namespace: str | None) -> Caller | None:
        return None if credentials is None else await self._authenticator.authenticate(credentials, namespace)

    async def _authenticated(self, credentials: Credentials | None, namespace: str) -> Caller:
        assert credentials is not None, "a public endpoint asked for its caller"
        return await self._authenticator.authenticate(credentials, namespace)

    async def _body(self, endpoint: Endpoint, facts: Facts, receive: Receive, place: Place) -> tuple[bytes, str]:
        if endpoint.body is None or endpoint.streamed:
            return b"", ""
        bytes_max = endpoint.body_bytes_max or self._settings.body_bytes_max
        body = await read_body(facts.headers, receive, bytes_max, self.patience, place)
        # An empty body has no form; the decoder says whether one is needed.
        return body, content_type_of(facts.headers, endpoint.body_media) if body else ""

    def _stream(self, endpoint: Endpoint, facts: Facts, receive: Receive) -> AsyncIterator[bytes]:
        bytes_max = endpoint.body_bytes_max or self._settings.body_bytes_max
        refuse_other_content(facts.headers, endpoint.body_media)
        pieces = stream_body(facts.headers, receive, bytes_max, self._settings.body_seconds_max)
        content_type = facts.headers.get(b"content-type", b"").decode("latin-1")
        if content_type.partition(";")[0].strip().lower() != FORM:
            return pieces
        return one_file(pieces, boundary_of(content_type))

    def _base_url(self, scope: Scope, facts: Facts) -> str:
        if self._settings.public_url is not None:
            return self._settings.public_url.rstrip("/")
        return f"{scope.get('scheme', 'http')}://{facts.headers[b'host'].decode('latin-1')}"


def _refuse_key_without_meaning(endpoint: Endpoint, facts: Facts) -> None:
    """Whoever sends a key relies on it; to pass it over would be to do a repeated request twice."""
    if b"idempotency-key" not in facts.headers or endpoint.method == "GET" or IDEMPOTENCY_KEY in endpoint.headers:
        return
    message = f"this route takes no Idempotency-Key; those that do submit jobs: {_KEYED_ROUTES}"
    raise BadRequest("idempotency-key-not-supported", message)
