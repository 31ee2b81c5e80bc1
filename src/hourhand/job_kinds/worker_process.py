"""The process in which synchronous handlers run, one at a time: `python -m hourhand.job_kinds.worker_process`.

A handler that hangs, crashes or must be cancelled takes this process with it and nothing else. The
connection to the executor is a socket of its own, so that a handler may print whatever it likes. The process
never outlives its executor: the kernel kills it when the executor dies, and it ends when the socket closes.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, TextIO

from hourhand.job_kinds import worker_protocol as protocol
from hourhand.job_kinds.answers import encoded_result, outcome_raised
from hourhand.job_kinds.handlers import Context, HandlerRegistry, RunCancelled, load_handlers
from hourhand.job_kinds.output_folders import folder_for
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Failed
from hourhand.model.progress import tidy
from hourhand.model.secret_refs import SecretValues
from hourhand.model.states import Reason
from hourhand.ports.job_kind import Task

_RECEIVE_BYTES: Final = 65536
_PR_SET_PDEATHSIG: Final = 1
_PROGRESS_SECONDS: Final = 0.1
_NO_SECRETS: Final = SecretValues({})
_CANCELLED_EXIT_CODE: Final = 128 + signal.SIGTERM


def main() -> None:
    connection_fd, executor_pid = int(sys.argv[1]), int(sys.argv[2])
    _die_with(executor_pid)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    Worker(socket.socket(fileno=connection_fd)).serve()


def _die_with(executor_pid: int) -> None:
    """Asks the kernel to kill this process when the executor's thread that started it is gone."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != executor_pid:  # it died before the kernel knew
        os._exit(0)


class Stopping(asyncio.Event):
    """Remembers whether the handler looks at it: one that does is not interrupted, it ends by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.is_watched = False

    def is_set(self) -> bool:
        self.is_watched = True
        return super().is_set()


class Worker:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._frames = protocol.FrameBuffer()
        self._send_lock = threading.Lock()
        self._handlers = HandlerRegistry()
        self._stopping = Stopping()
        self._in_handler = False
        self._is_cancelled = False
        self._progress = _Progress(self._send)
        self._output_room = ""

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._on_terminate)
        setup = protocol.decode_setup(self._receive())
        try:
            self._output_room = setup.output_room
            self._handlers = load_handlers(setup.modules)
        except BadConfiguration as error:
            self._send(protocol.frame(protocol.BROKEN, str(error).encode("utf-8", "replace")))
            return
        self._send(protocol.frame(protocol.READY, b""))
        while True:
            answer = self._answer(self._receive())
            if self._is_cancelled:  # the handler ended in its own time; nobody waits for its answer
                self._leave()
            _flush(sys.stdout)
            _flush(sys.stderr)
            self._send(answer)

    def _answer(self, body: bytes) -> bytes:
        call = protocol.decode_call(body)
        handler = self._handlers.by_name.get(call.handler)
        if handler is None:
            message = f"handler {call.handler!r} is known to the executor but not to its worker processes"
            return protocol.answer_frame(Failed(Reason.UNKNOWN_HANDLER, message))
        self._stopping.is_watched = False
        self._progress.forget()
        try:
            self._in_handler = True
            value = handler.call(Context(self._task(call), self._make_folder if self._output_room else None))
            self._in_handler = False
        except RunCancelled:
            self._leave()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt: they are the handler's, not ours
            self._in_handler = False
            return protocol.answer_frame(outcome_raised(error))
        if value is None:
            return protocol.NOTHING_FRAME
        return protocol.answer_frame(encoded_result(value))

    def _task(self, call: protocol.Call) -> Task:
        return Task(
            run_id=call.run_id,
            job_id=call.job_id,
            namespace=call.namespace,
            job_name=call.job_name,
            kind="python",
            payload=call.payload,
            attempt=call.attempt,
            fence=call.fence,
            scheduled_for=call.scheduled_for,
            log=self._log,
            timeout_seconds=call.timeout_seconds,
            index=call.index,
            total=call.total,
            stopping=self._stopping.is_set,
            secrets=_secrets_in(call) if call.secrets else _NO_SECRETS,
            progress=self._progress.tell,
        )

    def _make_folder(self, task: Task) -> Path:
        folder = folder_for(self._output_room, task)
        self._send(protocol.frame(protocol.OUTPUTS, b""))  # before it is there: it is removed in any case
        folder.mkdir(mode=0o700)
        return folder

    def _log(self, stream: str, text: str) -> None:
        self._send(protocol.frame(protocol.LOG, text.encode("utf-8", "replace")))

    def _on_terminate(self, _number: int, _frame: FrameType | None) -> None:
        """The run is cancelled, or the worker is not needed any more."""
        if not self._in_handler:
            self._leave()
        self._is_cancelled = True
        self._stopping.set()
        if not self._stopping.is_watched:
            self._in_handler = False
            raise RunCancelled

    def _leave(self) -> NoReturn:
        _flush(sys.stdout)
        _flush(sys.stderr)
        os._exit(_CANCELLED_EXIT_CODE)  # without waiting for threads that the handler may have left

    def _receive(self) -> bytes:
        while (received := self._frames.next()) is None:
            data = self._connection.recv(_RECEIVE_BYTES)
            if not data:
                os._exit(0)  # the executor has let go of us
            self._frames.feed(data)
        return received[1]

    def _send(self, data: bytes) -> None:
        with self._send_lock:  # handlers may log from threads
            self._connection.sendall(data)


class _Progress:
    """Passes on how far a handler has come: at most ten times a second, and the newest word always."""

    def __init__(self, send: Callable[[bytes], None]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._sent_at = 0.0
        self._waiting: bytes | None = None
        self._timer: threading.Timer | None = None

    def tell(self, percent: float | None, message: str) -> None:
        frame = protocol.progress_frame(*tidy(percent, message))
        with self._lock:
            rest = self._sent_at + _PROGRESS_SECONDS - time.monotonic()
            if rest > 0:
                self._waiting = frame
                if self._timer is None:
                    self._timer = threading.Timer(rest, self._send_waiting)
                    self._timer.daemon = True
                    self._timer.start()
                return
            self._sent_at, self._waiting = time.monotonic(), None
            self._send(frame)

    def forget(self) -> None:
        """Another call begins: what the last one did not get rid of is nobody's."""
        if self._timer is not None:
            with self._lock:
                self._waiting = None

    def _send_waiting(self) -> None:
        with self._lock:
            frame, self._waiting, self._timer = self._waiting, None, None
            if frame is not None:
                self._sent_at = time.monotonic()
                self._send(frame)


def _secrets_in(call: protocol.Call) -> SecretValues:
    return SecretValues({name: value.decode("utf-8", "surrogateescape") for name, value in call.secrets.items()})


def _flush(stream: TextIO | Any) -> None:
    try:  # noqa: SIM105 - twice for every call, and costs nothing like this
        stream.flush()
    except (OSError, ValueError, AttributeError, RuntimeError):  # closed or replaced by the handler, or in use
        pass


if __name__ == "__main__":
    main()
