"""Conversations of several calls, written once for both clients.

A script is a generator. It yields a `Call` and is sent the answer (or the error is thrown into it), yields a
`Wait` to let time pass, and yields a `Give` for each item of an iterator. It owns no socket and no clock, so a test
can play both parts.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

from hourhand.client import calls, planning, views
from hourhand.client.calls import Call, Identity
from hourhand.client.ears import Ear
from hourhand.client.problems import AnswerLost, ApiProblem, JobEndedWithoutRun, WaitTimedOut
from hourhand.model.errors import HourhandError, ServerUnreachable
from hourhand.model.node import Orders
from hourhand.model.node_state import NodeState

T = TypeVar("T")
R = TypeVar("R")

FIRST_WAIT_SECONDS: Final = 0.2
LONGEST_WAIT_SECONDS: Final = 1.0
LOG_PAGE_LINES: Final = 1000
STREAMS_TRIED_MAX: Final = 2
"""Streams in a row that say nothing, before pages are asked for instead."""
PATIENCE_SECONDS: Final = 30.0
"""How long a watch bears a server that does not answer: long enough for a restart or a change of nodes."""
RESUBMIT_SECONDS: Final = 10.0
"""How long a submission whose answer was lost is sent again. Shorter: somebody waits who has seen nothing yet."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Give(Generic[T]):
    item: T


@dataclass(frozen=True, slots=True)
class Listen:
    """Opens a stream of events; answered with an `Ear`."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Hear:
    """Waits for the next event of a stream; answered with it, or with None when the stream has ended."""

    ear: Ear


Step: TypeAlias = Call[Any] | Wait | Listen | Hear
Script: TypeAlias = Generator[Step | Give[Any], Any, R]
"""Ends with one result."""
Stream: TypeAlias = Generator[Step | Give[T], Any, None]
"""Ends by itself after any number of items."""


class Playing(Generic[T, R]):
    """A script under way: `step` is what to do next, None when it is over and `result` holds what came out."""

    def __init__(self, script: Generator[Step | Give[T], Any, R]) -> None:
        self._script = script
        self.step: Step | Give[T] | None
        self.result: R
        self._move(lambda: next(script))

    def answer(self, value: Any = None) -> None:
        self._move(lambda: self._script.send(value))

    def refuse(self, error: HourhandError) -> None:
        self._move(lambda: self._script.throw(error))

    def _move(self, move: Callable[[], Step | Give[T]]) -> None:
        # Caught here and not in the clients: a coroutine cannot let a StopIteration pass.
        try:
            self.step = move()
        except StopIteration as end:
            self.step, self.result = None, end.value


def each_job(filters: Mapping[str, Any]) -> Stream[views.JobView]:
    cursor = None
    while True:
        page: views.JobPage = yield calls.list_jobs(filters, cursor)
        for job in page.jobs:
            yield Give(job)
        cursor = page.next_cursor
        if cursor is None:
            return


def each_run(ask: Callable[[str | None], Call[views.RunPage]]) -> Stream[views.RunView]:
    cursor = None
    while True:
        page: views.RunPage = yield ask(cursor)
        for run in page.runs:
            yield Give(run)
        cursor = page.next_cursor
        if cursor is None:
            return


def each_entry(job_id: Identity, filters: Mapping[str, Any]) -> Stream[views.HistoryEntryView]:
    cursor = None
    while True:
        page: views.HistoryPage = yield calls.job_history(job_id, filters, cursor)
        for entry in page.entries:
            yield Give(entry)
        cursor = page.next_cursor
        if cursor is None:
            return


def each_pause(filters: Mapping[str, Any]) -> Stream[views.PauseView]:
    cursor = None
    while True:
        page: views.PausePage = yield calls.pauses(filters, cursor)
        for pause in page.pauses:
            yield Give(pause)
        cursor = page.next_cursor
        if cursor is None:
            return


def each_backfill(filters: Mapping[str, Any]) -> Stream[planning.BackfillView]:
    cursor = None
    while True:
        page: planning.BackfillPage = yield planning.list_backfills(filters, cursor)
        for backfill in page.backfills:
            yield Give(backfill)
        cursor = page.next_cursor
        if cursor is None:
            return


def follow_backfill(backfill_id: Identity) -> Stream[planning.BackfillView]:
    """How it stands, again and again, until it is over."""
    rhythm = _Rhythm()
    while True:
        backfill: planning.BackfillView = yield from _patiently(planning.get_backfill(backfill_id), rhythm)
        yield Give(backfill)
        if backfill.is_over:
            return
        yield rhythm.pause()


def submit(call: Call[T], monotonic: Callable[[], float]) -> Script[T]:
    """Sends a keyed call again when its answer was lost or the server was busy: however often it arrives, it is carried
    out once. A server that was not there in the first place is told at once."""
    deadline: float | None = None
    rhythm = _Rhythm()
    while True:
        try:
            answer: T = yield call
            return answer
        except HourhandError as error:
            if not call.is_keyed or not _may_pass(error):
                raise
            if deadline is None:
                if isinstance(error, ServerUnreachable) and not isinstance(error, AnswerLost):
                    raise
                deadline = monotonic() + RESUBMIT_SECONDS
            elif monotonic() >= deadline:
                raise
            wait = _polite(rhythm.pause(), error)
        yield wait


def log_lines(
    run_id: Identity, after: str | None, search: Mapping[str, Any] | None = None
) -> Stream[views.LogLineView]:
    """Every line there is by now, or every one that is looked for."""
    while True:
        page: views.LogPage = yield calls.run_logs(run_id, after, LOG_PAGE_LINES, search)
        for line in page.lines:
            yield Give(line)
        after = page.next or after
        if not page.more:
            return


def job_log_lines(job_id: Identity, search: Mapping[str, Any]) -> Stream[views.JobLogMatch]:
    """Every line of a job's runs that is looked for, newest run first."""
    cursor = None
    while True:
        page: views.JobLogMatches = yield calls.search_job_logs(job_id, search, cursor)
        for match in page.matches:
            yield Give(match)
        cursor = page.next_cursor
        if cursor is None:
            return


