"""What an executor and its worker processes say to each other.

A frame is a length, a tag and a body. The executor sends one `Setup`, then one `Call` at a time; the worker
answers with `READY` or `BROKEN` once, then with any number of `LOG` and `PROGRESS` frames, perhaps an `OUTPUTS` that
says that there is a folder with files, and one `ANSWER` per call.
JSON, not pickle: neither side trusts the other with code.
"""

import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.job_kinds.answers import succeeded_with
from hourhand.model.outcome import NOTHING_SAID, Failed, Snoozed, Succeeded
from hourhand.model.states import Reason

READY: Final = ord("R")
BROKEN: Final = ord("B")
LOG: Final = ord("L")
PROGRESS: Final = ord("P")
ANSWER: Final = ord("A")
OUTPUTS: Final = ord("O")
CALL: Final = ord("C")

HEAD: Final = struct.Struct(">IB")
NOTHING_FRAME: Final = HEAD.pack(0, ANSWER)
"""The answer of a handler that ended well and returned nothing: by far the most frequent."""


class Setup(msgspec.Struct, array_like=True):
    modules: tuple[str, ...]
    output_room: str
    """Where handlers that leave files get a folder."""


class Call(msgspec.Struct, array_like=True):
    handler: str
    run_id: UUID
    job_id: UUID
    namespace: str
    job_name: str
    payload: Mapping[str, Any]
    attempt: int
    fence: int
    scheduled_for: datetime
    timeout_seconds: float | None
    secrets: Mapping[str, bytes] = {}
    """As bytes: a value need not be text."""
    index: int | None = None
    total: int | None = None


class Answer(msgspec.Struct, array_like=True):
    reason: Reason | None
    """None when the handler ended well."""
    error: str = ""
    retryable: bool = True
    retry_after_seconds: float | None = None
    """Of a failure, or of a snooze."""
    result: msgspec.Raw = msgspec.Raw(b"null")
    tags: tuple[str, ...] = ()


encode = msgspec.json.Encoder().encode
decode_setup = msgspec.json.Decoder(Setup).decode
decode_call = msgspec.json.Decoder(Call).decode
decode_progress = msgspec.json.Decoder(tuple[float | None, str]).decode
_decode_answer = msgspec.json.Decoder(Answer).decode


def frame(tag: int, body: bytes) -> bytes:
    return HEAD.pack(len(body), tag) + body


def answer_frame(outcome: bytes | Failed | Snoozed) -> bytes:
    """The outcome as the worker sends it; a success is its encoded result."""
    match outcome:
        case Failed():
            answer = Answer(outcome.reason, _sendable(outcome.error), outcome.retryable, outcome.retry_after_seconds)
            answer.tags = outcome.tags
        case Snoozed():
            answer = Answer(Reason.SNOOZED, _sendable(outcome.message), retry_after_seconds=outcome.seconds)
        case _:
            answer = Answer(None, result=msgspec.Raw(outcome))
    return frame(ANSWER, encode(answer))


def progress_frame(percent: float | None, message: str) -> bytes:
    return frame(PROGRESS, encode((percent, _sendable(message))))


def _sendable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()  # a lone surrogate would not survive the way


def outcome_in(body: bytes) -> Succeeded | Failed | Snoozed:
    if not body:
        return NOTHING_SAID
    answer = _decode_answer(body)
    if answer.reason is None:
        return succeeded_with(bytes(answer.result))
    if answer.reason is Reason.SNOOZED:
        return Snoozed(answer.retry_after_seconds or 0.0, answer.error)
    return Failed(answer.reason, answer.error, answer.retryable, answer.retry_after_seconds, tags=answer.tags)


class FrameBuffer:
    """Bytes as they arrive, frames as they are complete."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> None:
        self._data = self._data + data if self._data else data

    def next(self) -> tuple[int, bytes] | None:
        data = self._data
        if len(data) < HEAD.size:
            return None
        length, tag = HEAD.unpack_from(data)
        end = HEAD.size + length
        if len(data) < end:
            return None
        self._data = data[end:]
        return tag, data[HEAD.size : end]
