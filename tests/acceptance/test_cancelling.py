"""Cancel reaches a run wherever it is in the cluster, also when nobody hears the wake-up, and leaves nothing of it."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import pytest
from harness import Roles, sql, wait_for

from hourhand.client import ApiProblem, Client, RunView

RUNS = 20
GRACE_SECONDS = 2.0
TERM_SECONDS_MAX = 2.0
"""From the acknowledgement to the signal, for 99 of 100 runs; of so few, for all."""

# Tells when it is asked to end and does not, and neither does its child, which hides in a session of its own. How long
# it sleeps tells its processes from those of others.
STUBBORN = """
trap 'echo term $(date +%s.%N)' TERM
setsid sh -c 'trap "" TERM; while :; do sleep {mark}; done' &
echo up
while :; do sleep 0.05; done
"""


class Cancelled(NamedTuple):
    term_seconds: float
    gone_seconds: float


@pytest.fixture(params=["heard", "lost"])
def cluster(tmp_path: Path, database_url: str, schema: str, request: pytest.FixtureRequest) -> Iterator[Roles]:
    """With wake-ups, and without: then every node listens at another database, where nobody ever says anything."""
    settings = {"HOURHAND_KINDS_GRACE_SECONDS": f"{GRACE_SECONDS:g}"}
    if request.param == "lost":
        settings["HOURHAND_DATABASE_LISTEN_URL"] = urlunsplit(urlsplit(database_url)._replace(path="/template1"))
    with Roles(tmp_path, database_url, schema, settings) as roles:
        for name in ("scheduler-one", "executor-one", "executor-two", "api-one", "api-two"):
            roles.start(name.partition("-")[0], name)
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def test_a_cancelled_tree_is_asked_within_two_seconds_and_gone_a_second_after_its_grace(
    cluster: Roles, capsys: Any, request: pytest.FixtureRequest
) -> None:
    with cluster.client(0) as client, cluster.client(1) as other:
        runs = {mark: started(client, mark) for mark in range(4600, 4600 + RUNS)}
        wait_for(lambda: all(processes(cluster, mark) for mark in runs), "every tree is up")
        assert len({run.executor for run in runs.values()}) == 2, "both executors have some"

        acknowledged = {}
        for mark, run in runs.items():
            answer = other.cancel_run(run.run_id)
            acknowledged[mark] = time.time()
            assert answer.status == "cancelling"
            assert processes(cluster, mark), "so it is called until the tree is gone"
        seen = [ended(cluster, client, mark, run, acknowledged[mark]) for mark, run in runs.items()]

    terms, gone = sorted(one.term_seconds for one in seen), sorted(one.gone_seconds for one in seen)
    with capsys.disabled():
        how = request.node.callspec.params["cluster"]
        print(
            f"\n    wake-ups {how}: acknowledged to TERM median {terms[RUNS // 2]:.2f} s, most {terms[-1]:.2f} s; "
            f"tree gone after at most {gone[-1]:.2f} s with a grace of {GRACE_SECONDS:g} s"
        )
    assert terms[-1] <= TERM_SECONDS_MAX
    assert gone[-1] <= TERM_SECONDS_MAX + GRACE_SECONDS + 1


def started(client: Client, mark: int) -> RunView:
    script = STUBBORN.format(mark=mark)
    job = client.create_job(name=f"stubborn {mark}", kind="command", payload={"argv": ["sh", "-c", script]})

    def running() -> RunView | None:
        run = client.job_status(job.job_id).latest_run
        return run if run is not None and run.status == "running" else None

    return wait_for(running, f"{mark} runs")


def processes(cluster: Roles, mark: int) -> list[str]:
    return [name for name in cluster.cage.names() if f"sleep {mark}" in name]


def ended(cluster: Roles, client: Client, mark: int, run: RunView, acknowledged: float) -> Cancelled:
    final = client.wait_for_run(run.run_id, 30)
    assert processes(cluster, mark) == [], "a run that is called cancelled has no process"
    assert (final.status, final.reason, final.attempt) == ("cancelled", "cancelled", 1)
    assert isinstance(final.ended_at, datetime)
    asked = [line.text.split()[1] for line in client.log_lines(run.run_id) if line.text.startswith("term ")]
    assert len(asked) == 1, "it was asked once"
    return Cancelled(float(asked[0]) - acknowledged, final.ended_at.timestamp() - acknowledged)


def test_waiting_work_ends_at_once_and_running_work_when_nothing_of_it_is_left(cluster: Roles) -> None:
    with cluster.client(0) as client, cluster.client(1) as other:
        later = client.create_job(
            name="later",
            kind="command",
            payload={"argv": ["true"]},
            schedule={"every": "1h"},
            overlap="allow",
            queue="nobody-serves-it",
        )
        waiting = [client.run_job(later.job_id) for _ in range(3)]
        assert other.cancel_run(waiting[0]).status == "cancelled"
        done = other.cancel_runs(job_id=str(later.job_id))
        assert (done.cancelled, done.cancelling) == (2, 0)
        with pytest.raises(ApiProblem) as refused:
            client.cancel_run(waiting[0])
        assert refused.value.code == "run-already-final"

        run = started(client, 4700)
        job = client.get_job(run.job_id)
        assert other.cancel_job(job.job_id).too_late == [run.run_id]
        assert client.get_run(run.run_id).status == "cancelling"
        final = client.wait_for_run(run.run_id, 30)
        assert final.status == "cancelled"
        assert processes(cluster, 4700) == []
