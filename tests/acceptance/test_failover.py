"""Two servers, one of which takes writes: when another one takes its place, every role finds it by itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Roles, job_key, seen_jobs, wait_for
from servers import Postgres
from test_database_faults import BODY, Load, assert_problem_documents


class Pair:
    """A primary and a standby that has everything before a commit is acknowledged."""

    def __init__(self, folder: Path) -> None:
        self.primary = Postgres(folder / "primary").create().start()
        self.standby = Postgres(folder / "standby").copy_of(self.primary).start()
        self.primary.set("synchronous_standby_names", "*")
        self.wait_for_standby()

    @property
    def url(self) -> str:
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://owner@{hosts}/postgres?target_session_attrs=read-write"

    def wait_for_standby(self) -> None:
        caught_up = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn >= pg_current_wal_lsn()"
        wait_for(lambda: self.primary.ask(caught_up), "the standby has everything")

    def promote(self) -> None:
        self.standby.ask("SELECT pg_promote()")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    try:
        yield pair
    finally:
        pair.primary.close()
        pair.standby.close()


@pytest.fixture
def cluster(tmp_path: Path, pair: Pair) -> Iterator[Roles]:
    with Roles(tmp_path / "cluster", pair.url, "hourhand") as roles:
        for role in ("scheduler", "executor", "api"):
            roles.start(role, f"{role}-only")
        roles.wait_until_ready()
        yield roles


def test_jobs_acknowledged_before_the_primary_was_lost_run_on_the_standby_that_took_its_place(
    cluster: Roles, pair: Pair
) -> None:
    with cluster.client() as client:
        beat = client.create_job(**BODY, schedule={"every": "1s"})
    with Load(cluster) as load:
        load.wait_for_more()
        pair.primary.kill()
        pair.promote()
        load.wait_for_more()
    assert_everything_went_on(cluster, load, str(beat.job_id))


def test_a_primary_that_was_made_read_only_is_left_for_the_one_that_takes_writes(cluster: Roles, pair: Pair) -> None:
    """Nothing breaks the connections to it: every answer is there, and none is of any use."""
    with cluster.client() as client:
        beat = client.create_job(**BODY, schedule={"every": "1s"})
    with Load(cluster) as load:
        load.wait_for_more()
        pair.primary.set("default_transaction_read_only", "on")
        pair.wait_for_standby()
        pair.promote()
        load.wait_for_more()
    assert_everything_went_on(cluster, load, str(beat.job_id))
    ours = "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'hourhand%'"
    wait_for(lambda: not pair.primary.ask(ours), "nobody holds on to the old one")


def assert_everything_went_on(cluster: Roles, load: Load, beat: str) -> None:
    wanted = {job_key(job_id) for job_id in load.acknowledged}
    wait_for(lambda: wanted <= seen_jobs(cluster.witness), "every acknowledged job has run", 60)
    assert load.broken == [], "a caller is always answered"
    assert_problem_documents(load.refused)
    with cluster.client() as client:
        ran = len(list(client.job_runs(beat)))
        wait_for(lambda: len(list(client.job_runs(beat))) > ran + 1, "the schedule goes on")
    assert [process.exit_code for process in cluster.processes.values()] == [None] * 3, "nobody had to be restarted"
