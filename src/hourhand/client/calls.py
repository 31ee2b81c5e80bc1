"""Every question the API can be asked, as a value: what to send and how to read the answer.

No input or output happens here. A `Call` is carried by either client; the reading side gets the whole answer.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx
import msgspec
from msgspec import UNSET, UnsetType, structs

from hourhand.client import views
from hourhand.client.problems import problem_of, unreadable
from hourhand.model.errors import InvalidParameter

T = TypeVar("T")
Identity = UUID | str
"""Ids are taken as they are at hand; the server judges them."""
Moment = datetime | str
"""So are times: aware ones, or RFC 3339."""

NDJSON_FROM: Final = 1000
"""A batch of at least this many jobs is sent line by line, which the server reads without holding all of it twice."""

BASE: Final = "/api/v1"
KEY_HEADER: Final = "Idempotency-Key"
REPLAY_HEADER: Final = "Idempotent-Replay"
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, str | list[str]] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    replayed: Callable[[T], T] | None = None
    """What becomes of an answer that the server had given before."""

    @property
    def is_keyed(self) -> bool:
        """True when it is safe to send it again: the server knows it by its key."""
        return KEY_HEADER in self.headers

    def result(self, response: httpx.Response) -> T:
        """What the answer says. Raises ApiProblem when the server refused."""
        if response.status_code >= 400:
            raise problem_of(response)
        if not response.is_success:
            raise unreadable(response, f"{response.status_code} {response.reason_phrase}")
        try:
            answer = self.read(response.content)
        except msgspec.MsgspecError as error:
            raise unreadable(response, str(error)) from error
        return answer if self.replayed is None or REPLAY_HEADER not in response.headers else self.replayed(answer)


class _JobIds(msgspec.Struct):
    job_ids: list[UUID]


class _RunId(msgspec.Struct):
    run_id: UUID


class _Times(msgspec.Struct):
    times: list[datetime]


class _Versions(msgspec.Struct):
    versions: list[views.VersionView]


class _Nodes(msgspec.Struct):
    nodes: list[views.NodeDetailView]


class _Queues(msgspec.Struct):
    queues: list[views.QueueView]


class _Calendars(msgspec.Struct):
    calendars: list[views.CalendarView]


def _reader(kind: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(kind).decode


_job = _reader(views.JobView)
_created_job = _reader(views.CreatedJobView)
_job_ids = _reader(_JobIds)
_job_page = _reader(views.JobPage)
_job_status = _reader(views.JobStatusView)
_change = _reader(views.ChangeView)
_run = _reader(views.RunView)
_run_id = _reader(_RunId)
_run_detail = _reader(views.RunDetailView)
_runs_cancelled = _reader(views.RunsCancelled)
_runs_retried = _reader(views.RunsRetried)
_run_page = _reader(views.RunPage)
log_page = _reader(views.LogPage)
_job_log_matches = _reader(views.JobLogMatches)
_times = _reader(_Times)
_versions = _reader(_Versions)
_cluster = _reader(views.ClusterView)
_who = _reader(views.WhoAmI)
_explanation = _reader(views.ExplanationView)
_nodes = _reader(_Nodes)
_node = _reader(views.NodeDetailView)
_shards = _reader(views.ShardsView)
_queues = _reader(_Queues)
_queue = _reader(views.QueueView)
_history = _reader(views.HistoryPage)
_advice = _reader(views.AdviceView)
_parts = _reader(views.PartsView)
_pauses = _reader(views.PausePage)
_paused = _reader(views.PauseDone)
_resumed = _reader(views.ResumeDone)
_namespace = _reader(views.NamespaceView)
_calendars = _reader(_Calendars)
_calendar = _reader(views.CalendarView)
_preview = _reader(views.PreviewView)


# --- jobs -------------------------------------------------------------------------------------------------


def submission_key(given: str | UnsetType | None) -> str | None:
    """The key to send: the caller's, a new one where nothing was said, none where none is wanted."""
    if given is UNSET:
        return secrets.token_hex(16)
    if given is not None and not (given.isascii() and given.isprintable() and " " not in given and given):
        raise InvalidParameter("idempotency_key", "a key is one word of visible ASCII characters")
    return given


