from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from api_fakes import BOUND_TOKEN, TOKEN, FakeAccess, FakeCluster, FakeJobs, FakeLogs, FakeRuns
from calendar_fakes import FakeCalendarStore
from operator_fakes import (
    FakeBus,
    FakeClusterStore,
    FakeExplainStore,
    FakeLedgerStore,
    FakeNames,
    FakePauseStore,
    FakeQueueStore,
    FixedClock,
)

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.operations.calendars import CalendarOperations
from hourhand.operations.explain import ExplainOperations
from hourhand.operations.history import HistoryOperations
from hourhand.operations.log_source import LogSource
from hourhand.operations.log_watch import LogWatch
from hourhand.operations.logs import LogOperations
from hourhand.operations.nodes import NodeOperations
from hourhand.operations.pauses import PauseOperations
from hourhand.operations.previews import PreviewOperations
from hourhand.operations.queues import QueueOperations
from hourhand.operations.run_watch import RunWatch
from hourhand.runtime.bell import Bell


@pytest.fixture
def jobs() -> FakeJobs:
    return FakeJobs()


@pytest.fixture
def runs() -> FakeRuns:
    return FakeRuns()


@pytest.fixture
def logs(runs: FakeRuns) -> FakeLogs:
    return FakeLogs(runs)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def access() -> FakeAccess:
    return FakeAccess()


@pytest.fixture
def settings() -> ApiSettings:
    return ApiSettings(body_bytes_max=2000, batch_items_max=50, body_seconds_max=0.2)


@pytest.fixture
def bus() -> FakeBus:
    return FakeBus()


@pytest.fixture
def nodes() -> FakeClusterStore:
    return FakeClusterStore()


@pytest.fixture
def queues() -> FakeQueueStore:
    return FakeQueueStore()


@pytest.fixture
def pauses(queues: FakeQueueStore) -> FakePauseStore:
    return FakePauseStore(queues)


@pytest.fixture
def ledger() -> FakeLedgerStore:
    return FakeLedgerStore()


@pytest.fixture
def snapshots() -> FakeExplainStore:
    return FakeExplainStore()


not_asked: Any = None
"""Operations whose routes are tested with a real database elsewhere."""


@pytest.fixture
def calendars() -> FakeCalendarStore:
    return FakeCalendarStore()


class FakeGlances:
    """What is to be seen of live runs, look by look; the last look stays."""

    def __init__(self) -> None:
        self.looks: list[dict[Any, Any]] = [{}]
        self.at_the_last: Callable[[], None] = lambda: None

    async def glance_at_runs(self, run_ids: Any) -> dict[Any, Any]:
        if len(self.looks) > 1:
            return self.looks.pop(0)
        self.at_the_last()
        return self.looks[0]


@pytest.fixture
def glances() -> FakeGlances:
    return FakeGlances()


@pytest.fixture
def operations(
    jobs: Any,
    runs: Any,
    cluster: Any,
    access: Any,
    bus: Any,
    nodes: Any,
    queues: Any,
    snapshots: Any,
    pauses: Any,
    ledger: Any,
    calendars: Any,
    glances: Any,
    logs: Any,
) -> ApiOperations:
    return ApiOperations(
        jobs,
        runs,
        cluster,
        access,
        NodeOperations(nodes, bus),
        QueueOperations(queues, FakeNames(), bus, pauses, FixedClock()),
        ExplainOperations(snapshots),
        CalendarOperations(calendars, FixedClock()),
        PreviewOperations(calendars, FixedClock()),
        HistoryOperations(ledger, FixedClock()),
        PauseOperations(pauses, FakeNames(), FixedClock(), bus),
        backfills=not_asked,
        versions=not_asked,
        forecast=not_asked,
        secrets=not_asked,
        placing=not_asked,
        watch=RunWatch(glances, look_seconds=0.001),
        callbacks=not_asked,
        artifacts=not_asked,
        logs=LogOperations(runs, LogSource(logs), LogWatch(logs, Bell(), 0.01, 0.0)),
        run_files=not_asked,
    )


@pytest.fixture
def app(operations: ApiOperations, settings: ApiSettings) -> Any:
    return build_app(operations, settings)


@pytest.fixture
async def anonymous(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8780") as client:
        yield client


@pytest.fixture
async def api(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost:8780", headers=headers
    ) as client:
        yield client


@pytest.fixture
async def bound(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody whose token is bound to the namespace team-a."""
    headers = {"Authorization": f"Bearer {BOUND_TOKEN}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://localhost:8780", headers=headers
    ) as client:
        yield client
