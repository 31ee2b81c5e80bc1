"""What users of other schedulers complain about most, one test each: it does not happen here.

Everything is real: processes that are killed or stopped, a database that goes away, jobs that misbehave. Leases are
short, so that what takes 16 seconds by default takes a few.
"""

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import httpx
import pytest
from effects import GRACE, Effect, Effects, assert_no_gap, every_second, paused
from harness import NO_TLS, SHORT_LEASES, Process, Roles, Up, sql, wait_for

from hourhand.client import Client

LEASE = float(SHORT_LEASES["HOURHAND_EXECUTOR_LEASE_SECONDS"])
JOBS = 24


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, database_url: str) -> Iterator["Cluster"]:
    """Two schedulers, two executors and an API, each a process of its own. Tests replace what they kill."""
    folder = tmp_path_factory.mktemp("complaints")
    effects = Effects(folder)
    with Roles(folder, database_url, "complaints", effects.settings) as roles:
        cluster = Cluster(roles, effects)
        for role in ("scheduler", "executor"):
            for _ in range(2):
                cluster.add(role)
        roles.start("api", "api")
        roles.wait_until_ready()
        yield cluster
    sql(database_url, "DROP SCHEMA complaints CASCADE")


class Cluster:
    def __init__(self, roles: Roles, effects: Effects) -> None:
        self.roles = roles
        self.effects = effects
        self._numbers = itertools.count(1)

    def add(self, role: str, **settings: str) -> str:
        name = f"{role}-{next(self._numbers)}"
        self.roles.start(role, name, **settings)
        return name

    def client(self) -> Client:
        return self.roles.client()

    def process(self, name: str) -> Process:
        return self.roles.processes[name]

    def node_id(self, name: str) -> int:
        """The number of a node by its name, once it is there."""
        query = f"SELECT node_id FROM complaints.nodes WHERE name LIKE '{name}-%' AND ended_at IS NULL"
        return int(wait_for(lambda: self.sql(query), f"{name} is there")[0]["node_id"])

    def shares(self) -> dict[int, int]:
        rows = self.sql("SELECT owner_id, count(*) FROM complaints.shards WHERE owner_id IS NOT NULL GROUP BY 1")
        return {row["owner_id"]: row["count"] for row in rows}

    def two_schedulers(self) -> tuple[str, str]:
        """The names of two that share the shards."""
        alive = [name for name, each in self.roles.processes.items() if "scheduler" in name and each.exit_code is None]
        while len(alive) < 2:
            alive.append(self.add("scheduler"))
        numbers = {self.node_id(name) for name in alive}
        wait_for(lambda: set(self.shares()) == numbers, "both schedulers own shards")
        return alive[0], alive[1]

    def sql(self, statement: str) -> list[Any]:
        return sql(self.roles.database, statement)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Up"]:
    """`hourhand up`, which starts again what dies."""
    folder = tmp_path_factory.mktemp("complaints-up")
    effects = Effects(folder)
    with Up(folder, environment=SHORT_LEASES | effects.settings) as up:
        yield up


# --- 1 ----------------------------------------------------------------------------------------------------


def test_a_due_time_is_fired_by_the_next_owner_when_its_owner_is_killed_in_that_very_second(cluster: Cluster) -> None:
    """Runs are lost when the leader changes, at a restart or a deploy, because the new one begins at "now"."""
    killed, _ = cluster.two_schedulers()
    with cluster.client() as client:
        jobs = every_second(client, JOBS)
        wait_for(lambda: len(cluster.effects.starts_of(*jobs)) >= 2 * JOBS, "all of them run")
        wait_for(lambda: time.time() % 1 < 0.02, "a second begins")
        cluster.process(killed).kill()
        killed_at = time.time() * 1000
        later = killed_at + 2000
        wait_for(lambda: all(cluster.effects.dues_of(job)[-1] > later for job in jobs), "all go on elsewhere")
        took = time.time() - killed_at / 1000
        for job in jobs:
            client.cancel_job(job)
    assert took < 10
    assert_no_gap(cluster.effects, jobs)


# --- 2 ----------------------------------------------------------------------------------------------------


def test_no_due_time_fires_twice_although_the_old_owner_wakes_up_after_its_lease(cluster: Cluster) -> None:
    """The same fire is executed twice in a cluster, because a lock in memory outlives the right to it."""
    sleeper, other = cluster.two_schedulers()
    alone = {cluster.node_id(other): 1024}
    with cluster.client() as client:
        jobs = every_second(client, JOBS)
        wait_for(lambda: len(cluster.effects.starts_of(*jobs)) >= 2 * JOBS, "all of them run")
        with paused(cluster.process(sleeper).pid):
            wait_for(lambda: cluster.shares() == alone, "the other one owns everything")
        woke_at = time.time() * 1000
        wait_for(lambda: all(cluster.effects.dues_of(job)[-1] > woke_at + 2000 for job in jobs), "all go on")
        for job in jobs:
            client.cancel_job(job)
    wait_for(lambda: not cluster.sql("SELECT 1 FROM complaints.live_runs"), "everything is recorded")
    fired = Counter((effect.job, effect.due) for effect in cluster.effects.starts_of(*jobs))
    assert {key: count for key, count in fired.items() if count > 1} == {}
    assert_no_gap(cluster.effects, jobs)
    doubled = "SELECT job_id, scheduled_for FROM complaints.runs WHERE cause = 0 GROUP BY 1, 2 HAVING count(*) > 1"
    assert cluster.sql(doubled) == []


