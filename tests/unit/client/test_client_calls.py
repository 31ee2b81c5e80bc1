"""What the client sends and how it reads the answers, over a real socket."""

import asyncio
import inspect
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from stub_api import DUE, TOKEN, Stub

from hourhand.client import ApiProblem, AsyncClient, Client, JobEndedWithoutRun, WaitTimedOut
from hourhand.client.calls import NDJSON_FROM


def test_a_created_job_comes_back_as_a_view_and_unknown_fields_are_ignored(client: Client, stub: Stub) -> None:
    job = client.create_job(name="hello", kind="command", payload={"argv": ["true"]}, schedule={"every": "15m"})

    assert job.name == "hello"
    assert str(job.job_id) in stub.jobs
    assert job.schedule == [{"every": "15m"}]
    assert job.next_due is not None
    assert job.next_due.isoformat() == "2030-01-31T09:00:00+00:00"


def test_the_token_and_the_namespace_go_with_every_request(stub: Stub) -> None:
    with Client(stub.url, TOKEN, namespace="team-a") as client:
        client.whoami()
        client.create_job(name="x")

    assert [seen.params["namespace"] for seen in stub.seen] == [["team-a"], ["team-a"]]
    assert {seen.headers["authorization"] for seen in stub.seen} == {f"Bearer {TOKEN}"}


def test_a_small_batch_is_a_json_array(client: Client, stub: Stub) -> None:
    ids = client.create_jobs([{"name": "a"}, {"name": "b"}])

    assert [str(i) for i in ids] == list(stub.jobs)
    assert stub.last.headers["content-type"] == "application/json"


def test_a_large_batch_is_sent_line_by_line(client: Client, stub: Stub) -> None:
    ids = client.create_jobs([{"name": f"job {n}\n"} for n in range(NDJSON_FROM)])

    assert len(ids) == NDJSON_FROM
    assert stub.last.headers["content-type"] == "application/x-ndjson"
    assert stub.last.body.count(b"\n") == NDJSON_FROM


def test_listing_goes_through_all_pages(client: Client, stub: Stub) -> None:
    for n in range(5):
        stub.add_job(f"job {n}")

    assert [job.name for job in client.list_jobs(limit=2)] == [f"job {n}" for n in range(5)]
    assert len(stub.seen) == 3


def test_a_single_page_carries_its_cursor(client: Client, stub: Stub) -> None:
    for n in range(3):
        stub.add_job(f"job {n}")

    first = client.list_jobs_page(limit=2)
    second = client.list_jobs_page(limit=2, cursor=first.next_cursor)

    assert [len(first.jobs), len(second.jobs), second.next_cursor] == [2, 1, None]


def test_filters_are_written_as_the_api_writes_them(client: Client, stub: Stub) -> None:
    client.list_jobs_page(label={"team": "a", "env": "prod"}, owner=None, status="paused")
    assert stub.last.params == {"label": ["team:a", "env:prod"], "status": ["paused"]}

    client.list_runs_page(status=["running", "queued"], job_id=UUID(int=1))
    assert stub.last.params == {"status": ["running,queued"], "job_id": [str(UUID(int=1))]}


def test_an_update_sends_only_the_given_fields_and_the_version(client: Client, stub: Stub) -> None:
    job = stub.add_job("x")

    change = client.update_job(job["job_id"], if_version=1, queue="slow", timeout=None)

    assert stub.last.json == {"queue": "slow", "timeout": None}
    assert stub.last.headers["if-match"] == '"1"'
    assert change.job.version == 2
    assert len(change.too_late) == 1


def test_pause_resume_and_cancel_give_the_job_as_it_is_then(client: Client, stub: Stub) -> None:
    job_id = stub.add_job("x")["job_id"]

    assert client.pause_job(job_id, "holiday").job.pause_reason == "holiday"
    assert client.resume_job(job_id).job.status == "scheduled"
    assert client.cancel_job(job_id).job.is_final


def test_an_id_with_a_slash_cannot_lead_to_another_path(client: Client, stub: Stub) -> None:
    with pytest.raises(ApiProblem) as problem:
        client.get_job("x/../../whoami")
    assert problem.value.status == 404
    assert stub.last.path == "/api/v1/jobs/x%2F..%2F..%2Fwhoami"


def test_the_rest_of_the_reading_calls(client: Client, stub: Stub) -> None:
    job = stub.add_job("x")
    run = stub.add_run(job, status="failed", lateness_ms=12.5)

    assert [t.isoformat() for t in client.next_times(job["job_id"], 2)] == [DUE.replace("Z", "+00:00")] * 2
    assert [v.changed_by for v in client.versions(job["job_id"])] == ["stub"]
    assert [r.lateness_ms for r in client.job_runs(job["job_id"])] == [12.5]
    assert [r.run_id for r in client.list_runs(status="failed")] == [UUID(run["run_id"])]
    assert list(client.list_runs(status="running")) == []
    assert client.cluster().nodes[0].lease_seconds_left == 12.5
    assert client.whoami().name == "stub"


