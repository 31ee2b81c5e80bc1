"""The REST API over the wire: what a client can count on from submission to result."""

import contextlib
import json
from datetime import UTC, datetime
from uuid import UUID

import httpx
import psutil
import pytest
from harness import Up, seen_jobs, sql, wait_for

from hourhand.client import ApiProblem

NOOP = {"name": "noop", "payload": {"handler": "bench.noop"}}


@pytest.fixture
def api(running: Up) -> httpx.Client:
    return running.http()


def test_a_job_goes_from_its_submission_to_its_result(api: httpx.Client) -> None:
    made = api.post("/api/v1/jobs", json={"name": "hi", "payload": {"handler": "demo.hello", "name": "Ada"}})
    assert made.status_code == 202
    assert made.headers["location"] == f"/api/v1/jobs/{made.json()['job_id']}"
    where = made.headers["location"]
    wait_for(lambda: api.get(f"{where}/status").json()["status"] == "completed", "it is completed")
    run = api.get(f"{where}/status").json()["latest_run"]
    assert (run["status"], run["cause"], run["attempt"]) == ("succeeded", "once", 1)
    assert run["result"]["greeting"] == "Hello, Ada!"
    assert 0 <= run["lateness_ms"] < 10_000
    assert [line["text"] for line in api.get(f"/api/v1/runs/{run['run_id']}/logs").json()["lines"]] == [
        "saying hello to Ada"
    ]
    assert api.get(f"{where}/runs").json()["runs"][0]["run_id"] == run["run_id"]
    plain = api.get(f"/api/v1/runs/{run['run_id']}/logs", headers={"Accept": "text/plain"})
    assert plain.text == "saying hello to Ada\n"


def test_a_run_that_fails_is_tried_again_and_tells_of_every_attempt(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(name="flaky", payload={"handler": "demo.flaky"}, retry={"delays": ["0.1s"]})
        run = client.wait_for_job(job.job_id, 30)
    assert (run.status, run.attempt, run.result) == ("succeeded", 2, {"attempts": 2})
    assert [attempt.status for attempt in run.attempts] == ["failed"]
    assert "could not reach the moon" in (run.attempts[0].error or "")


@pytest.mark.parametrize("form", ["application/json", "application/x-ndjson"])
def test_a_batch_is_taken_as_array_and_line_by_line(running: Up, api: httpx.Client, form: str) -> None:
    jobs = [json.dumps(NOOP)] * 500
    content = f"[{','.join(jobs)}]" if form == "application/json" else "\n".join(jobs)
    response = api.post("/api/v1/jobs/batch", content=content, headers={"Content-Type": form})
    assert response.status_code == 202
    answer = response.json()
    assert answer["count"] == len(set(answer["job_ids"])) == 500
    wanted = {UUID(job_id).int & (1 << 64) - 1 for job_id in answer["job_ids"]}
    wait_for(lambda: wanted <= seen_jobs(running.witness), "all have run")


def test_what_runs_at_this_moment_can_be_listed(running: Up, api: httpx.Client) -> None:
    with running.client() as client:
        job = client.create_job(name="waits", payload={"handler": "waits"})

        def running_now() -> list[str]:
            return [run["job_id"] for run in api.get("/api/v1/runs?status=running").json()["runs"]]

        wait_for(lambda: str(job.job_id) in running_now(), "it is listed")
        run = client.wait_for_start(job.job_id)
        client.cancel_run(run.run_id)
        assert client.wait_for_run(run.run_id, 15).status == "cancelled"
        wait_for(lambda: str(job.job_id) not in running_now(), "it is listed no more")


def test_a_change_counts_from_the_next_due_time_on(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(**NOOP, schedule={"cron": "0 3 * * *"}, zone="Europe/Berlin")
        changed = client.update_job(job.job_id, schedule={"at": "2035-06-01T12:00:00Z"}, if_version=1).job
        assert (changed.version, changed.next_due) == (2, datetime(2035, 6, 1, 12, tzinfo=UTC))
        with pytest.raises(ApiProblem) as refused:
            client.update_job(job.job_id, description="late", if_version=1)
        assert refused.value.status == 412
        assert [version.version for version in client.versions(job.job_id)] == [2, 1]


def test_a_paused_job_makes_no_runs_until_it_is_resumed(running: Up) -> None:
    with running.client() as client:
        job = client.create_job(**NOOP, schedule={"every": "1s"})
        wait_for(lambda: list(client.job_runs(job.job_id)), "it runs")
        paused = client.pause_job(job.job_id, "lunch").job
        assert (paused.status, paused.pause_reason) == ("paused", "lunch")
        wait_for(lambda: all(run.is_final for run in client.job_runs(job.job_id)), "what was made is done")
        count = len(list(client.job_runs(job.job_id)))
        run_id = client.run_job(job.job_id, note="by hand")
        assert client.wait_for_run(run_id, 15).note == "by hand"
        assert len(list(client.job_runs(job.job_id))) == count + 1, "but it can be run by hand"
        client.resume_job(job.job_id)
        wait_for(lambda: len(list(client.job_runs(job.job_id))) > count + 1, "it runs again")
        client.cancel_job(job.job_id)


def test_the_api_describes_itself(running: Up, api: httpx.Client) -> None:
    assert httpx.get(f"{running.url}/docs").headers["content-type"].startswith("text/html")
    document = api.get("/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert {"/api/v1/jobs", "/api/v1/jobs/batch", "/jobs", "/api/jobs"} <= set(document["paths"])


def test_tokens_are_stored_as_digests_only(running: Up) -> None:
    password = (running.home / "postgres.password").read_text().strip()
    url = f"postgresql://hourhand:{password}@/hourhand?host={running.home}/socket&port={socket_port(running)}"
    rows = sql(url, "SELECT * FROM hourhand.tokens")
    assert rows
    assert running.token not in repr(rows)
    assert all(len(row["digest"]) == 32 for row in rows)


def socket_port(up: Up) -> str:
    [socket] = [path for path in (up.home / "socket").iterdir() if path.suffix != ".lock"]
    return socket.name.rpartition(".")[2]


def test_executors_and_database_open_no_port(running: Up) -> None:
    ports = set()
    for process in running.cage.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # sessions of the database come and go
            ports |= {each.laddr.port for each in process.net_connections("inet") if each.status == "LISTEN"}
    assert ports == {running.port}


def test_another_host_name_is_refused(running: Up) -> None:
    """A page of the web that points its name at this machine must not reach it."""
    response = httpx.get(f"{running.url}/api/v1/jobs", headers={"Host": "evil.example.com"})
    assert response.status_code == 421
