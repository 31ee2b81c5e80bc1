"""PostgreSQL goes away and comes back under load: every role reconnects by itself, nothing acknowledged is lost."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from harness import Roles, job_key, run_async, seen_jobs, sql, wait_for

from hourhand.database.embedded import EmbeddedServer

BODY = {"name": "noop", "payload": {"handler": "bench.noop"}}


class Load:
    """Submits one job after the other until it is told to stop, and keeps every answer."""

    def __init__(self, cluster: Roles) -> None:
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []
        self.broken: list[str] = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(cluster,)) for _ in range(4)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)

    def _submit(self, cluster: Roles) -> None:
        headers = {"Authorization": f"Bearer {cluster.token}"}
        with httpx.Client(base_url=cluster.urls[0], headers=headers, timeout=60) as http:
            while not self._ending.is_set():
                try:
                    response = http.post("/api/v1/jobs", json=BODY)
                except httpx.HTTPError as error:
                    self.broken.append(repr(error))
                    continue
                if response.status_code == 202:
                    self.acknowledged.append(response.json()["job_id"])
                else:
                    self.refused.append(response)
                    self._ending.wait(0.02)  # as the answer asks; a refused caller need not hammer

    def wait_for_more(self, count: int = 50) -> None:
        before = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) >= before + count, f"{count} more submissions are acknowledged", 60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator["Server"]:
    server = Server(tmp_path / "database")
    try:
        yield server
    finally:
        server.stop()


class Server:
    """A PostgreSQL of our own, as an operator has it: the roles know its address and nothing else."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.url = ""
        self.start()

    def start(self) -> None:
        self._server = EmbeddedServer(self._home)
        self.url = run_async(self._server.start())

    def stop(self) -> None:
        run_async(self._server.stop())

    def restart(self) -> None:
        self.stop()
        self.start()

    def terminate_backends(self) -> None:
        assert sql(
            self.url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'hourhand%'",
        )


@pytest.fixture
def cluster(tmp_path: Path, server: Server) -> Iterator[Roles]:
    with Roles(tmp_path / "cluster", server.url, "hourhand") as roles:
        for role in ("scheduler", "executor", "api"):
            roles.start(role, f"{role}-only")
        roles.wait_until_ready()
        yield roles


def test_every_role_reconnects_by_itself_and_nothing_acknowledged_is_lost(cluster: Roles, server: Server) -> None:
    with cluster.client() as client:
        recurring = client.create_job(**BODY, schedule={"every": "1s"})
    with Load(cluster) as load:
        load.wait_for_more()
        for disturb in (server.terminate_backends, server.restart, server.terminate_backends, server.restart):
            disturb()
            load.wait_for_more()
    outage(cluster, server)

    wanted = {job_key(job_id) for job_id in load.acknowledged}
    wait_for(lambda: wanted <= seen_jobs(cluster.witness), "every acknowledged job has run", 60)
    assert load.broken == [], "a caller is always answered"
    assert_problem_documents(load.refused)
    seen = len(seen_jobs(cluster.witness))
    assert job_key(recurring.job_id) in seen_jobs(cluster.witness)
    with cluster.client() as client:
        ran = len(list(client.job_runs(recurring.job_id)))
        wait_for(lambda: len(list(client.job_runs(recurring.job_id))) > ran + 1, "the schedule goes on")
        wait_for(lambda: not client.cluster().live.get("running"), "everything is recorded")
    assert seen >= len(wanted)
    assert [process.exit_code for process in cluster.processes.values()] == [None] * 3, "nobody had to be restarted"


def outage(cluster: Roles, server: Server) -> None:
    """While the database is away: every answer is 503 and says so, and /livez still answers."""
    server.stop()
    headers = {"Authorization": f"Bearer {cluster.token}"}
    calls: list[Callable[[httpx.Client], httpx.Response]] = [
        lambda http: http.post("/api/v1/jobs", json=BODY),
        lambda http: http.post("/api/v1/jobs/batch", json=[BODY]),
        lambda http: http.post("/jobs", json={"name": "noop", "schedule_type": "IMMEDIATE"}),
        lambda http: http.get("/api/v1/jobs"),
        lambda http: http.get("/api/v1/runs?status=running"),
        lambda http: http.get("/api/jobs"),
        lambda http: http.get("/api/v1/cluster"),
    ]
    with httpx.Client(base_url=cluster.urls[0], headers=headers, timeout=60) as http:
        assert_problem_documents([call(http) for call in calls])
        ready = http.get("/readyz")
        assert (ready.status_code, ready.json()["type"]) == (503, "urn:hourhand:problem:not-ready")
        assert http.get("/livez").status_code == 200
        server.start()
        wait_for(lambda: http.get("/readyz").status_code == 200, "it is ready again")
        assert http.post("/api/v1/jobs", json=BODY).status_code == 202


def assert_problem_documents(refused: list[httpx.Response]) -> None:
    for response in refused:
        assert response.status_code == 503, response.text
        assert response.headers["content-type"] == "application/problem+json"
        assert response.headers["retry-after"]
        assert response.json()["type"] == "urn:hourhand:problem:database-unavailable"
