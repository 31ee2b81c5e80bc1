"""Worker processes for synchronous handlers: started when needed, replaced when they had to be killed.

Calls wait in one line and a worker that answers is given the next call in the same turn of the event loop.
Workers are started two at a time at most, however many calls wait: a burst of runs must not become a burst
of starting interpreters.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hourhand.job_kinds import worker_protocol as protocol
from hourhand.job_kinds.child import signal_name, to_the_end
from hourhand.job_kinds.output_folders import OutputFolders
from hourhand.job_kinds.worker import PendingCall, Worker, WorkerNotStarted
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.retry import exit_tags, signal_tags
from hourhand.model.secret_refs import secret_bytes
from hourhand.model.states import Reason
from hourhand.ports.job_kind import Task

_STARTS_AT_ONCE: Final = 2
_PAUSE_AFTER_FAILED_START_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class WorkerPoolSettings:
    modules: tuple[str, ...] = ()
    """The modules whose handlers the workers know; the executor's own list."""
    processes_max: int = 8
    """Synchronous handlers that can run at once; each takes the memory of a Python process."""
    processes_warm: int = 1
    """Workers kept when nothing is to be done; without one the next run waits for an interpreter to start."""
    idle_seconds: float = 60.0
    """How long a worker above the warm ones is kept without work."""
    start_seconds_max: float = 60.0
    """How long importing the handler modules may take before the worker is given up."""
    grace_seconds: float = 10.0
    """How long a cancelled handler may take to end by itself before its process is killed."""
    work_root: str | None = None
    """Where handlers get folders for the files that they leave."""