def create_job(fields: Mapping[str, Any], key: str | None) -> Call[views.CreatedJobView]:
    call = _sending("POST", "/jobs", _created_job, fields, _key_header(key))
    return replace(call, replayed=lambda job: structs.replace(job, replayed=True))


def create_jobs(requests: Sequence[Mapping[str, Any]], key: str | None) -> Call[list[UUID]]:
    if len(requests) < NDJSON_FROM:
        content, kind = _encode(requests), "application/json"
    else:
        content, kind = b"\n".join(map(_encode, requests)) + b"\n", "application/x-ndjson"
    return Call(
        "POST",
        f"{BASE}/jobs/batch",
        lambda body: _job_ids(body).job_ids,
        content=content,
        headers={"Content-Type": kind, **_key_header(key)},
    )


def get_job(job_id: Identity) -> Call[views.JobView]:
    return Call("GET", _job_path(job_id), _job)


def list_jobs(filters: Mapping[str, Any], cursor: str | None = None) -> Call[views.JobPage]:
    return Call("GET", f"{BASE}/jobs", _job_page, _params({**filters, "cursor": cursor}))


def update_job(job_id: Identity, fields: Mapping[str, Any], if_version: int | None) -> Call[views.ChangeView]:
    headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
    return _sending("PATCH", _job_path(job_id), _change, fields, headers)


def cancel_job(job_id: Identity) -> Call[views.ChangeView]:
    return Call("DELETE", _job_path(job_id), _change)


def pause_job(job_id: Identity, reason: str | None, until: Moment | None = None) -> Call[views.ChangeView]:
    return _sending("POST", _job_path(job_id, "/pause"), _change, _pause(reason, until))


def resume_job(job_id: Identity, catch_up: str | None = None) -> Call[views.ChangeView]:
    return _sending("POST", _job_path(job_id, "/resume"), _change, _given({"catch_up": catch_up}))


def job_history(job_id: Identity, filters: Mapping[str, Any], cursor: str | None = None) -> Call[views.HistoryPage]:
    named = {"since": "from", "until": "to"}  # the one is a word of Python's own
    given = {named.get(name, name): value for name, value in filters.items()}
    return Call("GET", _job_path(job_id, "/history"), _history, _params({**given, "cursor": cursor}))


def job_advice(job_id: Identity) -> Call[views.AdviceView]:
    return Call("GET", _job_path(job_id, "/advice"), _advice)


def run_job(
    job_id: Identity, payload: Mapping[str, Any] | None, note: str | None, overlap: str | None = None
) -> Call[UUID]:
    fields = _given({"payload": payload, "note": note, "overlap": overlap})
    return _sending("POST", _job_path(job_id, "/run"), lambda body: _run_id(body).run_id, fields)


def job_status(job_id: Identity) -> Call[views.JobStatusView]:
    return Call("GET", _job_path(job_id, "/status"), _job_status)


def job_runs(job_id: Identity, filters: Mapping[str, Any], cursor: str | None = None) -> Call[views.RunPage]:
    return Call("GET", _job_path(job_id, "/runs"), _run_page, _params({**filters, "cursor": cursor}))


def next_times(job_id: Identity, count: int) -> Call[list[datetime]]:
    path = _job_path(job_id, "/next")
    return Call("GET", path, lambda body: _times(body).times, _params({"count": count}))


def versions(job_id: Identity, limit: int | None) -> Call[list[views.VersionView]]:
    path = _job_path(job_id, "/versions")
    return Call("GET", path, lambda body: _versions(body).versions, _params({"limit": limit}))


# --- runs -------------------------------------------------------------------------------------------------


def list_runs(filters: Mapping[str, Any], cursor: str | None = None) -> Call[views.RunPage]:
    return Call("GET", f"{BASE}/runs", _run_page, _params({**filters, "cursor": cursor}))


def get_run(run_id: Identity) -> Call[views.RunDetailView]:
    return Call("GET", _run_path(run_id), _run_detail)


