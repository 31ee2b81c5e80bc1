"""Runs in flight are counted by those who would know, not by the product's own tables."""

import asyncio
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hourhand.bench.flight import _Look, slow_server
from hourhand.bench.witness import low_half, read_witness

RUN = "019a8f00-0000-7000-8000-00000000002a"


async def test_the_slow_server_leaves_a_line_for_each_call_that_it_got(tmp_path: Path) -> None:
    head = f"GET / HTTP/1.1\r\nHost: x\r\nHourhand-Run-Id: {RUN}\r\nHourhand-Attempt: 1\r\n\r\n".encode()
    async with slow_server(0.01, tmp_path / "witness") as server:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(head)
            assert (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
    assert list(read_witness(tmp_path / "witness").lows) == [low_half(RUN)] * 2


def test_a_process_is_counted_for_the_run_that_its_environment_names() -> None:
    nodes = [{"role": "executor", "facts": {"pid": os.getpid()}}]
    course: Any = SimpleNamespace(status={"nodes": nodes}, samples=[SimpleNamespace(at=0.0)])
    look = _Look(course, SimpleNamespace(), "process")  # type: ignore[arg-type]
    with subprocess.Popen(["sleep", "30"], env={**os.environ, "HOURHAND_RUN_ID": RUN}) as process:
        while RUN.encode() not in Path(f"/proc/{process.pid}/environ").read_bytes():
            pass  # it has its name a moment before its environment
        look._look_at_processes()
        look._look_at_processes()
        process.kill()
    assert (look.processes_max, look.processes) == (1, {process.pid: low_half(RUN)})
