"""/api/v1/nodes, /shards, /queues, /namespaces and /runs/{run_id}/explain: what operators ask for."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import httpx
import pytest
from api_fakes import NOW, code_of, faults_of
from operator_fakes import EXECUTOR_FACTS, FakeBus, FakeClusterStore, FakeExplainStore, FakeQueueStore, in_seconds, node

from hourhand.model.node import Orders
from hourhand.model.policy import Rate
from hourhand.model.snapshot import Snapshot
from hourhand.model.states import RunState
from hourhand.ports.event_bus import Topic
from hourhand.ports.operator_stores import QueueRow

RUN = UUID("01997abc-8800-7000-8000-000000000001")


# --- nodes ------------------------------------------------------------------------------------------------


async def test_nodes_are_listed_with_how_they_stand(api: httpx.AsyncClient, nodes: FakeClusterStore) -> None:
    nodes.nodes[9] = node(9, "executor", ended_at=in_seconds(-5))

    found = {each["node_id"]: each for each in (await api.get("/api/v1/nodes")).json()["nodes"]}

    assert {number: each["state"] for number, each in found.items()} == {
        1: "working",
        2: "working",
        3: "working",
        9: "dead",
    }
    assert (found[2]["leader"], found[2]["shards"]) == (True, 1024)
    assert (found[3]["slots_used"], found[3]["slots_total"]) == (3, 96)
    assert (found[3]["lease_seconds_left"], found[3]["heard_seconds_ago"]) == (12.5, 2.5)
    assert found[3]["facts"] == EXECUTOR_FACTS


async def test_nodes_that_have_ended_come_last_and_have_no_lease(
    api: httpx.AsyncClient, nodes: FakeClusterStore
) -> None:
    ended = {0: node(0, "executor", ended_at=in_seconds(-50)), 9: node(9, "executor", ended_at=in_seconds(-5))}
    nodes.nodes = {**ended, **nodes.nodes}

    found = (await api.get("/api/v1/nodes")).json()["nodes"]

    assert [each["node_id"] for each in found] == [1, 2, 3, 9, 0]
    assert [each["lease_seconds_left"] is None for each in found] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("verb", "orders", "state"),
    [("cordon", "cordon", "cordoned"), ("drain", "drain", "draining"), ("resume", "work", "working")],
)
async def test_orders_are_given_told_to_all_and_may_be_repeated(
    api: httpx.AsyncClient, bus: FakeBus, verb: str, orders: str, state: str
) -> None:
    for _ in range(2):
        answer = await api.post(f"/api/v1/nodes/3/{verb}")
        assert answer.status_code == 200
        assert (answer.json()["orders"], answer.json()["state"]) == (orders, state)

    assert bus.told == [Topic.NODES] * 2
    assert (await api.get("/api/v1/nodes/3")).json()["orders"] == orders


async def test_a_node_that_is_declared_lost_is_dead_and_saying_it_again_changes_nothing(
    api: httpx.AsyncClient, bus: FakeBus
) -> None:
    for _ in range(2):
        assert (await api.post("/api/v1/nodes/3/mark-lost")).json()["state"] == "dead"

    assert bus.told == [Topic.NODES]


async def test_who_takes_no_work_takes_no_orders_and_neither_does_who_has_ended(
    api: httpx.AsyncClient, nodes: FakeClusterStore
) -> None:
    refused = await api.post("/api/v1/nodes/1/drain")
    assert (refused.status_code, code_of(refused)) == (409, "node-takes-no-orders")

    nodes.nodes[3] = replace(nodes.nodes[3], ended_at=NOW)
    refused = await api.post("/api/v1/nodes/3/cordon")
    assert (refused.status_code, code_of(refused)) == (409, "node-ended")


@pytest.mark.parametrize("method_and_path", ["GET /42", "POST /42/cordon", "POST /42/mark-lost"])
async def test_a_node_that_does_not_exist_is_not_found(api: httpx.AsyncClient, method_and_path: str) -> None:
    method, path = method_and_path.split()
    answer = await api.request(method, f"/api/v1/nodes{path}")
    assert (answer.status_code, code_of(answer)) == (404, "not-found")


@pytest.mark.parametrize("word", ["x", "-1", "1.5", "９", "12345678901"])
async def test_a_node_is_named_by_its_number(api: httpx.AsyncClient, word: str) -> None:
    answer = await api.get(f"/api/v1/nodes/{word}")
    assert (answer.status_code, code_of(answer)) == (400, "invalid-id")


async def test_who_is_bound_to_a_namespace_gives_no_orders_and_learns_no_facts(
    bound: httpx.AsyncClient, nodes: FakeClusterStore, bus: FakeBus
) -> None:
    for verb in ("cordon", "drain", "resume", "mark-lost"):
        refused = await bound.post(f"/api/v1/nodes/3/{verb}")
        assert (refused.status_code, code_of(refused)) == (403, "forbidden")
    assert nodes.nodes[3].orders is Orders.WORK
    assert bus.told == []

    shown = (await bound.get("/api/v1/nodes/3")).json()
    assert (shown["facts"], shown["slots_total"]) == ({}, 96)


async def test_shards_are_told_per_owner_and_one_by_one_when_asked_for(api: httpx.AsyncClient) -> None:
    told = (await api.get("/api/v1/shards")).json()
    assert told == {
        "count": 3,
        "epoch": 4,
        "owners": [
            {"node_id": 2, "name": "scheduler-2", "count": 2, "ranges": ["0-1"], "epoch": 4},
            {"node_id": None, "name": None, "count": 1, "ranges": ["2"], "epoch": 0},
        ],
        "shards": [],
    }
    each = (await api.get("/api/v1/shards", params={"each": "true"})).json()["shards"]
    assert each[0] == {"shard": 0, "node_id": 2, "name": "scheduler-2", "epoch": 3}
    assert len(each) == 3


# --- queues -----------------------------------------------------------------------------------------------


async def test_queues_are_listed_for_the_namespace_that_asks(
    api: httpx.AsyncClient, bound: httpx.AsyncClient, queues: FakeQueueStore
) -> None:
    queues.queues[1, "reports"] = QueueRow("reports", NOW, "ada", "holiday", 3, Rate(100, 60.0), 7, 2, 1)

    assert (await api.get("/api/v1/queues")).json() == {
        "queues": [
            {
                "name": "reports",
                "paused": True,
                "paused_at": "2025-09-24T08:00:00Z",
                "paused_by": "ada",
                "pause_reason": "holiday",
                "pause_until": None,
                "max_concurrency": 3,
                "rate_limit": "100/m",
                "waiting": 7,
                "later": 2,
                "running": 1,
                "too_late": [],
            }
        ]
    }
    assert (await bound.get("/api/v1/queues")).json() == {"queues": []}
    assert (await bound.get("/api/v1/queues/reports")).status_code == 404


async def test_a_queue_is_limited_field_by_field(api: httpx.AsyncClient, bus: FakeBus) -> None:
    first = await api.put("/api/v1/queues/reports", json={"max_concurrency": 3, "rate_limit": "10/30s"})
    assert (first.json()["max_concurrency"], first.json()["rate_limit"]) == (3, "10/30s")

    second = await api.put("/api/v1/queues/reports", json={"max_concurrency": None})
    assert (second.json()["max_concurrency"], second.json()["rate_limit"]) == (None, "10/30s")
    assert set(bus.told) == {Topic.LANES, Topic.READY}

    bus.told.clear()
    nothing = await api.put("/api/v1/queues/reports", json={})
    assert (nothing.status_code, nothing.json()["rate_limit"], bus.told) == (200, "10/30s", [])


async def test_every_fault_of_a_limit_is_told_at_once(api: httpx.AsyncClient, queues: FakeQueueStore) -> None:
    answer = await api.put("/api/v1/queues/reports", json={"max_concurrency": 0, "rate_limit": "often"})

    assert faults_of(answer) == {"/max_concurrency": "out-of-range", "/rate_limit": "invalid-rate"}
    assert queues.queues == {}
    unknown = await api.put("/api/v1/queues/reports", json={"max_concurency": 1})
    assert faults_of(unknown) == {"/max_concurency": "unknown-field"}


async def test_a_queue_is_paused_with_a_reason_and_resumed(api: httpx.AsyncClient, bus: FakeBus) -> None:
    paused = (await api.post("/api/v1/queues/reports/pause", json={"reason": "holiday"})).json()
    assert (paused["paused"], paused["paused_by"], paused["pause_reason"]) == (True, "tester", "holiday")
    resumed = (await api.post("/api/v1/queues/reports/resume")).json()
    assert (resumed["paused"], resumed["paused_at"], resumed["pause_reason"]) == (False, None, None)
    assert bus.told.count(Topic.LANES) == 2


async def test_a_reason_has_its_limits(api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/queues/reports/pause", json={"reason": "x" * 1001})
    assert faults_of(answer) == {"/reason": "invalid-text"}


async def test_resuming_a_queue_that_nobody_knows_is_not_found(api: httpx.AsyncClient) -> None:
    assert (await api.post("/api/v1/queues/nobodys/resume")).status_code == 404


@pytest.mark.parametrize("name", ["-x", "a b", "x" * 64])
async def test_a_queue_has_a_name_that_a_job_could_use(api: httpx.AsyncClient, name: str) -> None:
    for verb, path in (("GET", ""), ("PUT", ""), ("POST", "/pause"), ("POST", "/resume")):
        body: dict[str, Any] = {"json": {}} if verb == "PUT" else {}
        answer = await api.request(verb, f"/api/v1/queues/{name}{path}", **body)
        assert (answer.status_code, code_of(answer)) == (400, "invalid-parameter")


# --- namespaces -------------------------------------------------------------------------------------------


async def test_a_namespace_gets_a_limit_and_a_share(api: httpx.AsyncClient, bus: FakeBus) -> None:
    answer = await api.put("/api/v1/namespaces/team-a", json={"max_concurrency": 50, "weight": 3})
    assert answer.json() == {"name": "team-a", "max_concurrency": 50, "weight": 3, "running": 0}

    answer = await api.put("/api/v1/namespaces/team-a", json={"max_concurrency": None})
    assert answer.json() == {"name": "team-a", "max_concurrency": None, "weight": 3, "running": 0}
    assert (await api.get("/api/v1/namespaces/team-a")).json()["weight"] == 3
    assert Topic.LANES in bus.told


async def test_every_fault_of_a_namespace_is_told_at_once(api: httpx.AsyncClient) -> None:
    answer = await api.put("/api/v1/namespaces/team-a", json={"max_concurrency": -1, "weight": 1001})
    assert faults_of(answer) == {"/max_concurrency": "out-of-range", "/weight": "out-of-range"}
    assert (await api.put("/api/v1/namespaces/nobodys", json={"weight": 2})).status_code == 404


async def test_who_is_bound_to_a_namespace_sees_its_own_and_changes_none(bound: httpx.AsyncClient) -> None:
    assert (await bound.get("/api/v1/namespaces/team-a")).json()["name"] == "team-a"
    assert (await bound.get("/api/v1/namespaces/default")).status_code == 403
    assert (await bound.put("/api/v1/namespaces/team-a", json={"weight": 1000})).status_code == 403


# --- explain ----------------------------------------------------------------------------------------------


async def test_a_run_is_explained_to_its_own_namespace(
    api: httpx.AsyncClient, bound: httpx.AsyncClient, snapshots: FakeExplainStore
) -> None:
    snapshots.snapshots[1, RUN] = Snapshot(
        now=NOW,
        run_id=RUN,
        job_id=RUN,
        job_name="nightly",
        namespace="default",
        state=RunState.QUEUED,
        scheduled_for=in_seconds(12),
        ready_at=in_seconds(12),
        queue="default",
        needs="command",
    )

    told = (await api.get(f"/api/v1/runs/{RUN}/explain")).json()

    assert (told["status"], told["summary"]) == ("queued", "is due at 2025-09-24 08:00:12 UTC, in 12s")
    assert told["gates"][1] == {
        "gate": "due",
        "passed": False,
        "detail": "due at 2025-09-24 08:00:12 UTC, in 12s",
        "until": "2025-09-24T08:00:12Z",
    }
    assert (await bound.get(f"/api/v1/runs/{RUN}/explain")).status_code == 404


# --- every fault at once ----------------------------------------------------------------------------------


async def test_limits_are_refused_with_all_their_faults(api: httpx.AsyncClient) -> None:
    queue = await api.put("/api/v1/queues/reports", json={"foo": 1, "max_concurrency": 0, "rate_limit": "often"})
    namespace = await api.put("/api/v1/namespaces/default", json={"foo": 1, "max_concurrency": 0, "weight": 0})
    pause = await api.post("/api/v1/queues/reports/pause", json={"foo": 1, "reason": "x" * 1001})
    assert faults_of(queue) == {
        "/foo": "unknown-field",
        "/max_concurrency": "out-of-range",
        "/rate_limit": "invalid-rate",
    }
    assert faults_of(namespace) == {
        "/foo": "unknown-field",
        "/max_concurrency": "out-of-range",
        "/weight": "out-of-range",
    }
    assert faults_of(pause) == {"/foo": "unknown-field", "/reason": "invalid-text"}


async def test_all_that_is_wrong_with_an_address_is_told_at_once(api: httpx.AsyncClient) -> None:
    shards = await api.get("/api/v1/shards?each=maybe&foo=1")
    runs = await api.get("/api/v1/runs?limit=0&job_id=x&status=failed,odd&limit=1")
    assert (shards.status_code, code_of(shards)) == (400, "invalid-parameter")
    assert shards.json()["detail"].startswith("each: 'maybe' is none of true, false; also foo: there is no such")
    assert [part.partition(":")[0] for part in runs.json()["detail"].split("; also ")] == [
        "limit",
        "job_id",
        "status",
        "limit",
    ]
