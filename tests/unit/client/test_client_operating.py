"""What the client sends for nodes, shards, queues, namespaces and explanations, over a real socket."""

import pytest
from stub_api import TOKEN, Stub

from hourhand.client import ApiProblem, AsyncClient, Client


def test_nodes_are_read_with_how_they_stand(client: Client, stub: Stub) -> None:
    stub.add_node(7, "berlin", field_of_the_future=1)

    [node] = client.nodes()

    assert (node.node_id, node.state, node.slots_used, node.is_present) == (7, "working", 3, True)
    assert client.get_node(7).name == "berlin"
    with pytest.raises(ApiProblem, match="does not exist"):
        client.get_node(8)


def test_orders_to_nodes(client: Client, stub: Stub) -> None:
    stub.add_node(7, "berlin")

    assert client.cordon_node(7).state == "cordoned"
    assert client.drain_node(7).orders == "drain"
    assert client.wait_until_drained(7).state == "drained"
    assert client.resume_node(7).state == "working"
    assert client.wait_until_drained(7).state == "working", "it is not to drain any more"
    assert not client.mark_node_lost(7).is_present


def test_shards_one_by_one_only_when_asked_for(client: Client, stub: Stub) -> None:
    assert client.shards().owners[0].ranges == ["0-1023"]
    assert stub.last.params == {}
    assert client.shards(each=True).shards[0].shard == 0
    assert stub.last.params == {"each": ["true"]}


def test_queues_and_namespaces_send_only_what_is_given(client: Client, stub: Stub) -> None:
    assert client.set_queue("reports", max_concurrency=None).name == "reports"
    assert stub.last.json == {"max_concurrency": None}
    assert client.pause_queue("reports").paused
    assert stub.last.json == {}
    assert not client.resume_queue("reports").paused
    assert [queue.name for queue in client.queues()] == ["reports"]
    assert client.get_queue("reports").waiting == 2
    assert client.set_namespace("team-a", weight=3).weight == 3
    assert client.get_namespace("team-a").max_concurrency is None


def test_a_queue_with_a_slash_cannot_lead_to_another_path(client: Client, stub: Stub) -> None:
    client.get_queue("x/pause")
    assert stub.last.path == "/api/v1/queues/x%2Fpause"


def test_a_run_is_explained(client: Client, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))
    explanation = client.explain_run(run["run_id"])
    assert [gate.gate for gate in explanation.gates if not gate.passed] == ["executor"]


def test_waiting_for_somebody_to_take_a_run_ends_when_it_is_taken_or_the_time_is_over(
    client: Client, stub: Stub
) -> None:
    run = stub.add_run(stub.add_job("x"))
    assert client.wait_while_waiting(run["run_id"], 60).status == "running"

    stub.patience_asked = 10
    queued = stub.add_run(stub.add_job("y"))
    assert client.wait_while_waiting(queued["run_id"], 0).waits


async def test_the_asynchronous_client_does_the_same(stub: Stub) -> None:
    stub.add_node(7, "berlin")
    async with AsyncClient(stub.url, TOKEN) as client:
        await client.drain_node(7)
        assert (await client.wait_until_drained(7)).state == "drained"
        assert (await client.set_queue("reports", rate_limit="5/s")).rate_limit == "5/s"
