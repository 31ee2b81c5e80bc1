"""What is measured: a running Hourhand, or a temporary one that is gone afterwards."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from hourhand.bench.cluster import Cluster, TemporaryRoles, temporary_up
from hourhand.bench.report import Progress
from hourhand.bench.wire import CONNECTIONS_MAX, Wire, expect
from hourhand.model.errors import WorldError

WITNESS_BYTES_MAX: Final = 1 << 30
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the file gets a name of its own that nobody can guess


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    token: str
    witness: Path
    """The file that its executors append to."""
    own: bool
    """True when nobody else submits to it."""
    cluster: Cluster | None = None
    """Set for a temporary one: its processes and its database can be looked at."""

    def client(self) -> httpx.AsyncClient:
        """For questions, not for load."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    def wire(self, connections_max: int = CONNECTIONS_MAX) -> Wire:
        return Wire(self.url, self.token, connections_max)

    async def status(self) -> dict[str, Any]:
        """What the cluster says about itself. Costs more the more it has run within the hour: not for polling."""
        async with self.wire() as wire:
            said = expect(await wire.get("/api/v1/cluster"), 200, "GET /api/v1/cluster")
        status: dict[str, Any] = msgspec.json.decode(said)
        return status

    def settings(self, status: Mapping[str, Any]) -> dict[str, str]:
        """Those of its database that decide whether a figure counts, and those that were changed for it."""
        changed = self.cluster.settings if self.cluster is not None else {}
        shown = {key: value for key, value in changed.items() if not key.startswith("bench.")}  # those are ours
        return {**status.get("database", {}), **shown}


@contextlib.asynccontextmanager
async def open_target(
    server: str | None = None,
    token: str | None = None,
    witness: Path | None = None,
    settings: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> AsyncIterator[Target]:
    """A running Hourhand, or a temporary one with these settings (by key)."""
    if server is not None:
        if not token:
            raise WorldError("--server needs --token")
        if settings:
            raise WorldError("--set is for the temporary cluster; a running one has its settings already")
        target = Target(server.rstrip("/"), token, witness or Path(), own=False)
        target = target if witness else replace(target, witness=await _witness_of(target))
        target.witness.touch()  # its executors make it with their first line
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="hourhand-bench-") as folder, _witness_file() as file:
        async with temporary_up(Path(folder), file, settings or {}, progress or Progress.silent()) as found:
            url, own_token, cluster = found
            yield Target(url, own_token, file, own=True, cluster=cluster)


@contextlib.contextmanager
def _witness_file() -> Iterator[Path]:
    """In memory, where the machine has a folder for that: a line costs a third of what it does on a disk, and what it
    costs is ours and not the product's."""
    with tempfile.TemporaryDirectory(prefix="hourhand-bench-", dir=_memory(_MEMORY)) as own:
        file = Path(own) / "witness"
        file.touch()
        yield file


def _memory(folder: Path) -> Path | None:
    """The folder, if it can be used and has room for the longest measurement: half an hour of 5,000 lines a second
    takes half a gigabyte, and containers often have 64 MB there."""
    if not os.access(folder, os.W_OK) or shutil.disk_usage(folder).free < WITNESS_BYTES_MAX:
        return None
    return folder


@contextlib.asynccontextmanager
async def open_roles(settings: Mapping[str, str], progress: Progress) -> AsyncIterator[tuple[TemporaryRoles, Target]]:
    """A temporary PostgreSQL with an API and nothing else yet."""
    with tempfile.TemporaryDirectory(prefix="hourhand-bench-") as folder:
        async with TemporaryRoles(Path(folder), settings, progress) as roles:
            await roles.start("api")
            yield roles, Target(roles.url, roles.token, roles.witness, own=True, cluster=roles.cluster)


async def _witness_of(target: Target) -> Path:
    """The witness file that the executors of a running cluster say they append to."""
    nodes = (await target.status())["nodes"]
    paths = {node["facts"].get("bench_witness") for node in nodes if node["role"] == "executor"}
    path = Path(paths.pop() or "/nowhere") if len(paths) == 1 else None
    if path is None or not path.parent.is_dir():
        raise WorldError("the executors of that server do not append to one file here: name it by --witness")
    return path