class WorkerPool:
    def __init__(self, settings: WorkerPoolSettings, outputs: OutputFolders | None = None) -> None:
        assert settings.processes_max >= 1
        self._outputs = outputs
        self._settings = settings
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[PendingCall] = deque()
        self._starting = 0
        self._start_not_before = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_open = False

    async def open(self) -> None:
        """Starts the warm workers. Raises BadConfiguration when they cannot import the handlers."""
        self._is_open = True
        try:
            for _ in range(min(self._settings.processes_warm, self._settings.processes_max)):
                self._starting += 1
                await self._start_worker()
        except WorkerNotStarted as error:
            await self.close()
            raise BadConfiguration(str(error).splitlines()) from None
        self._spawn(self._end_idle_workers())

    async def close(self) -> None:
        self._is_open = False
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._end(worker, grace_seconds=0.0) for worker in list(self._workers)))

    @property
    def worker_pids(self) -> list[int]:
        return sorted(worker.pid for worker in self._workers)

    async def run(self, task: Task, handler: str) -> Outcome:
        """Runs one synchronous handler to its end. When cancelled, its process is gone before this returns."""
        try:
            frame = _call_frame(task, handler)
        except Exception as error:
            return Failed(Reason.BAD_ARGUMENTS, f"the payload cannot be sent to a worker: {error}", retryable=False)
        call = PendingCall(task, frame, asyncio.get_running_loop().create_future())
        if self._idle:
            self._idle.pop().start(call)
        else:
            self._waiting.append(call)
            self._grow()
        try:
            outcome = await call.outcome
        except asyncio.CancelledError:
            await self._abandon(call)
            if call.has_outputs and self._outputs is not None:
                await self._outputs.drop(task)
            raise
        if call.has_outputs and self._outputs is not None:
            await self._outputs.keep(task)
        return outcome

    async def _abandon(self, call: PendingCall) -> None:
        worker = call.worker
        if worker is None:
            self._waiting.remove(call)
        elif worker.call is not call:
            return  # it has answered and is busy with somebody else's run
        elif worker.is_ending:
            await to_the_end(lambda _: worker.ended())
        else:
            worker.is_ending = True  # at once: an answer that arrives now must not bring it another run
            await to_the_end(partial(self._end, worker, self._settings.grace_seconds))

    def _take_next(self, worker: Worker) -> None:
        """Called the moment a worker is free."""
        if worker.is_ending:
            return
        if self._waiting:
            worker.start(self._waiting.popleft())
        else:
            worker.idle_since = asyncio.get_running_loop().time()
            self._idle.append(worker)

    def _grow(self) -> None:
        """Starts workers for those that wait, within the limits."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._start_not_before or not self._is_open:
            return
        while (
            self._starting < min(_STARTS_AT_ONCE, len(self._waiting))
            and len(self._workers) + self._starting < self._settings.processes_max
        ):
            self._starting += 1
            self._spawn(self._start_for_waiting())

    async def _start_for_waiting(self) -> None:
        try:
            await self._start_worker()
        except WorkerNotStarted as error:
            loop = asyncio.get_running_loop()
            self._start_not_before = loop.time() + _PAUSE_AFTER_FAILED_START_SECONDS
            loop.call_later(_PAUSE_AFTER_FAILED_START_SECONDS, self._grow)
            if not self._workers:  # nobody is left who could take them: better an answer now than a wait for ever
                self._refuse_waiting(str(error))
        self._grow()

    async def _start_worker(self) -> None:
        """Adds a worker. The caller has counted it as starting already."""
        worker: Worker | None = None
        try:
            worker = Worker(self._take_next)
            await worker.make_ready(
                self._settings.modules, self._outputs.room if self._outputs else "", self._settings.start_seconds_max
            )
        except BaseException as error:
            if worker is not None:
                await to_the_end(partial(worker.end, 0.0))
            if isinstance(error, OSError):
                raise WorkerNotStarted(f"a worker process could not be started: {error}") from None
            raise
        finally:
            self._starting -= 1
        self._workers.add(worker)
        self._spawn(self._bury(worker))
        self._take_next(worker)

    async def _bury(self, worker: Worker) -> None:
        """Waits for a worker that ends by itself, which only a handler can bring about."""
        await worker.exited()
        if worker.is_ending:
            return
        worker.is_ending = True
        call = worker.call
        code = await to_the_end(partial(self._end, worker, 0.0))
        if call is not None and not call.outcome.done():
            call.outcome.set_result(_death(code))

    async def _end(self, worker: Worker, grace_seconds: float, hurry: asyncio.Event | None = None) -> int:
        worker.is_ending = True
        if worker in self._idle:
            self._idle.remove(worker)
        code = await worker.end(grace_seconds, hurry or asyncio.Event())
        self._workers.discard(worker)
        self._grow()
        return code

    async def _end_idle_workers(self) -> None:
        """Ends workers that nobody needed for a while, the longest idle first."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._settings.idle_seconds / 2)
            oldest = loop.time() - self._settings.idle_seconds
            for worker in [worker for worker in self._idle if worker.idle_since <= oldest]:
                if len(self._workers) <= self._settings.processes_warm:
                    break
                await to_the_end(partial(self._end, worker, self._settings.grace_seconds))

    def _refuse_waiting(self, message: str) -> None:
        while self._waiting:
            call = self._waiting.popleft()
            if not call.outcome.done():
                call.outcome.set_result(Failed(Reason.NOT_STARTED, clipped(message)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _call_frame(task: Task, handler: str) -> bytes:
    call = protocol.Call(
        handler,
        task.run_id,
        task.job_id,
        task.namespace,
        task.job_name,
        task.payload,
        task.attempt,
        task.fence,
        task.scheduled_for,
        task.timeout_seconds,
        {name: secret_bytes(value) for name, value in task.secrets.items()} if task.secrets else {},
        task.index,
        task.total,
    )
    return protocol.frame(protocol.CALL, protocol.encode(call))


def _death(code: int) -> Failed:
    if code < 0:
        name = signal_name(-code)
        return Failed(Reason.SIGNAL, f"the handler's process was killed by {name}", tags=signal_tags(name))
    error = f"the handler's process ended with code {code} in the middle of the run"
    return Failed(Reason.EXIT_CODE, error, tags=exit_tags(code))
