"""What Hourhand and the executable of a plugin say to each other: one JSON object per line. Pure.

What an executable prints can be four things: a line for the log, progress, a result, a failure. Whatever else it prints
is text for the log; nothing it says can name a run, a state or a time.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final

import msgspec

from hourhand.job_kinds.plugin_schema import schema_faults
from hourhand.model.errors import Fault
from hourhand.model.secret_refs import secret_bytes
from hourhand.ports.job_kind import Task

API_VERSION: Final = 1
LINE_BYTES_MAX: Final = 1024 * 1024
"""Longer lines are cut, and so are no messages. Of each attempt one may be in memory."""
_MESSAGE_CHARS_MAX: Final = 4000


@dataclass(frozen=True, slots=True)
class Description:
    """How a plugin has introduced itself."""

    schema: Mapping[str, Any]


class HelloFault(Exception):
    """The answer to `hello` is none that can be used. `faults`: of its schema, if that is why."""

    def __init__(self, message: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(message)
        self.faults = list(faults)


@dataclass(frozen=True, slots=True)
class Log:
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    percent: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    value: Any


@dataclass(frozen=True, slots=True)
class Fail:
    message: str
    retry: bool
    retry_after: float | None


Message = Log | Progress | Result | Fail


def hello_request() -> str:
    return json.dumps({"type": "hello", "api_version": API_VERSION}) + "\n"


def run_request(task: Task, payload: Mapping[str, Any]) -> str:
    """What an executable is told of its attempt."""
    return (
        json.dumps(
            {
                "type": "run",
                "api_version": API_VERSION,
                "payload": payload,
                "secrets": {name: _told_secret(value) for name, value in task.secrets.items()},
                "run_id": str(task.run_id),
                "job_id": str(task.job_id),
                "job_name": task.job_name,
                "namespace": task.namespace,
                "attempt": task.attempt,
                "fence": task.fence,
                "scheduled_time": task.scheduled_for.astimezone(UTC).isoformat().replace("+00:00", "Z"),
                "timeout_seconds": task.timeout_seconds,
            }
        )
        + "\n"
    )


def _told_secret(value: str) -> str | dict[str, str]:
    """As text, or where it is none, in a form that JSON can carry."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return {"base64": base64.b64encode(secret_bytes(value)).decode()}
    return value


def read_hello(text: str) -> Description:
    """Reads the first line of the answer. Raises HelloFault."""
    line = text.partition("\n")[0]
    try:
        said = json.loads(line)
    except ValueError:
        raise HelloFault(f"its answer to hello is not JSON: {line[:200]!r}") from None
    if not isinstance(said, dict) or said.get("type") != "hello":
        raise HelloFault('its answer to hello must be an object with "type": "hello"')
    version = said.get("api_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise HelloFault("its answer to hello lacks api_version")
    if version > API_VERSION:
        raise HelloFault(f"it speaks version {version} of the protocol; this program knows {API_VERSION}: upgrade it")
    schema = said.get("schema", {})
    faults = schema_faults(schema)
    if faults:
        raise HelloFault("; ".join(fault.message for fault in faults[:5]), faults[:5])
    return Description(schema)


def read_message(line: str) -> Message | str:
    """A message, or in words why the line is none."""
    try:
        # Not the standard library's: what that takes for JSON cannot all be stored, such as NaN and half a character.
        said = msgspec.json.decode(line)
    except (ValueError, RecursionError):  # a fault that msgspec finds is a ValueError
        return "is not JSON, or nested too deeply"
    if not isinstance(said, dict):
        return "is not an object"
    match said:
        case {"type": "log", "message": str(message)}:
            return Log(message)
        case {"type": "progress"}:
            return _progress(said)
        case {"type": "result"}:
            return Result(said.get("value"))
        case {"type": "fail", "message": str(message)}:
            retry, after = said.get("retry", True), said.get("retry_after")
            if (
                not isinstance(retry, bool)
                or not (after is None or _is_number(after))
                or (after is not None and after < 0)
            ):
                return "has a retry that is not true or false, or a retry_after that is no number of seconds"
            return Fail(message[:_MESSAGE_CHARS_MAX], retry, after)
        case {"type": str(kind)}:
            return f"is no message: there is no type {kind[:40]!r}, or a field of it is missing"
        case _:
            return "has no type"


def _progress(said: Mapping[str, Any]) -> Progress | str:
    percent, message = said.get("percent"), said.get("message", "")
    if not isinstance(message, str) or not (percent is None or _is_number(percent)):
        return "has a percent that is no number, or a message that is no text"
    # Compared before it becomes a float: a whole number may be larger than any of these.
    return Progress(None if percent is None else float(min(100, max(0, percent))), message[:_MESSAGE_CHARS_MAX])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # noqa: PLR0124 - not nan
