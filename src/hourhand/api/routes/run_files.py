"""/api/v1/runs/{run_id}/files and /result: what runs have left."""

import hashlib
from functools import partial
from typing import Any, Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from hourhand.api.answers import JSON, Answer, encode, json_answer
from hourhand.api.downloads import BYTES, download
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import Parameter
from hourhand.api.streaming import StreamAnswer, Streams
from hourhand.model.run_blobs import RunFile
from hourhand.operations.run_files import Kept, RunFileOperations

_RUN: Final = "/api/v1/runs/{run_id}"
_ATTEMPT_MAX: Final = 32_767
_ATTEMPT: Final = Parameter(
    "attempt",
    "What this attempt has left, instead of the last one.",
    {"type": "integer", "minimum": 1, "maximum": _ATTEMPT_MAX},
)


class RunFileView(msgspec.Struct):
    name: str
    """Its path in the output folder."""
    size: int
    digest: str
    """sha256:… of the content."""
    href: str
    """Where its content is."""


class RunFilesView(msgspec.Struct):
    run_id: UUID
    attempt: int
    files: list[RunFileView]


class RunFileRoutes:
    def __init__(self, files: RunFileOperations, streams: Streams) -> None:
        self._files = files
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        tag = "run files"
        return [
            Endpoint(
                "GET", _RUN + "/files", self.list_files, tag, "Files that a run has left", RunFilesView,
                parameters=(_ATTEMPT,),
            ),
            Endpoint(
                "GET", _RUN + "/files/{name}", self.get_file, tag, "The content of a file", parameters=(_ATTEMPT,),
                media_types=(BYTES,), tail=True,
                description="`name` is its path, with its slashes. Ranges, `If-None-Match` and `If-Range` are heeded.",
            ),
            Endpoint(
                "GET", _RUN + "/result", self.get_result, tag, "The whole result of a run, whatever its size", Any,
                description="Also where `result` is null because it is too large to stand there.",
            ),
        ]  # fmt: skip

    async def list_files(self, call: Call) -> Answer:
        found = await self._files.list(call.caller, call.id("run_id"), _attempt(call))
        views = [_view(found.run.run_id, found.attempt, found.run.attempt, file) for file in found.files]
        return json_answer(RunFilesView(found.run.run_id, found.attempt, views))

    async def get_file(self, call: Call) -> Answer | StreamAnswer:
        name = call.path["name"]
        kept = await self._files.find(call.caller, call.id("run_id"), name, _attempt(call))
        read = partial(self._files.read, kept)
        return await download(call, self._streams, kept.size, kept.digest, read, BYTES, name)

    async def get_result(self, call: Call) -> Answer | StreamAnswer:
        run_id = call.id("run_id")
        found = await self._files.result(call.caller, run_id)
        if not isinstance(found, Kept):
            content = encode(found)
            found = Kept("", len(content), hashlib.sha256(content).hexdigest())
            return Answer(content, 200, JSON, [(b"etag", f'"sha256:{found.digest}"'.encode())])
        read = partial(self._files.read, found)
        return await download(call, self._streams, found.size, found.digest, read, JSON, f"{run_id}.json")


def _attempt(call: Call) -> int | None:
    return call.query.integer("attempt", 1, 1, _ATTEMPT_MAX) if call.query.text("attempt") is not None else None


def _view(run_id: UUID, attempt: int, last_attempt: int, file: RunFile) -> RunFileView:
    href = f"{_RUN.format(run_id=run_id)}/files/{quote(file.name)}"
    if attempt != last_attempt:
        href += f"?attempt={attempt}"
    return RunFileView(file.name, file.size, f"sha256:{file.digest}", href)
