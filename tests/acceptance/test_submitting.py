"""A submission is carried out once, also when the API is killed before it can say so."""

import contextlib
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx
import pytest
from harness import HOURHAND, NO_TLS, Process, Roles, sql, wait_for

from held_ports import held_port
from hourhand.client import Client, scripts

DYING = """
import os, signal
from hourhand.store.submissions import Submissions

stored = Submissions.insert_submissions

async def insert_submissions(self, submissions):
    await stored(self, submissions)
    os.kill(os.getpid(), signal.SIGKILL)

Submissions.insert_submissions = insert_submissions
from hourhand.cli.main import main
main()
"""
"""An API that is killed at the worst moment: what it was asked for is committed, and nobody has been told."""
LATER = {"name": "later", "payload": {"handler": "bench.noop"}, "schedule": {"at": "2150-01-01T00:00:00Z"}}
BODIES: dict[str, Any] = {
    "/api/v1/jobs": LATER,
    "/api/v1/jobs/batch": [LATER] * 100,
    "/jobs": {"name": "a", "schedule_type": "FUTURE", "schedule_time": "2150-01-01T00:00:00Z"},
    "/api/jobs": {"jobName": "a", "jobType": "one-time", "executionTime": "2150-01-01T00:00:00Z"},
}


class Apis(Roles):
    """API nodes alone: nothing here needs to run."""

    def start_api(self, name: str, port: int, program: tuple[str, ...] = HOURHAND) -> Process:
        command = [*program, "api", "--name", name, "--port", str(port)]
        process = self.processes[name] = Process(self.cage, command, self.folder, self._environment)

        def answers() -> bool:
            assert process.exit_code is None, process.said
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"http://127.0.0.1:{port}/livez", trust_env=False, verify=NO_TLS).status_code == 200
            return False

        wait_for(answers, f"{name} answers", 60)
        return process

    def post(self, port: int, path: str, key: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": key}
        url = f"http://127.0.0.1:{port}{path}"
        return httpx.post(url, json=BODIES[path], headers=headers, timeout=60, trust_env=False, verify=NO_TLS)

    def count_jobs(self) -> int:
        return int(sql(self.database, f"SELECT count(*) FROM {self.schema}.jobs")[0]["count"])


@pytest.fixture
def apis(tmp_path: Path, database_url: str, schema: str) -> Iterator[Apis]:
    with Apis(tmp_path / "apis", database_url, schema) as apis:
        yield apis


def test_what_a_killed_api_had_committed_is_not_made_again_by_another(apis: Apis) -> None:
    well, wanted = held_port(), 0
    apis.start_api("well", well)
    for number, (path, body) in enumerate(BODIES.items()):
        port, name = held_port(), f"dying-{number}"
        dying = apis.start_api(name, port, (sys.executable, "-c", DYING))
        with pytest.raises(httpx.TransportError):
            apis.post(port, path, "k" + path)
        assert dying.wait(10) == -SIGKILL
        wanted += len(body) if isinstance(body, list) else 1
        assert apis.count_jobs() == wanted, "it was committed"

        again, once_more = apis.post(well, path, "k" + path), apis.post(well, path, "k" + path)
        assert (again.status_code, again.headers.get("idempotent-replay")) == (202, "true"), again.text
        assert once_more.json() == again.json()
        assert apis.count_jobs() == wanted


def test_the_client_brings_a_submission_home_through_the_death_of_its_api(
    apis: Apis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "RESUBMIT_SECONDS", 60.0)  # however long a start takes here
    port = held_port()
    dying = apis.start_api("dying", port, (sys.executable, "-c", DYING))
    with Client(f"http://127.0.0.1:{port}", apis.token) as client, ThreadPoolExecutor(1) as thread:
        asked = thread.submit(lambda: client.create_job(**LATER))
        assert dying.wait(30) == -SIGKILL
        assert apis.count_jobs() == 1
        apis.start_api("next", port)
        job = asked.result(60)
        assert client.get_job(job.job_id).name == "later"
    assert apis.count_jobs() == 1


def test_of_many_with_one_key_at_two_nodes_one_makes_the_job(apis: Apis) -> None:
    ports = [held_port(), held_port()]
    for port in ports:
        apis.start_api(f"api-{port}", port)
    with ThreadPoolExecutor(20) as threads:
        asked = [threads.submit(apis.post, ports[number % 2], "/api/v1/jobs", "one") for number in range(60)]
        answers = [each.result(60) for each in asked]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["job_id"] for answer in answers}) == 1
    assert sum("idempotent-replay" not in answer.headers for answer in answers) == 1
    assert apis.count_jobs() == 1