def test_a_finished_run_is_run_again(client: Client, stub: Stub) -> None:
    old = stub.add_run(stub.add_job("x"), status="failed")

    new = client.retry_run(old["run_id"], "once more", again=True)

    assert stub.last.json == {"note": "once more", "again": True}
    assert client.get_run(new).retry_of == UUID(old["run_id"])
    client.retry_run(old["run_id"])
    assert stub.last.json == {}


def test_many_runs_are_run_again_or_cancelled(client: Client, stub: Stub) -> None:
    job = stub.add_job("x")
    for _ in range(3):
        stub.add_run(job, status="failed")
    since = datetime(2030, 1, 31, 9, tzinfo=UTC)

    retried = client.retry_runs(status=["failed"], job_id=UUID(job["job_id"]), since=since, reason=None)
    assert stub.last.json == {"status": ["failed"], "job_id": job["job_id"], "since": "2030-01-31T09:00:00Z"}
    assert (len(retried.run_ids), retried.more) == (3, True)
    cancelled = client.cancel_runs(job_id=job["job_id"])
    assert (cancelled.cancelled, cancelled.cancelling, cancelled.more) == (7, 2, False)


def test_times_in_filters_are_written_as_the_api_reads_them(client: Client, stub: Stub) -> None:
    client.list_runs_page(reason=["poison"], since=datetime(2030, 1, 31, 9, tzinfo=UTC), until="2030-02-01T00:00:00Z")
    assert stub.last.params == {
        "reason": ["poison"],
        "since": ["2030-01-31T09:00:00+00:00"],
        "until": ["2030-02-01T00:00:00Z"],
    }


def test_waiting_returns_the_run_when_it_is_final(client: Client, stub: Stub, nobody_sleeps: list[float]) -> None:
    job = stub.add_job("x")

    run = client.wait_for_run(client.run_job(job["job_id"], {"a": 1}, "because"))

    assert run.succeeded
    assert run.result == {"answer": 42}
    assert len(nobody_sleeps) == 2
    assert stub.asked("POST", "/run").json == {"payload": {"a": 1}, "note": "because"}


def test_waiting_for_a_new_job_waits_for_its_first_run(client: Client) -> None:
    job = client.create_job(name="fails")
    run = client.wait_for_job(job.job_id)
    assert (run.status, run.reason) == ("failed", "exit_code")


def test_waiting_for_a_job_that_ended_without_a_run_says_so(client: Client, stub: Stub) -> None:
    job = stub.add_job("x", status="cancelled")
    with pytest.raises(JobEndedWithoutRun, match="is cancelled and has no run"):
        client.wait_for_start(job["job_id"])


def test_waiting_gives_up_after_its_time(client: Client, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))
    with pytest.raises(WaitTimedOut, match="still queued after 0 s"):
        client.wait_for_run(run["run_id"], timeout=0)


def test_following_a_log_asks_on_with_the_cursor_until_it_has_ended(client: Client, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))

    assert [line.text for line in client.follow_logs(run["run_id"])] == ["one", "two", "three"]
    pages = [seen for seen in stub.seen if seen.path.endswith("/logs")]
    assert [seen.params.get("after") for seen in pages] == [None, ["1:1"], ["1:2"]]


def test_a_page_of_a_log_begins_after_the_cursor(client: Client, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))
    page = client.run_logs(run["run_id"], after="1:1", limit=1)
    assert ([line.text for line in page.lines], page.next) == (["two"], "1:2")


async def test_the_asynchronous_client_does_the_same(stub: Stub) -> None:
    async with AsyncClient(stub.url, TOKEN) as client:
        job = await client.create_job(name="x")
        run = await client.wait_for_job(job.job_id)
        lines = [line.text async for line in client.follow_logs(run.run_id)]
        names = [found.name async for found in client.list_jobs(limit=1)]
        many = await asyncio.gather(*(client.get_job(job.job_id) for _ in range(20)))

    assert run.succeeded
    assert lines == ["one", "two", "three"]
    assert names == ["x"]
    assert {found.name for found in many} == {"x"}


async def test_the_asynchronous_client_reports_refusals_alike(stub: Stub) -> None:
    async with AsyncClient(stub.url, TOKEN) as client:
        with pytest.raises(ApiProblem, match="does not exist"):
            await client.get_run(uuid4())


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def signatures(client: type) -> dict[str, list[str]]:
        members = inspect.getmembers(client, inspect.isfunction)
        return {name: list(inspect.signature(m).parameters) for name, m in members if not name.startswith("__")}

    assert signatures(Client) == signatures(AsyncClient)
