"""One worker process, as the executor sees it.

Its socket and pipes are followed for as long as it lives. Whatever arrives while it works on a call belongs
to that call's run; what it prints between two calls belongs to nobody and is dropped.
"""

import asyncio
import os
import select
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hourhand.job_kinds import worker_protocol as protocol
from hourhand.job_kinds.child import Child, first_of
from hourhand.job_kinds.lines import LineReader, lines_of, many_of
from hourhand.model.outcome import Outcome
from hourhand.ports.job_kind import Task

WORKER_MARK: Final = "HOURHAND_WORKER_ID"
_RECEIVE_BYTES: Final = 65536
_DRAIN_SECONDS_MAX: Final = 1.0


class WorkerNotStarted(Exception):
    """A worker process could not make itself ready. The message says why, in one line."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A run on its way through the pool."""

    task: Task
    frame: bytes
    outcome: "asyncio.Future[Outcome]"
    worker: "Worker | None" = None
    has_outputs: bool = False
    """The handler has asked for a folder for its files."""


class Worker:
    def __init__(self, on_answer: Callable[["Worker"], None]) -> None:
        self.call: PendingCall | None = None
        self.idle_since = 0.0
        self.is_ending = False
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._ended = asyncio.Event()
        self._broken: str | None = None
        self._frames = protocol.FrameBuffer()
        self._unsent = memoryview(b"")
        # Started from the event loop's own thread: the worker asks the kernel to die with the thread that
        # started it, and a helper thread may end at any time.
        ours, theirs = socket.socketpair()
        mark = f"{WORKER_MARK}={uuid.uuid4().hex}"
        with theirs:
            self._process = _start_process(theirs, mark)
        ours.setblocking(False)
        self._socket = ours
        self._child = Child(self._process, (mark.encode(),))
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._readers = [
            LineReader(self._process.stdout.fileno(), "stdout", self._log),
            LineReader(self._process.stderr.fileno(), "stderr", self._log),
        ]
        self._printed = select.poll()
        for pipe in (self._process.stdout, self._process.stderr):
            self._printed.register(pipe.fileno(), select.POLLIN)
        self._loop.add_reader(ours.fileno(), self._receive)

    @property
    def pid(self) -> int:
        return self._child.pid

    async def make_ready(self, modules: Sequence[str], output_room: str, seconds_max: float) -> None:
        """Lets the worker import its handlers. Raises WorkerNotStarted; the caller ends the worker then."""
        self._send(protocol.frame(protocol.CALL, protocol.encode(protocol.Setup(tuple(modules), output_room))))
        try:
            async with asyncio.timeout(seconds_max):
                await first_of(self._ready.wait(), self._child.exited())
        except TimeoutError:
            raise WorkerNotStarted(f"a worker process was not ready after {seconds_max:g} seconds") from None
        if self._broken is not None:
            raise WorkerNotStarted(self._broken)
        if not self._ready.is_set():
            raise WorkerNotStarted("a worker process ended before it was ready")

    def start(self, call: PendingCall) -> None:
        """Hands a call over. Its future is resolved by the answer; the worker's end is noticed by the pool."""
        self.call = call
        call.worker = self
        self._send(call.frame)

    async def exited(self) -> None:
        await self._child.exited()

    async def end(self, grace_seconds: float, hurry: asyncio.Event) -> int:
        """Ends the process with everything it started and says its exit code."""
        self.is_ending = True
        code = await self._child.end(grace_seconds, hurry)
        for reader in self._readers:
            await reader.drain(_DRAIN_SECONDS_MAX)
            reader.close()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self._ended.set()
        return code

    async def ended(self) -> None:
        """Returns when an `end` that somebody else began is done."""
        await self._ended.wait()

    def _send(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the process is gone; its end is noticed by whoever waits for it
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._loop.add_writer(self._socket.fileno(), self._send_rest)

    def _send_rest(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket.fileno())
            return
        self._frames.feed(data)
        while (received := self._frames.next()) is not None:
            self._take(*received)

    def _take(self, tag: int, body: bytes) -> None:
        if tag == protocol.ANSWER:
            self._finish_call(protocol.outcome_in(body))
        elif tag == protocol.LOG:
            self._log("log", list(lines_of(body.decode("utf-8", "replace"))))
        elif tag == protocol.PROGRESS:
            if self.call is not None:
                self.call.task.progress(*protocol.decode_progress(body))
        elif tag == protocol.OUTPUTS and self.call is not None:
            self.call.has_outputs = True
        elif tag == protocol.READY:
            self._ready.set()
        elif tag == protocol.BROKEN:
            self._broken = body.decode("utf-8", "replace")
            self._ready.set()

    def _finish_call(self, outcome: Outcome) -> None:
        call = self.call
        if call is None or self.is_ending:
            return  # a cancelled run ends with its worker, whatever it still says
        # What the handler printed is in the pipes before its answer is in the socket. Most print nothing: one question.
        if self._printed.poll(0) or any(reader.has_rest for reader in self._readers):
            for reader in self._readers:
                reader.read_waiting()
        self.call = None
        if not call.outcome.done():
            call.outcome.set_result(outcome)
        self._on_answer(self)

    def _log(self, stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        return None if self.call is None else many_of(self.call.task.log)(stream, lines)


def _start_process(connection: socket.socket, mark: str) -> "subprocess.Popen[bytes]":
    name, _, value = mark.partition("=")
    path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # handlers must be found as we found them
    return subprocess.Popen(
        # -u: what a handler prints is in its log at once, in order. -P: the search path is ours exactly; without it the
        # current folder would come first.
        [sys.executable, "-u", "-P", "-m", f"{__package__}.worker_process", str(connection.fileno()), str(os.getpid())],
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, name: value},
        pass_fds=[connection.fileno()],
        start_new_session=True,
    )
