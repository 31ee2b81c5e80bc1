"""/api/v1/runs/{run_id}/explain: why a run waits, where it is, why it ended so."""

from hourhand.api.answers import Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.model.explain import Explanation
from hourhand.operations.explain import ExplainOperations


class ExplainRoutes:
    def __init__(self, explain: ExplainOperations) -> None:
        self._explain = explain

    def endpoints(self) -> list[Endpoint]:
        path = "/api/v1/runs/{run_id}/explain"
        return [Endpoint("GET", path, self.explain, "runs", "Why a run waits, or ended as it did", Explanation)]

    async def explain(self, call: Call) -> Answer:
        return json_answer(await self._explain.run(call.caller, call.id("run_id")))
