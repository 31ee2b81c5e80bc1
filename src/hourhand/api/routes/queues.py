"""/api/v1/queues and /api/v1/namespaces: how full they are, pause and resume, limits and shares."""

from typing import Final

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.decoding import decode_optional_body, read_body, read_optional_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.operations.cluster_requests import NamespaceRequest, NamespaceStatus, QueueRequest, QueueStatus
from hourhand.operations.queues import QueueOperations
from hourhand.operations.requests import PauseRequest, ResumeRequest

BASE: Final = "/api/v1/queues"
_ONE: Final = BASE + "/{queue}"
_NAMESPACE: Final = "/api/v1/namespaces/{name}"


class QueueListView(msgspec.Struct):
    queues: list[QueueStatus]


class QueueRoutes:
    def __init__(self, queues: QueueOperations) -> None:
        self._queues = queues

    def endpoints(self) -> list[Endpoint]:
        tag = "queues"
        return [
            Endpoint("GET", BASE, self.list_queues, tag, "Every queue of the namespace", QueueListView),
            Endpoint("GET", _ONE, self.get, tag, "One queue", QueueStatus),
            Endpoint("PUT", _ONE, self.put, tag, "Limit it; what is not given stays", QueueStatus, 200, QueueRequest),
            Endpoint(
                "POST", _ONE + "/pause", self.pause, tag, "Start nothing of it; what runs goes on", QueueStatus, 200,
                PauseRequest, body_required=False,
            ),
            Endpoint(
                "POST", _ONE + "/resume", self.resume, tag, "Start its runs again", QueueStatus, 200, ResumeRequest,
                body_required=False,
            ),
            Endpoint("GET", _NAMESPACE, self.get_namespace, tag, "A namespace's limit and share", NamespaceStatus),
            Endpoint(
                "PUT", _NAMESPACE, self.put_namespace, tag, "Set them; what is not given stays", NamespaceStatus, 200,
                NamespaceRequest,
            ),
        ]  # fmt: skip

    async def list_queues(self, call: Call) -> Answer:
        return json_answer(QueueListView(list(await self._queues.list(call.caller))))

    async def get(self, call: Call) -> Answer:
        return json_answer(await self._queues.get(call.caller, call.path["queue"]))

    async def put(self, call: Call) -> Answer:
        request, form = read_body(call.body, QueueRequest)
        if form:
            raise all_faults(form, self._queues.faults_of_set(request))
        return json_answer(await self._queues.set(call.caller, call.path["queue"], request))

    async def pause(self, call: Call) -> Answer:
        request, form = read_optional_body(call.body, PauseRequest)
        if form:
            raise all_faults(form, self._queues.faults_of_pause(request))
        return json_answer(await self._queues.pause(call.caller, call.path["queue"], request))

    async def resume(self, call: Call) -> Answer:
        request = decode_optional_body(call.body, ResumeRequest)
        return json_answer(await self._queues.resume(call.caller, call.path["queue"], request))

    async def get_namespace(self, call: Call) -> Answer:
        return json_answer(await self._queues.namespace(call.caller, call.path["name"]))

    async def put_namespace(self, call: Call) -> Answer:
        request, form = read_body(call.body, NamespaceRequest)
        if form:
            raise all_faults(form, self._queues.faults_of_namespace(request))
        return json_answer(await self._queues.set_namespace(call.caller, call.path["name"], request))
