"""/api/v1/pauses, and the verbs pause and resume of labels, namespaces and the cluster."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.decoding import decode_optional_body, read_optional_body
from hourhand.api.endpoints import Call, Endpoint, Handler
from hourhand.api.faults import all_faults
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter
from hourhand.model.pauses import PauseScope
from hourhand.operations.pauses import PauseDone, PauseOperations, PauseStatus, ResumeDone
from hourhand.operations.requests import PauseRequest, ResumeRequest

_LABEL: Final = "/api/v1/labels/{label}"
_NAMESPACE: Final = "/api/v1/namespaces/{name}"
_CLUSTER: Final = "/api/v1/cluster"


class PauseListView(msgspec.Struct):
    pauses: Sequence[PauseStatus]
    next_cursor: str | None


class PauseRoutes:
    def __init__(self, pauses: PauseOperations) -> None:
        self._pauses = pauses

    def endpoints(self) -> list[Endpoint]:
        over = Parameter("all", "Also those that are over.", {"type": "boolean"})
        return [
            Endpoint(
                "GET", "/api/v1/pauses", self.list_pauses, "pauses", "Pauses of many jobs, newest first", PauseListView,
                parameters=(over, limit_parameter(50, 500), CURSOR),
            ),
            *_verbs(_LABEL, self.pause_label, self.resume_label, "the jobs with a label"),
            *_verbs(_NAMESPACE, self.pause_namespace, self.resume_namespace, "the jobs of a namespace"),
            *_verbs(_CLUSTER, self.pause_cluster, self.resume_cluster, "all jobs"),
        ]  # fmt: skip

    async def list_pauses(self, call: Call) -> Answer:
        bound_to = f"pauses {call.caller.namespace} {call.query.filters('cursor', 'limit', 'namespace')}"
        cursor = read_cursor(call.query.text("cursor"), bound_to)
        before = None if cursor is None else cursor.int
        limit = call.query.integer("limit", 50, 1, 500)
        page = await self._pauses.list(call.caller, call.query.text("all") == "true", before, limit)
        following = None if page.next_before is None else make_cursor(UUID(int=page.next_before), bound_to)
        return json_answer(PauseListView(page.pauses, following))

    async def pause_label(self, call: Call) -> Answer:
        return await self._pause(call, PauseScope.LABEL, call.path["label"])

    async def resume_label(self, call: Call) -> Answer:
        return await self._resume(call, PauseScope.LABEL, call.path["label"])

    async def pause_namespace(self, call: Call) -> Answer:
        return await self._pause(call, PauseScope.NAMESPACE, call.path["name"])

    async def resume_namespace(self, call: Call) -> Answer:
        return await self._resume(call, PauseScope.NAMESPACE, call.path["name"])

    async def pause_cluster(self, call: Call) -> Answer:
        return await self._pause(call, PauseScope.CLUSTER, "")

    async def resume_cluster(self, call: Call) -> Answer:
        return await self._resume(call, PauseScope.CLUSTER, "")

    async def _pause(self, call: Call, scope: PauseScope, name: str) -> Answer:
        request, form = read_optional_body(call.body, PauseRequest)
        if form:
            raise all_faults(form, list(self._pauses.faults_of_pause(request)))
        return json_answer(await self._pauses.pause(call.caller, scope, name, request))

    async def _resume(self, call: Call, scope: PauseScope, name: str) -> Answer:
        request = decode_optional_body(call.body, ResumeRequest)
        return json_answer(await self._pauses.resume(call.caller, scope, name, request))


def _verbs(path: str, pause: Handler, resume: Handler, what: str) -> list[Endpoint]:
    tag = "pauses"
    return [
        Endpoint(
            "POST", path + "/pause", pause, tag, f"Make no new runs of {what}", PauseDone, 200, PauseRequest,
            body_required=False,
        ),
        Endpoint(
            "POST", path + "/resume", resume, tag, f"Make runs of {what} again", ResumeDone, 200, ResumeRequest,
            body_required=False,
        ),
    ]  # fmt: skip
