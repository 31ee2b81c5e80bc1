"""/livez and /readyz, for load balancers and process managers. They tell nothing that a stranger may not know."""

from hourhand.api.answers import TEXT, Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.refusals import NotReady
from hourhand.api.views import ReadinessView
from hourhand.model.errors import WorldError
from hourhand.operations.cluster import ClusterOperations


class HealthRoutes:
    def __init__(self, cluster: ClusterOperations) -> None:
        self._cluster = cluster

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET", "/livez", self.alive, "health", "The process answers", media_types=("text/plain",), public=True
            ),
            Endpoint(
                "GET", "/readyz", self.ready, "health", "It can take work; 503 if not", ReadinessView, public=True
            ),
        ]

    async def alive(self, call: Call) -> Answer:
        return Answer(b"ok", 200, TEXT)

    async def ready(self, call: Call) -> Answer:
        try:
            checks = await self._cluster.readiness()
        except WorldError as away:
            # The code, not the message: the message may name hosts.
            checks = {"database": away.code}
        if any(found != "ok" for found in checks.values()):
            raise NotReady(checks)
        return json_answer(ReadinessView("ready", checks))
