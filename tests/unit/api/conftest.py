from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from api_fakes import TOKEN, FakeAccess, FakeCluster, FakeJobs, FakeRuns

from hourhand.api.app import ApiOperations, ApiSettings, build_app


@pytest.fixture
def jobs() -> FakeJobs:
    return FakeJobs()


@pytest.fixture
def runs() -> FakeRuns:
    return FakeRuns()


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
def operations(jobs: Any, runs: Any, cluster: Any, access: Any) -> ApiOperations:
    return ApiOperations(jobs, runs, cluster, access)


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
