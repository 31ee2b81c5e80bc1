"""The client for plain code: each call blocks until its answer is there. Safe to share between threads."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx
from msgspec import UNSET, UnsetType

from hourhand.client import artifacts, calls, planning, run_files, scripts, views
from hourhand.client.calls import Call, Identity, Moment
from hourhand.client.connection import TIMEOUT_SECONDS, Connection
from hourhand.client.downloading import fetch
from hourhand.client.ears import Ear, Heard
from hourhand.client.scripts import Give, Hear, Listen, Playing, Script, Step, Stream, Wait
from hourhand.client.secrets import SecretMethods
from hourhand.model.errors import HourhandError

T = TypeVar("T")


class Client(SecretMethods):
    """A connection to one Hourhand. Close it, or use it in a `with` block."""

    def __init__(
        self, url: str, token: str | None = None, namespace: str | None = None, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        self._connection = Connection(url, token, namespace, timeout)
        self._http = httpx.Client(**self._connection.options())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    # --- jobs ---------------------------------------------------------------------------------------------

    def create_job(self, *, idempotency_key: str | UnsetType | None = UNSET, **fields: Any) -> views.CreatedJobView:
        """Fields as in the API: name, kind, payload, schedule, zone, queue, priority, ...

        Sent again for a while when the answer is lost, and yet carried out once: the server knows it by its key, which
        is a new one unless given. With None there is no key, and one try."""
        key = calls.submission_key(idempotency_key)
        return self._play(scripts.submit(calls.create_job(fields, key), time.monotonic))

    def create_jobs(
        self, requests: Sequence[Mapping[str, Any]], *, idempotency_key: str | UnsetType | None = UNSET
    ) -> list[UUID]:
        """All or none. One call takes up to 100,000 jobs and 64 MiB. The key stands for all of them."""
        key = calls.submission_key(idempotency_key)
        return self._play(scripts.submit(calls.create_jobs(requests, key), time.monotonic))

    def get_job(self, job_id: Identity) -> views.JobView:
        return self.send(calls.get_job(job_id))

    def list_jobs_page(self, *, cursor: str | None = None, **filters: Any) -> views.JobPage:
        """One page. Filters as in the API: limit, status, name, kind, queue, owner, label={...}, priority."""
        return self.send(calls.list_jobs(filters, cursor))

    def list_jobs(self, **filters: Any) -> Iterator[views.JobView]:
        """All jobs that match, page after page; `limit` is the size of a page."""
        return self._stream(scripts.each_job(filters))

    def update_job(self, job_id: Identity, *, if_version: int | None = None, **fields: Any) -> views.ChangeView:
        """Changes the given fields only; with `if_version`, only when the job still has that version."""
        return self.send(calls.update_job(job_id, fields, if_version))

    def cancel_job(self, job_id: Identity) -> views.ChangeView:
        return self.send(calls.cancel_job(job_id))

    def pause_job(self, job_id: Identity, reason: str | None = None, until: Moment | None = None) -> views.ChangeView:
        """Makes no new runs until then, or until somebody resumes it."""
        return self.send(calls.pause_job(job_id, reason, until))

    def resume_job(self, job_id: Identity, catch_up: str | None = None) -> views.ChangeView:
        """`catch_up`: what is run of that which fell into the pause: none (the default), last or all."""
        return self.send(calls.resume_job(job_id, catch_up))

    def run_job(
        self,
        job_id: Identity,
        payload: Mapping[str, Any] | None = None,
        note: str | None = None,
        overlap: str | None = None,
    ) -> UUID:
        """Runs a job now; `payload` and `overlap` replace the job's own for this run. Gives the id of the run."""
        return self.send(calls.run_job(job_id, payload, note, overlap))

    def job_status(self, job_id: Identity) -> views.JobStatusView:
        return self.send(calls.job_status(job_id))

    def job_runs_page(self, job_id: Identity, *, cursor: str | None = None, **filters: Any) -> views.RunPage:
        """One page of a job's runs, newest first. Filters: limit, status and reason (a word or several), since,
        until."""
        return self.send(calls.job_runs(job_id, filters, cursor))

    def job_runs(self, job_id: Identity, **filters: Any) -> Iterator[views.RunView]:
        return self._stream(scripts.each_run(lambda cursor: calls.job_runs(job_id, filters, cursor)))

    def job_advice(self, job_id: Identity) -> views.AdviceView:
        """Whether what it declares fits what its last runs have taken."""
        return self.send(calls.job_advice(job_id))

    def job_history_page(self, job_id: Identity, *, cursor: str | None = None, **filters: Any) -> views.HistoryPage:
        """What became of every due time, in the order of time. Filters: since and until, limit, compact=True."""
        return self.send(calls.job_history(job_id, filters, cursor))

    def job_history(self, job_id: Identity, **filters: Any) -> Iterator[views.HistoryEntryView]:
        """All of it, page after page."""
        return self._stream(scripts.each_entry(job_id, filters))

    def next_times(self, job_id: Identity, count: int = 10) -> list[datetime]:
        return self.send(calls.next_times(job_id, count))

    def versions(self, job_id: Identity, limit: int | None = None) -> list[views.VersionView]:
        return self.send(calls.versions(job_id, limit))

    # --- runs ---------------------------------------------------------------------------------------------

    def list_runs_page(self, *, cursor: str | None = None, **filters: Any) -> views.RunPage:
        """One page. Filters: limit, status and reason (a word or several), job_id, since, until."""
        return self.send(calls.list_runs(filters, cursor))

    def list_runs(self, **filters: Any) -> Iterator[views.RunView]:
        return self._stream(scripts.each_run(lambda cursor: calls.list_runs(filters, cursor)))

    def get_run(self, run_id: Identity) -> views.RunDetailView:
        return self.send(calls.get_run(run_id))

    def run_logs(self, run_id: Identity, *, after: str | None = None, limit: int | None = None) -> views.LogPage:
        """One page of a run's log; `after` is the `next` of the page before."""
        return self.send(calls.run_logs(run_id, after, limit))

    def log_lines(
        self, run_id: Identity, *, after: str | None = None, contains: str | None = None, ignore_case: bool = False
    ) -> Iterator[views.LogLineView]:
        """Every line there is by now; with `contains`, every one that holds the text."""
        return self._stream(scripts.log_lines(run_id, after, calls.log_search(contains, ignore_case)))

    def search_job_logs(
        self, job_id: Identity, contains: str, *, ignore_case: bool = False
    ) -> Iterator[views.JobLogMatch]:
        """Every line that holds the text, of all runs of a job, newest run first."""
        return self._stream(scripts.job_log_lines(job_id, calls.log_search(contains, ignore_case)))

    def follow_logs(self, run_id: Identity, *, after: str | None = None) -> Iterator[views.LogLineView]:
        """Every line as it comes, until the run has ended. Bears a server that is away for half a minute."""
        return self._stream(scripts.follow_logs(run_id, after))

    def cancel_run(self, run_id: Identity) -> views.RunView:
        return self.send(calls.cancel_run(run_id))

    def cancel_runs(self, **selection: Any) -> views.RunsCancelled:
        """Cancels the live runs meant: run_ids=[...], or status=[...], job_id, since, until, limit."""
        return self.send(calls.cancel_runs(selection))

    def retry_run(self, run_id: Identity, note: str | None = None, again: bool = False) -> UUID:
        """Runs a finished run again and gives the id of the new run; `again`: also when that was done already."""
        return self.send(calls.retry_run(run_id, note, again))

    def retry_runs(self, **selection: Any) -> views.RunsRetried:
        """Runs the finished runs meant again: run_ids=[...], or status=[...], job_id, reason=[...], since, until,
        limit; with note and again. Those that a retry repeats already, or has repeated with success, are left out."""
        return self.send(calls.retry_runs(selection))

    def watch_run(self, run_id: Identity, timeout: float | None = None) -> Iterator[views.RunDetailView]:
        """The run as it stands, again and again, with its `progress`; the last one is final. Raises WaitTimedOut."""
        return self._stream(scripts.watch_run(run_id, timeout, time.monotonic))

    def wait_for_run(self, run_id: Identity, timeout: float | None = None) -> views.RunDetailView:
        """Returns when the run is final, however it ended. Raises WaitTimedOut after `timeout` seconds."""
        return self._play(scripts.wait_for_run(run_id, timeout, time.monotonic))

    def wait_for_start(self, job_id: Identity) -> views.RunView:
        """The first run of a new job, as soon as there is one. Raises JobEndedWithoutRun."""
        return self._play(scripts.wait_for_start(job_id))

    def wait_for_job(self, job_id: Identity, timeout: float | None = None) -> views.RunDetailView:
        """The first run of a new job, when it is final."""
        return self._play(scripts.wait_for_job(job_id, timeout, time.monotonic))

    def run_parts(self, run_id: Identity) -> list[views.PartView]:
        """Where its parts went, and what became of each. None of a run that goes to one executor."""
        return self.send(calls.run_parts(run_id)).parts

    def explain_run(self, run_id: Identity) -> views.ExplanationView:
        """Why a run waits, where it is, why it ended so: every gate on its way, in order."""
        return self.send(calls.explain_run(run_id))

    def wait_while_waiting(self, run_id: Identity, timeout: float) -> views.RunDetailView:
        """Returns as soon as somebody has the run, or after `timeout` seconds, whichever comes first."""
        return self._play(scripts.wait_while_waiting(run_id, timeout, time.monotonic))

    # --- nodes and shards ---------------------------------------------------------------------------------

    def nodes(self) -> list[views.NodeDetailView]:
        """Every node that is present, and those that ended within the last hour."""
        return self.send(calls.nodes())

    def get_node(self, node_id: int) -> views.NodeDetailView:
        return self.send(calls.get_node(node_id))

    def cordon_node(self, node_id: int) -> views.NodeDetailView:
        """The node takes nothing new; what it has goes on."""
        return self.send(calls.order_node(node_id, "cordon"))

    def drain_node(self, node_id: int) -> views.NodeDetailView:
        """The node takes nothing new and gives back what does not end in time."""
        return self.send(calls.order_node(node_id, "drain"))

    def wait_until_drained(self, node_id: int) -> views.NodeDetailView:
        """Returns when a node that was told to drain has nothing left, or does not drain any more."""
        return self._play(scripts.wait_until_drained(node_id))

    def resume_node(self, node_id: int) -> views.NodeDetailView:
        return self.send(calls.order_node(node_id, "resume"))

    def mark_node_lost(self, node_id: int) -> views.NodeDetailView:
        """Holds a node for dead at once: its runs and shards go to others."""
        return self.send(calls.order_node(node_id, "mark-lost"))

    def shards(self, each: bool = False) -> views.ShardsView:
        """Which scheduler owns which shards; with `each`, also one by one."""
        return self.send(calls.shards(each))

    # --- calendars and previews ---------------------------------------------------------------------------

    def calendars(self, after: str | None = None, limit: int = 500) -> list[views.CalendarView]:
        """One page, by name; `after` is the last name of the page before."""
        return self.send(calls.calendars(after, limit))

    def get_calendar(self, name: str) -> views.CalendarView:
        return self.send(calls.get_calendar(name))

    def put_calendar(self, name: str, *, if_version: int | None = None, **fields: Any) -> views.CalendarView:
        """Makes it, or replaces all of it: zone, dates, weekly, blackouts, description."""
        return self.send(calls.put_calendar(name, fields, if_version))

    def import_calendar(self, name: str, text: str, zone: str | None = None) -> views.CalendarView:
        """Makes it of the events of an iCalendar file."""
        return self.send(calls.import_calendar(name, text, zone))

    def delete_calendar(self, name: str) -> None:
        """Refused while jobs use it."""
        self.send(calls.delete_calendar(name))

    def preview(self, **fields: Any) -> views.PreviewView:
        """When a schedule would fall due; parameters as in the API: cron, every, rrule, zone, count, ... (`from` as
        `**{"from": ...}`)."""
        return self.send(calls.preview(fields))

    # --- queues and namespaces ----------------------------------------------------------------------------

    def queues(self) -> list[views.QueueView]:
        return self.send(calls.queues())

    def get_queue(self, name: str) -> views.QueueView:
        return self.send(calls.get_queue(name))

    def set_queue(self, name: str, **fields: Any) -> views.QueueView:
        """Fields: max_concurrency, rate_limit ("100/m"). What is not given stays; None takes a limit away."""
        return self.send(calls.set_queue(name, fields))

    def pause_queue(self, name: str, reason: str | None = None, until: Moment | None = None) -> views.QueueView:
        return self.send(calls.pause_queue(name, reason, until))

    def resume_queue(self, name: str, catch_up: str | None = None) -> views.QueueView:
        return self.send(calls.resume_queue(name, catch_up))

    # --- pauses of many jobs ------------------------------------------------------------------------------

    def pauses(self, **filters: Any) -> Iterator[views.PauseView]:
        """Those in force, newest first; with all=True also those that are over."""
        return self._stream(scripts.each_pause(filters))

    def pause_label(self, label: str, reason: str | None = None, until: Moment | None = None) -> views.PauseDone:
        """`label` is written key:value."""
        return self.send(calls.pause_many(calls.label_path(label), reason, until))

    def resume_label(self, label: str, catch_up: str | None = None) -> views.ResumeDone:
        return self.send(calls.resume_many(calls.label_path(label), catch_up))

    def pause_namespace(self, name: str, reason: str | None = None, until: Moment | None = None) -> views.PauseDone:
        return self.send(calls.pause_many(calls.namespace_path(name), reason, until))

    def resume_namespace(self, name: str, catch_up: str | None = None) -> views.ResumeDone:
        return self.send(calls.resume_many(calls.namespace_path(name), catch_up))

    def pause_cluster(self, reason: str | None = None, until: Moment | None = None) -> views.PauseDone:
        return self.send(calls.pause_many(calls.CLUSTER_PATH, reason, until))

    def resume_cluster(self, catch_up: str | None = None) -> views.ResumeDone:
        return self.send(calls.resume_many(calls.CLUSTER_PATH, catch_up))

    # --- namespaces ---------------------------------------------------------------------------------------

    def get_namespace(self, name: str) -> views.NamespaceView:
        return self.send(calls.get_namespace(name))

    def set_namespace(self, name: str, **fields: Any) -> views.NamespaceView:
        """Fields: max_concurrency, weight. What is not given stays; None takes a limit away."""
        return self.send(calls.set_namespace(name, fields))

    # --- backfills, the forecast, versions ----------------------------------------------------------------

    def start_backfill(self, job_id: Identity, **fields: Any) -> planning.BackfillView:
        """Runs the due times of a past range. Fields: start, end (not included), existing, parallelism, rate, overlap
        with reason, note; with dry_run=True only says what it would do."""
        return self.send(planning.start_backfill(job_id, fields))

    def get_backfill(self, backfill_id: Identity) -> planning.BackfillView:
        return self.send(planning.get_backfill(backfill_id))

    def list_backfills(self, **filters: Any) -> Iterator[planning.BackfillView]:
        """Newest first. Filters: status (a word or several), job_id; `limit` is the size of a page."""
        return self._stream(scripts.each_backfill(filters))

    def pause_backfill(self, backfill_id: Identity, reason: str | None = None) -> planning.BackfillView:
        return self.send(planning.steer_backfill(backfill_id, "pause", reason))

    def resume_backfill(self, backfill_id: Identity) -> planning.BackfillView:
        return self.send(planning.steer_backfill(backfill_id, "resume"))

    def cancel_backfill(self, backfill_id: Identity, reason: str | None = None) -> planning.BackfillView:
        """Nothing more is released; its unfinished runs are ended."""
        return self.send(planning.steer_backfill(backfill_id, "cancel", reason))

    def follow_backfill(self, backfill_id: Identity) -> Iterator[planning.BackfillView]:
        """How it stands, again and again, until it is over."""
        return self._stream(scripts.follow_backfill(backfill_id))

    def forecast(self, hours: int | None = None) -> planning.ForecastView:
        """What falls due in the next hours, minute by minute, against slots and learned durations."""
        return self.send(planning.forecast(hours))

    def diff_job(self, job_id: Identity, start: int | None = None, end: int | None = None) -> planning.DiffView:
        """What changed between two versions; without them, in the last change."""
        return self.send(planning.diff(job_id, start, end))

    def roll_back_job(
        self, job_id: Identity, version: int | None = None, *, if_version: int | None = None
    ) -> views.ChangeView:
        """Makes an earlier version the newest again; without one, the version before."""
        return self.send(planning.roll_back(job_id, version, if_version))

    # --- the rest -----------------------------------------------------------------------------------------

    def cluster(self) -> views.ClusterView:
        return self.send(calls.cluster())

    def whoami(self) -> views.WhoAmI:
        return self.send(calls.whoami())

    # --- uploaded code ------------------------------------------------------------------------------------

    def upload_artifact(
        self, name: str, content: artifacts.Content, *, sign_with: str | PathLike[str] | None = None
    ) -> artifacts.ArtifactView:
        """Keeps code on the server, for script jobs to run: bytes, a path, or an open file. What is named .zip, .tar,
        .tar.gz or .tgz is unpacked before it runs. `sign_with`: the file of a private key to vouch for it by."""
        with artifacts.opened(content) as file:
            sending = artifacts.Sending(name, file, sign_with)
            call = sending.call
            pieces = sending.pieces()
            request = self._connection.request(call, self._http, pieces, artifacts.ANSWER_SECONDS)
            return self._send(call, request)

    def get_artifact(self, reference: str) -> artifacts.ArtifactView:
        """By name (the newest), `sha256:…` or `name@sha256:…`."""
        return self.send(artifacts.get(reference))

    def list_artifacts_page(
        self, *, name: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> artifacts.ArtifactPage:
        return self.send(artifacts.list_page(name, limit, cursor))

    def download_artifact(self, reference: str, target: str | PathLike[str]) -> None:
        """Writes the content into a file, which is there only when it is whole and its digest right."""
        fetch(self._connection, self._http, artifacts.content(reference), f"artifact {reference}", target)

    def delete_artifact(self, reference: str) -> artifacts.ArtifactView:
        return self.send(artifacts.delete(reference))

    # --- what runs have left ------------------------------------------------------------------------------

    def run_files(self, run_id: UUID | str, *, attempt: int | None = None) -> run_files.RunFiles:
        """The files of the run's last attempt, or of the one with this number."""
        return self.send(run_files.list_files(run_id, attempt))

    def download_run_file(
        self, run_id: UUID | str, name: str, target: str | PathLike[str], *, attempt: int | None = None
    ) -> None:
        """Writes a file of a run into a file here, which is there only when it is whole and its digest right."""
        fetch(self._connection, self._http, run_files.file(run_id, name, attempt), f"file {name}", target)

    def download_run_result(self, run_id: UUID | str, target: str | PathLike[str]) -> None:
        """Writes the result of a run into a file, whatever its size, as JSON."""
        fetch(self._connection, self._http, run_files.result(run_id), f"result of run {run_id}", target)

    # --- carrying -----------------------------------------------------------------------------------------

    def send(self, call: Call[T]) -> T:
        """Carries one call. Raises ApiProblem when the server refuses, ServerUnreachable when it does not answer."""
        return self._send(call, self._connection.request(call, self._http))

    def _send(self, call: Call[T], request: httpx.Request) -> T:
        try:
            response = self._http.send(request)
        except httpx.HTTPError as error:
            raise self._connection.lost(error, request) from error
        return call.result(response)

    def _play(self, script: Script[T]) -> T:
        playing = Playing[Any, T](script)
        while (step := playing.step) is not None:
            assert not isinstance(step, Give), "a script with one result gives no items"
            self._carry(playing, step)
        return playing.result

    def _stream(self, stream: Stream[T]) -> Iterator[T]:
        playing = Playing[T, None](stream)
        ears: list[Ear] = []
        try:
            while (step := playing.step) is not None:
                if isinstance(step, Give):
                    yield step.item
                    playing.answer()
                else:
                    self._carry(playing, step, ears)
        finally:
            for ear in ears:
                ear.response.close()

    def _carry(self, playing: Playing[Any, Any], step: Step, ears: list[Ear] | None = None) -> None:
        if isinstance(step, Wait):
            time.sleep(step.seconds)
            playing.answer()
            return
        answer: Any
        try:
            if isinstance(step, Listen):
                answer = self._listen(step.call)
                assert ears is not None, "only streams listen"
                ears.append(answer)
            elif isinstance(step, Hear):
                answer = self._hear(step)
            else:
                answer = self.send(step)
        except HourhandError as error:
            playing.refuse(error)
        else:
            playing.answer(answer)

    def _listen(self, call: Call[Any]) -> Ear:
        request = self._connection.listening_request(call, self._http)
        try:
            response = self._http.send(request, stream=True)
            if not response.is_success:
                response.read()
                response.close()
                call.result(response)
        except httpx.HTTPError as error:
            raise self._connection.lost(error, request) from error
        return Ear(response)

    def _hear(self, step: Hear) -> Heard | None:
        ear = step.ear
        try:
            heard = step.ear.next()
        except httpx.HTTPError as error:
            ear.response.close()
            raise self._connection.lost(error, ear.response.request) from error
        if heard is None:
            ear.response.close()
        return heard