def run_logs(
    run_id: Identity, after: str | None, limit: int | None, search: Mapping[str, Any] | None = None
) -> Call[views.LogPage]:
    params = _params({**(search or {}), "after": after, "limit": limit})
    return Call("GET", _run_path(run_id, "/logs"), log_page, params)


def log_search(contains: str | None, ignore_case: bool) -> dict[str, Any]:
    return {} if contains is None else {"contains": contains, **({"ignore_case": True} if ignore_case else {})}


def log_stream(run_id: Identity, after: str | None) -> Call[None]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if after is not None:
        headers["Last-Event-ID"] = after
    return Call("GET", _run_path(run_id, "/logs/stream"), lambda _: None, headers=headers)


def search_job_logs(job_id: Identity, search: Mapping[str, Any], cursor: str | None) -> Call[views.JobLogMatches]:
    return Call("GET", _job_path(job_id, "/logs"), _job_log_matches, _params({**search, "cursor": cursor}))


def cancel_run(run_id: Identity) -> Call[views.RunView]:
    return Call("POST", _run_path(run_id, "/cancel"), _run)


def cancel_runs(selection: Mapping[str, Any]) -> Call[views.RunsCancelled]:
    return _sending("POST", "/runs/cancel", _runs_cancelled, _given(selection))


def retry_run(run_id: Identity, note: str | None, again: bool) -> Call[UUID]:
    fields = _given({"note": note, "again": again or None})
    return _sending("POST", _run_path(run_id, "/retry"), lambda body: _run_id(body).run_id, fields)


def retry_runs(selection: Mapping[str, Any]) -> Call[views.RunsRetried]:
    return _sending("POST", "/runs/retry", _runs_retried, _given(selection))


def run_parts(run_id: Identity) -> Call[views.PartsView]:
    return Call("GET", _run_path(run_id, "/parts"), _parts)


def explain_run(run_id: Identity) -> Call[views.ExplanationView]:
    return Call("GET", _run_path(run_id, "/explain"), _explanation)


# --- nodes and shards -------------------------------------------------------------------------------------


def nodes() -> Call[list[views.NodeDetailView]]:
    return Call("GET", f"{BASE}/nodes", lambda body: _nodes(body).nodes)


def get_node(node_id: int) -> Call[views.NodeDetailView]:
    return Call("GET", f"{BASE}/nodes/{_segment(str(node_id))}", _node)


def order_node(node_id: int, verb: str) -> Call[views.NodeDetailView]:
    return Call("POST", f"{BASE}/nodes/{_segment(str(node_id))}/{verb}", _node)


def shards(each: bool) -> Call[views.ShardsView]:
    return Call("GET", f"{BASE}/shards", _shards, _params({"each": each or None}))


# --- queues and namespaces --------------------------------------------------------------------------------


def queues() -> Call[list[views.QueueView]]:
    return Call("GET", f"{BASE}/queues", lambda body: _queues(body).queues)


def get_queue(name: str) -> Call[views.QueueView]:
    return Call("GET", f"{BASE}/queues/{_segment(name)}", _queue)


def set_queue(name: str, fields: Mapping[str, Any]) -> Call[views.QueueView]:
    return _sending("PUT", f"/queues/{_segment(name)}", _queue, fields)


def pause_queue(name: str, reason: str | None, until: Moment | None = None) -> Call[views.QueueView]:
    return _sending("POST", f"/queues/{_segment(name)}/pause", _queue, _pause(reason, until))


def resume_queue(name: str, catch_up: str | None = None) -> Call[views.QueueView]:
    return _sending("POST", f"/queues/{_segment(name)}/resume", _queue, _given({"catch_up": catch_up}))


# --- pauses of many jobs ----------------------------------------------------------------------------------


def pauses(filters: Mapping[str, Any], cursor: str | None = None) -> Call[views.PausePage]:
    return Call("GET", f"{BASE}/pauses", _pauses, _params({**filters, "cursor": cursor}))


def pause_many(path: str, reason: str | None, until: Moment | None) -> Call[views.PauseDone]:
    return _sending("POST", f"{path}/pause", _paused, _pause(reason, until))


def resume_many(path: str, catch_up: str | None) -> Call[views.ResumeDone]:
    return _sending("POST", f"{path}/resume", _resumed, _given({"catch_up": catch_up}))


