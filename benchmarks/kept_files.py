"""How fast files are kept and given back, and what that takes of the memory of the processes it passes through.

For each storage of blobs (a local folder; an S3-compatible server, which is versitygw on this machine):

- the storage alone: one blob of the size written and read back, in this process;
- through a whole Hourhand: the same as uploaded code, sent to the API and fetched from it; and as a file that a command
  leaves in its output folder, kept by the executor and fetched from the API.

Every digest is compared. Memory is what the API, the executor, the scheduler and the client (this process) have more,
at the most, than before each step. Ends with 1 when any of them had more than `--memory-max-mb`, whatever the size.

    python benchmarks/kept_files.py --mb 1000 --storages folder s3
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from hourhand.bench.target import Target, open_target
from hourhand.blobs.choice import blobs_for
from hourhand.blobs.settings import BlobSettings
from hourhand.client import AsyncClient
from pairs import HERE

MB = 1_000_000
PIECE = os.urandom(1 << 18)
"""Repeated: nothing on the way makes it smaller."""
SAMPLE_SECONDS = 0.02
WATCHED = ("api", "executor", "scheduler", "client")
BUCKET = "kept"
LEAVE = 'cp "$1" "$HOURHAND_OUTPUT_DIR/left.bin" && date +%s.%N'


async def storage_alone(settings: BlobSettings, home: Path, mb: int) -> dict[str, float]:
    blobs = blobs_for(settings, home)
    await blobs.check()
    before = hashlib.sha256()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, mb * MB, len(PIECE)):
            piece = PIECE[: mb * MB - start]
            before.update(piece)
            yield piece

    try:
        begun = time.monotonic()
        stored = await blobs.put("bench/one", pieces())
        put_seconds = time.monotonic() - begun
        after, begun = hashlib.sha256(), time.monotonic()
        async for piece in blobs.get("bench/one"):
            after.update(piece)
        get_seconds = time.monotonic() - begun
        assert stored.digest == before.hexdigest() == after.hexdigest()
        await blobs.delete(["bench/one"])
    finally:
        await blobs.close()
    return {"put_mb_per_second": mb / put_seconds, "get_mb_per_second": mb / get_seconds}


def written(path: Path, mb: int) -> Path:
    with open(path, "wb") as file:
        for start in range(0, mb * MB, len(PIECE)):
            file.write(PIECE[: mb * MB - start])
    path.chmod(0o644)  # the command is another user
    return path


async def through_the_api(target: Target, folder: Path, mb: int) -> dict[str, float]:
    given = await asyncio.to_thread(written, folder / "given.bin", mb)
    found: dict[str, float] = {}
    async with AsyncClient(target.url, target.token, timeout=600) as client, watching(target, found) as step:
        async with step("upload"):
            await client.upload_artifact("bench.bin", given)
        async with step("download"):
            await client.download_artifact("bench.bin", folder / "code.bin")
        async with step("left", timed=False):
            argv = ["sh", "-c", LEAVE, "leave", str(given)]
            made = await client.create_job(name="leaves", kind="command", payload={"argv": argv}, timeout="10m")
            run = await client.wait_for_job(made.job_id, 600)
        assert run.status == "succeeded", run.error
        assert run.ended_at is not None
        said = (await client.run_logs(run.run_id)).lines[-1].text
        found["keep_seconds"] = run.ended_at.timestamp() - float(said)
        async with step("fetch"):
            await client.download_run_file(run.run_id, "left.bin", folder / "left.bin")
    assert (folder / "left.bin").stat().st_size == mb * MB  # digests were compared on the way
    return found


@contextlib.asynccontextmanager
async def watching(target: Target, found: dict[str, float]) -> AsyncIterator[Any]:
    """Steps whose time is noted, and the memory that each takes of everybody who could hold the bytes."""
    async with target.client() as http:
        nodes = (await http.get("/api/v1/cluster")).json()["nodes"]
    processes = {node["role"]: psutil.Process(node["facts"]["pid"]) for node in nodes}
    processes["client"] = psutil.Process()
    assert set(processes) == set(WATCHED), processes

    async def sample(before: Mapping[str, int], most: dict[str, int]) -> None:
        while True:
            for role, process in processes.items():
                most[role] = max(most.get(role, 0), process.memory_info().rss - before[role])
            await asyncio.sleep(SAMPLE_SECONDS)

    @contextlib.asynccontextmanager
    async def step(name: str, timed: bool = True) -> AsyncIterator[None]:
        most: dict[str, int] = {}
        before = {role: process.memory_info().rss for role, process in processes.items()}
        sampling = asyncio.create_task(sample(before, most))
        begun = time.monotonic()
        try:
            yield
        finally:
            sampling.cancel()
        if timed:
            found[f"{name}_seconds"] = time.monotonic() - begun
        for role in WATCHED:
            key = f"{role}_memory_more_mb"
            found[key] = max(found.get(key, 0.0), most.get(role, 0) / MB)

    yield step


@contextlib.contextmanager
def storage(name: str, folder: Path) -> Iterator[BlobSettings]:
    if name == "folder":
        yield BlobSettings(url=(folder / "blobs").as_uri())
        return
    sys.path += [str(HERE.parent / "tests" / "contract"), str(HERE.parent / "tests")]
    from s3_server import ACCESS_KEY, SECRET_KEY, serving  # late: it needs what only tests have

    with serving(folder / "s3") as server:
        (server.root / BUCKET).mkdir()
        yield BlobSettings(
            url=f"s3://{BUCKET}/bench",
            endpoint=server.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
        )


def as_settings(settings: BlobSettings, folder: Path, mb: int) -> dict[str, str]:
    fields = ("url", "endpoint", "region", "access_key_id", "secret_access_key")
    told = {f"blobs.{field}": value for field in fields if (value := getattr(settings, field)) is not None}
    # The command reads what lies in our folder, which is in /tmp, where programs have places of their own.
    return told | {"api.artifact_bytes_max": str(2 * mb * MB), "kinds.shared": str(folder)}


async def measure(settings: BlobSettings, folder: Path, mb: int) -> dict[str, float]:
    found = await storage_alone(settings, folder, mb)
    async with open_target(settings=as_settings(settings, folder, mb)) as target:
        steps = await through_the_api(target, folder, mb)
    for step in ("upload", "download", "keep", "fetch"):
        found[f"{step}_mb_per_second"] = mb / steps[f"{step}_seconds"]
    found |= {key: value for key, value in steps.items() if key.endswith("_mb")}
    return {key: round(value, 1) for key, value in found.items()}


def measured(name: str, mb: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="hourhand-bench-") as made:
        folder = Path(made)
        folder.chmod(0o711)
        (folder / "s3").mkdir()
        with storage(name, folder) as settings:
            return asyncio.run(measure(settings, folder, mb))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--storages", nargs="+", choices=["folder", "s3"], default=["folder", "s3"])
    parser.add_argument("--memory-max-mb", type=float, default=100)
    given = parser.parse_args()
    found = {name: measured(name, given.mb) for name in given.storages}
    print(json.dumps({"mb": given.mb, **found}))
    most = max(figures[f"{role}_memory_more_mb"] for figures in found.values() for role in WATCHED)
    if most > given.memory_max_mb:
        sys.exit(f"{most} MB more in one process: the files are not streamed")


if __name__ == "__main__":
    main()
