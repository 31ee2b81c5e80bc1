"""The routes of backfills, versions and the forecast on a real database: what is sent, answered, refused."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
from crew import FunctionKind, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, START, at, every, insert, new_job, rows

from hourhand.api.app import ApiOperations, ApiSettings, build_app
from hourhand.model.errors import Unauthenticated
from hourhand.model.policy import Overlap, Policy
from hourhand.operations.backfills import BackfillOperations
from hourhand.operations.forecast import ForecastOperations
from hourhand.operations.requests import Caller
from hourhand.operations.versions import VersionOperations
from hourhand.ports.event_bus import EventBus
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.backfiller import Backfiller
from hourhand.store.forecasts import Forecasts
from hourhand.wiring import Store

NOBODY: Any = None
KINDS: Any = {"number": FunctionKind(NOBODY)}
TOKEN = "hh_ada"
LONG_AGO = START - timedelta(days=400)


class OneCaller:
    async def authenticate(self, token: str, namespace: str | None) -> Caller:
        if token != TOKEN:
            raise Unauthenticated
        return Caller("ada", 1, "default")


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def operations(store: Store, clock: SetClock) -> ApiOperations:
    bus = cast("EventBus", NotedBus())
    ids = IdSource()
    return ApiOperations(
        jobs=NOBODY, runs=NOBODY, cluster=NOBODY, access=cast("Any", OneCaller()), nodes=NOBODY, queues=NOBODY,
        explain=NOBODY, calendars=NOBODY, previews=NOBODY, history=NOBODY, pauses=NOBODY,
        backfills=BackfillOperations(store.backfills, store.jobs, store.runs, store.calendars, clock, ids, bus),
        versions=VersionOperations(store.versions, store.jobs, store.calendars, KINDS, clock, bus),
        forecast=ForecastOperations(Forecasts(store.database), store.nodes, clock),
        placing=NOBODY,
        artifacts=NOBODY,
        watch=NOBODY,
        logs=NOBODY,
        callbacks=NOBODY,
        run_files=NOBODY,
        secrets=NOBODY,
    )  # fmt: skip


@pytest.fixture
async def api(operations: ApiOperations) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=cast("Any", build_app(operations, ApiSettings())))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8420", headers=headers) as client:
        yield client


@pytest.fixture
async def job_id(store: Store) -> UUID:
    """Due every hour since long ago; its runs may overlap."""
    job = new_job(every(3600, LONG_AGO), next_due=at(86_400), policy=Policy(overlap=Overlap.ALLOW), name="report")
    return (await insert(store, job))[0]


RANGE = {"from": "2030-01-07T02:00:00Z", "to": "2030-01-07T12:00:00Z"}


async def test_a_dry_run_answers_what_would_be_done(api: httpx.AsyncClient, store: Store, job_id: UUID) -> None:
    answer = await api.post(f"/api/v1/jobs/{job_id}/backfill", json={**RANGE, "dry_run": True, "parallelism": 2})

    told = answer.json()
    assert answer.status_code == 200
    assert (told["backfill_id"], told["status"], told["total"], told["remaining"]) == (None, "planned", 10, 10)
    assert (told["from"], told["first_due"], told["last_due"]) == (RANGE["from"], RANGE["from"], "2030-01-07T11:00:00Z")
    assert told["notes"] == ["no run of this job has succeeded yet, so nobody knows how long one takes"]
    assert await rows(store, "backfills") == []


async def test_a_backfill_is_started_watched_paused_resumed_and_cancelled(
    api: httpx.AsyncClient, store: Store, job_id: UUID, clock: SetClock
) -> None:
    scheduler = await Scheduler(store, clock).join("a")
    await scheduler.leadership.run_once()
    bus = cast("EventBus", NotedBus())
    backfiller = Backfiller(
        store.backfills, scheduler.leadership, lambda: scheduler.node_id, clock, IdSource(), bus, 30
    )

    started = await api.post(f"/api/v1/jobs/{job_id}/backfill", json={**RANGE, "parallelism": 4, "rate": "100/m"})
    assert started.status_code == 202
    identity = started.json()["backfill_id"]
    where = started.headers["location"]
    assert where == f"/api/v1/backfills/{identity}"

    await backfiller.run_once()
    told = (await api.get(where)).json()
    expected = {"status": "running", "live": 4, "remaining": 6, "percent": 0.0, "rate": "100/m", "job_name": "report"}
    assert expected.items() <= told.items()
    assert told["next_due"] == "2030-01-07T06:00:00Z"

    paused = (await api.post(f"{where}/pause", json={"reason": "lunch"})).json()
    assert (paused["status"], paused["status_reason"], paused["changed_by"]) == ("paused", "lunch", "ada")
    assert (await api.post(f"{where}/resume")).json()["status"] == "running"
    cancelled = (await api.post(f"{where}/cancel")).json()
    assert cancelled["status"] == "cancelled"
    long_winded = await api.post(f"{where}/pause", json={"reason": "x" * 5000})
    assert (long_winded.status_code, long_winded.json()["errors"][0]["code"]) == (422, "invalid-text")
    refused = await api.post(f"{where}/pause")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:hourhand:problem:backfill-final")


async def test_backfills_are_listed_newest_first_page_by_page(
    api: httpx.AsyncClient, job_id: UUID, clock: SetClock
) -> None:
    made = []
    for hour in range(3):
        clock.time = at(hour)
        span = {"from": f"2030-01-06T0{hour}:00:00Z", "to": f"2030-01-06T0{hour}:30:00Z"}
        made.append((await api.post(f"/api/v1/jobs/{job_id}/backfill", json=span)).json()["backfill_id"])

    first = (await api.get("/api/v1/backfills", params={"limit": 2, "status": "running,paused"})).json()
    params = {"limit": 2, "status": "running,paused", "cursor": first["next_cursor"]}
    second = (await api.get("/api/v1/backfills", params=params)).json()

    assert [each["backfill_id"] for each in first["backfills"] + second["backfills"]] == made[::-1]
    assert second["next_cursor"] is None
    assert (await api.get("/api/v1/backfills", params={"status": "completed"})).json()["backfills"] == []


async def test_all_faults_of_a_backfill_are_told_at_once_those_of_form_and_of_meaning(
    api: httpx.AsyncClient, job_id: UUID
) -> None:
    answer = await api.post(
        f"/api/v1/jobs/{job_id}/backfill", json={"from": "2030-13-01T00:00:00Z", "paralelism": 3, "rate": 5}
    )
    assert answer.status_code == 422
    assert {each["pointer"]: each["code"] for each in answer.json()["errors"]} == {
        "/from": "invalid-date-time",
        "/to": "required",
        "/paralelism": "unknown-field",
        "/rate": "wrong-type",
    }


async def test_what_does_not_exist_is_not_found(api: httpx.AsyncClient, job_id: UUID) -> None:
    for answer in (
        await api.get(f"/api/v1/backfills/{job_id}"),
        await api.post(f"/api/v1/backfills/{job_id}/cancel"),
        await api.post(f"/api/v1/jobs/{IdSource().new_id(START)}/backfill", json=RANGE),
    ):
        assert answer.status_code == 404


async def test_versions_are_listed_compared_and_returned_to(
    api: httpx.AsyncClient, store: Store, job_id: UUID, clock: SetClock
) -> None:
    other = new_job(every(3600, LONG_AGO), name="report 2", payload={"n": 2}).definition
    assert await store.jobs.change_job(NAMESPACE, job_id, other, 1, at(3600), clock.now(), "bob") == []
    path = f"/api/v1/jobs/{job_id}"

    listed = (await api.get(f"{path}/versions")).json()["versions"]
    assert [(each["version"], each["changed_by"]) for each in listed] == [(2, "bob"), (1, "ada")]
    assert listed[1]["changes"] is None
    assert {"field": "/payload/n", "before": 1, "after": 2} in listed[0]["changes"]
    assert (await api.get(f"{path}/versions", params={"before": 2})).json()["versions"] == [listed[1]]
    assert (await api.get(f"{path}/versions/1")).json() == listed[1]

    diff = (await api.get(f"{path}/diff", params={"from": 2, "to": 1})).json()
    assert (diff["from"], diff["to"]) == (2, 1)
    assert {"field": "/name", "before": "report 2", "after": "report"} in diff["changes"]

    late = await api.post(f"{path}/rollback", json={"version": 1}, headers={"If-Match": '"1"'})
    assert (late.status_code, late.json()["type"]) == (412, "urn:hourhand:problem:version-mismatch")
    back = await api.post(f"{path}/rollback", json={"version": 1}, headers={"If-Match": '"2"'})
    assert (back.status_code, back.headers["etag"], back.json()["job"]["name"]) == (200, '"3"', "report")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/versions/9", 404, "not-found"),
        ("/versions/x", 400, "invalid-id"),
        ("/versions?before=0", 400, "invalid-parameter"),
        ("/diff?from=9", 404, "not-found"),
        ("/diff?form=1", 400, "unknown-parameter"),
    ],
)
async def test_versions_that_are_not_there_are_told_so(
    api: httpx.AsyncClient, job_id: UUID, path: str, status: int, code: str
) -> None:
    answer = await api.get(f"/api/v1/jobs/{job_id}{path}")
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (status, code)


async def test_the_forecast_says_what_falls_due(api: httpx.AsyncClient, store: Store, job_id: UUID) -> None:
    await insert(store, new_job(every(3600, LONG_AGO), next_due=at(3600)))  # the other is due tomorrow
    told = (await api.get("/api/v1/forecast", params={"hours": 2})).json()
    assert (told["from"], told["to"]) == ("2030-01-07T12:00:00Z", "2030-01-07T14:00:00Z")
    assert (told["jobs"], told["looked_at"], told["exact"], told["due"]) == (2, 1, True, 1)
    for wrong in ("0", "25", "x"):
        assert (await api.get("/api/v1/forecast", params={"hours": wrong})).status_code == 400