def follow_logs(run_id: Identity, after: str | None) -> Stream[views.LogLineView]:
    """Every line as it comes, until the run has ended and nothing follows.

    By a stream of events; where there is none, or something in between holds it back, by asking again and again. A
    stream that breaks off is gone on with behind the last line that came."""
    rhythm = _Rhythm()
    deaf = 0
    """How many streams in a row have said nothing."""
    while True:
        if deaf < STREAMS_TRIED_MAX:
            deaf += 1
            try:
                ear: Ear = yield Listen(calls.log_stream(run_id, after))
                while (heard := (yield Hear(ear))) is not None:
                    deaf, rhythm.silent_seconds = 0, 0.0
                    if heard.event == "end":
                        return
                    if heard.event == "lines":
                        page = calls.log_page(heard.data.encode())
                        after = heard.id or page.next or after
                        for line in page.lines:
                            yield Give(line)
            except HourhandError:
                pass  # the page below tells what is wrong, or that it has passed
        page = yield from _patiently(calls.run_logs(run_id, after, LOG_PAGE_LINES), rhythm)
        for line in page.lines:
            yield Give(line)
        after = page.next or after
        if page.ended:
            return
        if page.lines:
            rhythm.restart()
        if not page.more:
            yield rhythm.pause()


def watch_run(
    run_id: Identity, timeout_seconds: float | None, monotonic: Callable[[], float]
) -> Stream[views.RunDetailView]:
    """How it stands, again and again, until it is final. That is the last item."""
    yield from _watched(run_id, timeout_seconds, monotonic, gives=True)


def wait_for_run(
    run_id: Identity, timeout_seconds: float | None, monotonic: Callable[[], float]
) -> Script[views.RunDetailView]:
    return (yield from _watched(run_id, timeout_seconds, monotonic, gives=False))


