"""What somebody outside may ask who was given the right to say how an attempt ended."""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.callback import RUNNING, STATUSES, token_digest
from hourhand.model.errors import BodyTooLarge, Conflict, Fault, InvalidFields, Unauthenticated
from hourhand.model.progress import Progress, tidy
from hourhand.ports.callback_stores import CallbackAnswers, FoundCallback
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.progress_stores import ProgressStore, Told

RESULT_BYTES_MAX: Final = 256 * 1024
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class CallbackProgress(msgspec.Struct, forbid_unknown_fields=True):
    percent: float | None = None
    message: str = ""


class CallbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    status: str
    result: Any = None
    error: str | None = None
    retry: bool = True
    progress: CallbackProgress | None = None


class CallbackOperations:
    def __init__(
        self, callbacks: CallbackAnswers, progress: ProgressStore, bus: EventBus, now: Callable[[], datetime]
    ) -> None:
        self._callbacks = callbacks
        self._progress = progress
        self._bus = bus
        self._now = now

    async def say(self, run_id: UUID, token: str, request: CallbackRequest) -> bool:
        """Takes what is said of an attempt; False when the same was said before. Raises Unauthenticated for a token
        that is not this run's, and Conflict when the attempt has the run no more or something else was said."""
        digest = token_digest(token)
        found = await self._callbacks.find_callback(run_id, digest)
        if found is None:
            raise Unauthenticated("this token is not one for a callback of this run")
        faults = faults_of_callback(request)
        if faults:
            raise InvalidFields(faults)
        said = {"status": request.status, "result": request.result, "error": request.error, "retry": request.retry}
        if len(_encode(said)) > RESULT_BYTES_MAX:
            raise BodyTooLarge(RESULT_BYTES_MAX)
        if request.status == RUNNING:
            _refuse_stale(found)
            await self._tell(run_id, found.fence, request.progress)
            return True
        said_digest = hashlib.sha256(_encode(said)).digest()
        if await self._callbacks.answer_callback(run_id, digest, said, said_digest):
            self._bus.publish(Topic.CALLBACKS)
            return True
        found = await self._callbacks.find_callback(run_id, digest) or found  # somebody else may have said it just now
        if found.said_digest == said_digest:
            return False
        if found.said_digest is not None:
            raise Conflict("callback-answered", "how this attempt ended was said already, and otherwise")
        _refuse_stale(found)
        raise Conflict("busy", "the run was just changing; say it once more")

    async def _tell(self, run_id: UUID, fence: int, progress: CallbackProgress | None) -> None:
        if progress is not None:
            said = Progress(*tidy(progress.percent, progress.message), self._now())
            await self._progress.write_progress([Told(run_id, fence, said)])


def faults_of_callback(request: CallbackRequest) -> list[Fault]:
    faults = []
    if request.status not in STATUSES:
        faults.append(Fault("/status", "unknown-value", "says how the attempt ended", None, STATUSES))
    if b"\\u0000" in _encode(request):
        faults.append(Fault("/result", "invalid-unicode", "the character NUL cannot be stored"))
    return faults


def _refuse_stale(found: FoundCallback) -> None:
    if found.said_digest is not None:
        raise Conflict("callback-answered", "how this attempt ended was said already")
    if not found.current:
        message = "the run has ended, is being cancelled, or was given to another attempt; this one's work is in vain"
        raise Conflict("stale-lease", message)
