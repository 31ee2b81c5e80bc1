"""/api/v1/cluster and /api/v1/whoami: the state of the whole, and of the caller."""

from hourhand.api.answers import Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.views import WhoAmIView
from hourhand.operations.cluster import ClusterOperations
from hourhand.operations.requests import ClusterStatus


class ClusterRoutes:
    def __init__(self, cluster: ClusterOperations) -> None:
        self._cluster = cluster

    def endpoints(self) -> list[Endpoint]:
        tag = "cluster"
        return [
            Endpoint("GET", "/api/v1/cluster", self.status, tag, "Nodes, leader, counts", ClusterStatus),
            Endpoint("GET", "/api/v1/whoami", self.who_am_i, tag, "Whose token this is", WhoAmIView),
        ]

    async def status(self, call: Call) -> Answer:
        return json_answer(await self._cluster.status(call.caller))

    async def who_am_i(self, call: Call) -> Answer:
        return json_answer(WhoAmIView(call.caller.name, call.caller.namespace))
