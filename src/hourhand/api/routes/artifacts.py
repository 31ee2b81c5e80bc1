"""/api/v1/artifacts: code that was uploaded, for script jobs to run."""

from typing import Final

import msgspec

from hourhand.api.answers import Answer, header, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.downloads import BYTES, download
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.multipart import FORM
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter
from hourhand.api.settings import ApiSettings
from hourhand.api.streaming import StreamAnswer, Streams
from hourhand.operations.artifacts import ArtifactOperations, ArtifactView

BASE: Final = "/api/v1/artifacts"
_ONE: Final = BASE + "/{artifact}"
_MEDIA: Final = (BYTES, "application/zip", "application/gzip", "application/x-gzip", "application/x-tar", FORM)
_NAME: Final = Parameter("name", "Only those of this name.")
_DIGEST: Final = Parameter("digest", "sha256:… that the content must have; else nothing is kept and the answer is 422.")
_SIGNATURE: Final = Parameter(
    "signature", "Ed25519, in base64, of the name and the digest; 403 when no key of kinds.artifact_keys has made it."
)


class ArtifactListView(msgspec.Struct):
    artifacts: list[ArtifactView]
    next_cursor: str | None = None


class ArtifactRoutes:
    def __init__(self, artifacts: ArtifactOperations, settings: ApiSettings, streams: Streams) -> None:
        self._artifacts = artifacts
        self._streams = streams
        self._bytes_max = settings.artifact_bytes_max

    def endpoints(self) -> list[Endpoint]:
        tag = "artifacts"
        return [
            Endpoint(
                "GET", BASE, self.list_artifacts, tag, "Uploaded code of the namespace, newest first", ArtifactListView,
                parameters=(limit_parameter(50, 500), CURSOR, _NAME),
            ),
            Endpoint(
                "PUT", _ONE, self.upload, tag, "Upload code under a name", ArtifactView, 201, bytes, body_media=_MEDIA,
                body_bytes_max=self._bytes_max, body_setting="api.artifact_bytes_max", streamed=True,
                parameters=(_DIGEST, _SIGNATURE),
            ),
            Endpoint("GET", _ONE, self.get, tag, "One artifact: by name, sha256:… or name@sha256:…", ArtifactView),
            Endpoint(
                "GET", _ONE + "/content", self.download, tag, "Its content", media_types=(BYTES,),
                description="Ranges, `If-None-Match` and `If-Range` are heeded.",
            ),
            Endpoint("DELETE", _ONE, self.delete, tag, "Delete an artifact that no job uses", ArtifactView),
        ]  # fmt: skip

    async def list_artifacts(self, call: Call) -> Answer:
        limit, name = call.query.integer("limit", 50, 1, 500), call.query.text("name")
        bound_to = f"{BASE} {call.caller.namespace_id} {name}"
        before = read_cursor(call.query.text("cursor"), bound_to)
        found = await self._artifacts.list(call.caller, name, before, limit + 1)
        more = make_cursor(found[limit - 1].artifact_id, bound_to) if len(found) > limit else None
        return json_answer(ArtifactListView(found[:limit], more))

    async def upload(self, call: Call) -> Answer:
        assert call.stream is not None, "the endpoint is streamed"
        digest, signature = call.query.text("digest"), call.query.text("signature")
        view = await self._artifacts.upload(call.caller, call.path["artifact"], digest, call.stream, signature)
        return json_answer(view, 201, _etag(view))

    async def get(self, call: Call) -> Answer:
        view = await self._artifacts.get(call.caller, call.path["artifact"])
        return json_answer(view, 200, _etag(view))

    async def download(self, call: Call) -> Answer | StreamAnswer:
        found = await self._artifacts.download(call.caller, call.path["artifact"])
        digest = found.view.digest.removeprefix("sha256:")
        return await download(call, self._streams, found.view.size, digest, found.read, BYTES, found.view.name)

    async def delete(self, call: Call) -> Answer:
        return json_answer(await self._artifacts.delete(call.caller, call.path["artifact"]))


def _etag(view: ArtifactView) -> list[tuple[bytes, bytes]]:
    return [header("etag", f'"{view.digest}"')]