# --- 5 ----------------------------------------------------------------------------------------------------


def test_runs_of_one_job_overlap_neither_after_a_crash_nor_by_hand_unless_somebody_says_so(cluster: Cluster) -> None:
    """ "No overlap" is not honoured, above all after a crash or for runs that were started by hand."""
    executor = cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="overlap")
    payload = {"handler": "lasts", "seconds": 1.6}
    headers = {"Authorization": f"Bearer {cluster.roles.token}"}
    with cluster.client() as client, httpx.Client(base_url=cluster.roles.urls[0], headers=headers) as http:
        made = client.create_job(name="lasts", payload=payload, schedule={"every": "1s"}, queue="overlap")
        job_id = made.job_id
        wait_for(lambda: ends(cluster.effects.of(job_id)), "one has run")

        def asked_while_one_runs() -> tuple[Any, httpx.Response] | None:
            found = client.list_runs_page(job_id=job_id, status="running").runs
            answer = http.post(f"/api/v1/jobs/{job_id}/run", json={}) if found else None
            # If it was accepted, the run that was found has ended meanwhile, and none was in its way.
            return (found[0], answer) if answer is not None and answer.status_code != 202 else None

        running, refused = wait_for(asked_while_one_runs, "one is asked for while another is running")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:hourhand:problem:overlap")

        cluster.process(executor).kill()
        killed_at = time.time()
        cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="overlap")
        wait_for(lambda: client.get_run(running.run_id).is_final, "what the crash interrupted is run again")
        wait_for(lambda: len(ends(cluster.effects.of(job_id))) >= 3, "and the schedule goes on")
        assert overlaps(cluster.effects.of(job_id), killed_at) == 0
        skipped = client.list_runs_page(job_id=job_id, status="skipped").runs
        assert {run.reason for run in skipped} == {"overlap"}, "what did not run is told, and is no failure"

        wait_for(lambda: client.list_runs_page(job_id=job_id, status="running").runs, "one is running")
        told = http.post(f"/api/v1/jobs/{job_id}/run", json={"overlap": "allow", "note": "I know what I do"})
        assert told.status_code == 202
        beside = client.wait_for_run(told.json()["run_id"], 20)
        assert (beside.status, beside.note) == ("succeeded", "I know what I do")
        client.cancel_job(job_id)


def ends(effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if effect.what == "end"]


def overlaps(effects: list[Effect], killed_at: float) -> int:
    """How many attempts began while another was under way. One without an end was ended by the kill."""
    spans: dict[tuple[UUID, int], list[float]] = defaultdict(list)
    for effect in effects:
        spans[effect.run_id, effect.attempt].append(effect.at)
    closed = sorted((span[0], span[1] if len(span) > 1 else killed_at) for span in spans.values())
    return sum(after[0] < before[1] for before, after in itertools.pairwise(closed) if before[0] != after[0])


# --- 6 ----------------------------------------------------------------------------------------------------


def test_a_run_does_not_stay_running_when_its_executor_is_dead_and_an_operator_need_not_even_wait(
    cluster: Cluster,
) -> None:
    """A run is shown as running for ever after its worker has died, and then it blocks the later ones."""
    with cluster.client() as client:
        mortal = cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="mortal")
        # The lease of this one would last ten minutes; the operator knows better.
        patient = cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="patient", HOURHAND_EXECUTOR_LEASE_SECONDS="600")
        _, number = cluster.node_id(mortal), cluster.node_id(patient)
        runs = start_on(client, "mortal", "patient")
        for name in (mortal, patient):
            cluster.process(name).kill()
        began = time.monotonic()
        cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="mortal,patient")
        assert client.mark_node_lost(number).ended_at is not None
        for run in runs:
            assert_is_tried_again(client, run)
        assert time.monotonic() - began < LEASE + 12


def start_on(client: Client, *queues: str) -> list[UUID]:
    """A run in each queue, which has begun."""
    job = {"name": "lasts", "payload": {"handler": "lasts", "seconds": 4}, "max_retries": 0}
    jobs = [client.create_job(**job, queue=queue).job_id for queue in queues]
    runs = [client.wait_for_start(job_id).run_id for job_id in jobs]
    wait_for(lambda: all(client.get_run(run).status == "running" for run in runs), "they are running")
    return runs


