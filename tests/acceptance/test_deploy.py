"""A deployment: every node is replaced in turn, under load, and nobody notices."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from harness import Roles, job_key, read_witness, seen_jobs, sql, wait_for, wait_until_ready

from hourhand.client import Client

STEADY_HANDLER = '''
"""Leaves its witness at its end: a run that was interrupted and run again has left one, not two."""
import asyncio
from hourhand import Context, job
from hourhand.job_kinds.samples import noop


@job("steady")
async def steady(ctx: Context) -> None:
    await asyncio.sleep(0.3)
    await noop(ctx)
'''


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, schema: str) -> Iterator[Roles]:
    (tmp_path / "steady_handler.py").write_text(STEADY_HANDLER)
    modules = "hourhand.job_kinds.samples,steady_handler"
    settings = {"PYTHONPATH": str(tmp_path), "HOURHAND_KINDS_HANDLER_MODULES": modules}
    with Roles(tmp_path, database_url, schema, settings) as roles:
        for role in ("scheduler", "executor", "api"):
            for copy in ("one", "two"):
                roles.start(role, f"{role}-{copy}")
        roles.wait_until_ready()
        yield roles
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


class Load:
    """Submits all the time through the API that is not being replaced; what it was told is stored counts."""

    def __init__(self, cluster: Roles) -> None:
        self._cluster = cluster
        self._thread = threading.Thread(target=self._run)
        self._over = threading.Event()
        self.through = 1
        """Which API it goes through."""
        self.job_ids: list[UUID] = []
        self.faults: list[Exception] = []

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(60)

    def switch(self, number: int) -> None:
        """Goes through another API; returns when the last request through the old one was answered."""
        self.through = number
        begun = len(self.job_ids)
        wait_for(lambda: len(self.job_ids) > begun + 20 or self.faults, "the load goes on elsewhere")

    def _run(self) -> None:
        steady = {"name": "steady", "payload": {"handler": "steady"}}
        clients: dict[int, Client] = {}
        try:
            while not self._over.wait(0.02):
                through = self.through
                if through not in clients:
                    clients[through] = self._cluster.client(through)
                self.job_ids += clients[through].create_jobs([steady] * 5)
        except Exception as fault:
            self.faults.append(fault)


def test_every_node_is_replaced_under_load_and_nothing_is_lost_or_repeated(cluster: Roles, capsys: Any) -> None:
    with Load(cluster) as load:
        wait_for(lambda: seen_jobs(cluster.witness), "the first have run")
        for role in ("scheduler", "executor"):
            for copy in ("one", "two"):
                replace(cluster, role, copy)
                seen = len(seen_jobs(cluster.witness))
                wait_for(lambda seen=seen: len(seen_jobs(cluster.witness)) > seen + 50, "work goes on")
        replace(cluster, "api", "one")
        load.switch(2)  # the third that was started: the new first one
        replace(cluster, "api", "two")
    assert load.faults == []
    wanted = {job_key(job_id) for job_id in load.job_ids}
    wait_for(lambda: wanted <= seen_jobs(cluster.witness), "everything acknowledged has run", 60)
    lines = Counter(line.of for line in read_witness(cluster.witness))
    assert {key: lines[key] for key in wanted if lines[key] != 1} == {}
    with capsys.disabled():
        print(f"\n    {len(wanted)} jobs during the replacement of six nodes, each run once")


def replace(cluster: Roles, role: str, copy: str) -> None:
    """Starts the new one, then asks the old one to go, as a deployment does."""
    new = cluster.start(role, f"{role}-{copy}-new")
    if role == "api":
        wait_until_ready(cluster.urls[-1], new)
    wait_for(lambda: any(name.startswith(f"{role}-{copy}-new") for name in cluster.present()), "the new one is there")
    old = cluster.processes[f"{role}-{copy}"]
    assert old.end() == 0