def _watched(
    run_id: Identity, timeout_seconds: float | None, monotonic: Callable[[], float], gives: bool
) -> Script[views.RunDetailView]:
    deadline = None if timeout_seconds is None else monotonic() + timeout_seconds
    rhythm = _Rhythm()
    while True:
        run: views.RunDetailView = yield from _patiently(calls.get_run(run_id), rhythm)
        if gives:
            yield Give(run)
        if run.is_final:
            return run
        if deadline is not None and monotonic() >= deadline:
            assert timeout_seconds is not None
            raise WaitTimedOut(run.run_id, run.status, timeout_seconds)
        yield rhythm.pause()


def wait_while_waiting(
    run_id: Identity, timeout_seconds: float, monotonic: Callable[[], float]
) -> Script[views.RunDetailView]:
    """Until somebody has the run, or the time is over."""
    deadline = monotonic() + timeout_seconds
    rhythm = _Rhythm()
    while True:
        run: views.RunDetailView = yield from _patiently(calls.get_run(run_id), rhythm)
        if not run.waits or monotonic() >= deadline:
            return run
        yield rhythm.pause()


def wait_until_drained(node_id: int) -> Script[views.NodeDetailView]:
    """Until a node that was told to drain has nothing left, or has ended; or is a scheduler that nobody can relieve."""
    rhythm = _Rhythm()
    while True:
        node: views.NodeDetailView = yield from _patiently(calls.get_node(node_id), rhythm)
        if node.state == NodeState.DRAINED or not node.is_present or node.orders != Orders.DRAIN:
            return node
        if node.shards:
            others: list[views.NodeDetailView] = yield from _patiently(calls.nodes(), rhythm)
            if not any(each.role == node.role and each.state == NodeState.WORKING for each in others):
                return node
        yield rhythm.pause()


def wait_for_start(job_id: Identity) -> Script[views.RunView]:
    """The first run a job has, as soon as there is one."""
    rhythm = _Rhythm()
    while True:
        status: views.JobStatusView = yield from _patiently(calls.job_status(job_id), rhythm)
        if status.latest_run is not None:
            return status.latest_run
        if status.is_final:
            raise JobEndedWithoutRun(status.job_id, status.status)
        yield rhythm.pause()


def wait_for_job(
    job_id: Identity, timeout_seconds: float | None, monotonic: Callable[[], float]
) -> Script[views.RunDetailView]:
    run = yield from wait_for_start(job_id)
    return (yield from wait_for_run(run.run_id, timeout_seconds, monotonic))


class _Rhythm:
    """How long to wait before asking again, and how long nothing but errors has come."""

    def __init__(self) -> None:
        self.seconds = FIRST_WAIT_SECONDS
        self.silent_seconds: float | None = None
        """None until the server has answered once: a wrong address must be told at once."""

    def pause(self) -> Wait:
        wait = Wait(self.seconds)
        self.seconds = min(self.seconds * 1.5, LONGEST_WAIT_SECONDS)
        return wait

    def restart(self) -> None:
        self.seconds = FIRST_WAIT_SECONDS


def _patiently(call: Call[T], rhythm: _Rhythm) -> Script[T]:
    """Asks until there is an answer; a server that is away for a moment does not end a watch that had begun."""
    while True:
        try:
            answer: T = yield call
        except HourhandError as error:
            if rhythm.silent_seconds is None or rhythm.silent_seconds >= PATIENCE_SECONDS or not _may_pass(error):
                raise
            wait = rhythm.pause()
            rhythm.silent_seconds += wait.seconds
            yield wait
        else:
            rhythm.silent_seconds = 0.0
            return answer


def _polite(wait: Wait, error: HourhandError) -> Wait:
    """The wait that the server asks for, as far as that is bearable."""
    asked = error.retry_after_seconds if isinstance(error, ApiProblem) else None
    return wait if asked is None else Wait(max(wait.seconds, min(asked, LONGEST_WAIT_SECONDS)))


def _may_pass(error: HourhandError) -> bool:
    return isinstance(error, ServerUnreachable) or (isinstance(error, ApiProblem) and error.is_transient)