def assert_is_tried_again(client: Client, run_id: UUID) -> None:
    done = client.wait_for_run(run_id, 30)
    assert (done.status, done.attempt) == ("succeeded", 2)
    [lost] = [attempt for attempt in done.attempts if attempt.attempt == 1]
    assert (lost.status, lost.reason) == ("lost", "executor_lost")


# --- 7 ----------------------------------------------------------------------------------------------------


def test_a_job_longer_than_several_leases_is_started_once_whatever_it_does_to_its_executor(cluster: Cluster) -> None:
    """Long jobs are started a second time, because a fixed time has passed or because they keep heartbeats from going
    out."""
    seconds = 2.5 * LEASE
    cluster.add("executor", HOURHAND_EXECUTOR_QUEUES="blocked")  # a loop of its own, to be blocked
    handlers = [("lasts", "default"), ("works", "default"), ("blocks", "blocked")]
    with cluster.client() as client:
        jobs = [
            client.create_job(name=handler, payload={"handler": handler, "seconds": seconds}, queue=queue)
            for handler, queue in handlers
        ]
        command = client.create_job(name="sleeps", kind="command", payload={"argv": ["sleep", str(seconds)]})
        for job in (*jobs, command):
            run = client.wait_for_job(job.job_id, 60)
            assert (run.status, run.attempt, run.attempts[1:]) == ("succeeded", 1, []), job.name
    for job in jobs:
        assert [effect.what for effect in cluster.effects.of(job.job_id)] == ["start", "end"], job.name


# --- 8 ----------------------------------------------------------------------------------------------------


def test_a_job_that_kills_its_executor_three_times_is_put_away_and_executors_live_on(up: Up) -> None:
    """A poison job kills workers for ever: whoever picks it up dies, and it is picked up again."""
    with up.client() as client:
        poison = client.create_job(name="kills", payload={"handler": "kills"}, max_retries=10)
        run = client.wait_for_job(poison.job_id, 60)
        assert (run.status, run.reason, run.attempt) == ("failed", "poison", 3)
        well = client.create_job(name="tick", payload={"handler": "tick"})
        assert client.wait_for_job(well.job_id, 30).status == "succeeded"
    wait_for(lambda: httpx.get(f"{up.url}/readyz", verify=NO_TLS).status_code == 200, "it is ready")


# --- 14 ---------------------------------------------------------------------------------------------------

STUBBORN = "trap 'echo told' TERM; sleep 4711 & sleep 4712 & while true; do wait; done"


class Slow(BaseHTTPRequestHandler):
    """Answers nothing; `calls` and `hangs_up` tell that somebody called, and went."""

    calls = threading.Event()
    hangs_up = threading.Event()

    def do_GET(self) -> None:
        Slow.calls.set()
        self.connection.recv(1)
        Slow.hangs_up.set()


@pytest.fixture
def slow_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_a_running_job_of_any_kind_can_be_cancelled_and_nothing_of_it_is_left(up: Up, slow_server: str) -> None:
    """A running job cannot be stopped, or only its first process is."""
    jobs: dict[str, dict[str, Any]] = {
        "async handler": {"payload": {"handler": "lasts", "seconds": 600}},
        "sync handler": {"payload": {"handler": "works", "seconds": 600}},
        "HTTP call": {"kind": "http", "payload": {"url": slow_server}},
        "command": {"kind": "command", "payload": {"argv": ["sh", "-c", STUBBORN]}},
    }
    with up.client() as client:
        runs = {name: start(client, name, job) for name, job in jobs.items()}
        wait_for(lambda: sleepers(up) == 2, "the command has children")
        assert Slow.calls.wait(10)
        asked = time.monotonic()
        for run_id in runs.values():
            assert client.cancel_run(run_id).status in ("cancelling", "cancelled")
        stubborn = runs["command"]
        wait_for(lambda: "told" in [line.text for line in client.log_lines(stubborn)], "it was asked to end", 10)
        if client.get_run(stubborn).status != "cancelling":  # nobody says that it is gone while anything of it is left
            assert sleepers(up) == 0
        for name, run_id in runs.items():
            done = client.wait_for_run(run_id, 20)
            assert (done.status, done.reason) == ("cancelled", "cancelled"), name
        assert sleepers(up) == 0
        assert time.monotonic() - asked < GRACE + 8
    assert Slow.hangs_up.wait(5)
    assert [name for name in up.cage.names() if "sleep 471" in name] == []


def start(client: Client, name: str, job: dict[str, Any]) -> UUID:
    made = client.create_job(name=name, **job)
    run = client.wait_for_start(made.job_id)
    wait_for(lambda: client.get_run(run.run_id).status == "running", f"the {name} is running")
    return run.run_id


def sleepers(up: Up) -> int:
    return sum("sleep 471" in name and "trap" not in name for name in up.cage.names())