def label_path(label: str) -> str:
    return f"/labels/{_segment(label)}"


def namespace_path(name: str) -> str:
    return f"/namespaces/{_segment(name)}"


CLUSTER_PATH: Final = "/cluster"


def get_namespace(name: str) -> Call[views.NamespaceView]:
    return Call("GET", f"{BASE}/namespaces/{_segment(name)}", _namespace)


def set_namespace(name: str, fields: Mapping[str, Any]) -> Call[views.NamespaceView]:
    return _sending("PUT", f"/namespaces/{_segment(name)}", _namespace, fields)


# --- calendars and previews -------------------------------------------------------------------------------


def calendars(after: str | None, limit: int) -> Call[list[views.CalendarView]]:
    params = _params({"after": after, "limit": limit})
    return Call("GET", f"{BASE}/calendars", lambda body: _calendars(body).calendars, params)


def get_calendar(name: str) -> Call[views.CalendarView]:
    return Call("GET", _calendar_path(name), _calendar)


def put_calendar(name: str, fields: Mapping[str, Any], if_version: int | None) -> Call[views.CalendarView]:
    headers = {} if if_version is None else {"If-Match": f'"{if_version}"'}
    return _sending("PUT", _calendar_path(name), _calendar, fields, headers)


def import_calendar(name: str, text: str, zone: str | None) -> Call[views.CalendarView]:
    return Call(
        "POST",
        _calendar_path(name) + "/import",
        _calendar,
        _params({"zone": zone}),
        content=text.encode(),
        headers={"Content-Type": "text/calendar"},
    )


def delete_calendar(name: str) -> Call[None]:
    return Call("DELETE", _calendar_path(name), lambda body: None)


def preview(fields: Mapping[str, Any]) -> Call[views.PreviewView]:
    params = _params({name: value for name, value in fields.items() if name not in ("cron", "calendar")})
    for name in ("cron", "calendar"):
        if fields.get(name) is not None:
            params[name] = [fields[name]] if isinstance(fields[name], str) else list(fields[name])
    return Call("GET", f"{BASE}/schedules/preview", _preview, params)


# --- the rest ---------------------------------------------------------------------------------------------


def cluster() -> Call[views.ClusterView]:
    return Call("GET", f"{BASE}/cluster", _cluster)


def whoami() -> Call[views.WhoAmI]:
    return Call("GET", f"{BASE}/whoami", _who)


# --- helpers ----------------------------------------------------------------------------------------------


def _sending(
    method: str,
    path: str,
    read: Callable[[bytes], T],
    fields: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Call[T]:
    whole = path if path.startswith(BASE) else BASE + path
    return Call(
        method, whole, read, content=_encode(fields), headers={"Content-Type": "application/json", **(headers or {})}
    )


def _key_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {KEY_HEADER: key}


def _pause(reason: str | None, until: Moment | None) -> dict[str, Any]:
    return _given({"reason": reason, "until": until.isoformat() if isinstance(until, datetime) else until})


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _job_path(job_id: Identity, rest: str = "") -> str:
    return f"{BASE}/jobs/{_segment(job_id)}{rest}"


def _calendar_path(name: str) -> str:
    return f"{BASE}/calendars/{_segment(name)}"


def _run_path(run_id: Identity, rest: str = "") -> str:
    return f"{BASE}/runs/{_segment(run_id)}{rest}"


def _segment(identity: Identity) -> str:
    """An id as one step of a path: a slash in it must not lead elsewhere."""
    return quote(str(identity), safe="")


def _params(given: Mapping[str, Any]) -> dict[str, str | list[str]]:
    """Query parameters as the API writes them; None means "not given"."""
    return {name: _param(value) for name, value in given.items() if value is not None}


def _param(value: Any) -> str | list[str]:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case Mapping():  # labels
            return [f"{key}:{word}" for key, word in value.items()]
        case Iterable():
            return ",".join(map(str, value))
        case _:
            return str(value)


# For the calls that other modules make.
sending, reader, params, job_path, segment, change_reader = _sending, _reader, _params, _job_path, _segment, _change
