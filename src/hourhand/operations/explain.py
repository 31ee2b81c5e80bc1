"""What a caller may ask when a run does not do what was expected: why it waits, where it is, why it ended so."""

from uuid import UUID

from hourhand.model.errors import NotFound
from hourhand.model.explain import Explanation, explain
from hourhand.operations.requests import Caller
from hourhand.ports.operator_stores import ExplainStore


class ExplainOperations:
    def __init__(self, store: ExplainStore) -> None:
        self._store = store

    async def run(self, caller: Caller, run_id: UUID) -> Explanation:
        snapshot = await self._store.snapshot_of_run(caller.namespace_id, run_id)
        if snapshot is None:
            raise NotFound("run", run_id)
        return explain(snapshot)
