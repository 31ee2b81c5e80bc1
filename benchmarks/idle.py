"""What `hourhand up` costs while nothing is to be done: processor time and memory of all its processes.

Starts one in a folder of its own, lets it come to rest (PostgreSQL analyses a fresh database in its first minute), then
measures. Short-lived processes count: what a process leaves behind is read from its parent.

    python benchmarks/idle.py --seconds 60 --windows 3
"""

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import psutil

MARK = "HOURHAND_BENCH_IDLE"
REST_SECONDS = 60.0


def processes(mark: str) -> list[psutil.Process]:
    """By their environment, or, as PostgreSQL starts with an empty one, by their folder; and their children."""
    found: set[psutil.Process] = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark or any(mark in word for word in process.cmdline()):
                found |= {process, *process.children(recursive=True)}
        except psutil.Error:
            continue
    return list(found)


def processor_seconds(mark: str) -> float:
    found = processes(mark)
    assert any(process.name() == "postgres" for process in found), "PostgreSQL must be counted"
    return sum(sum(process.cpu_times()[:4]) for process in found)


def megabytes(mark: str) -> float:
    """Besides PostgreSQL; pages that several share are counted once."""
    ours = [process for process in processes(mark) if process.name() != "postgres"]
    return sum(process.memory_full_info().pss for process in ours) / 1e6


def ready(url: str, up: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 120
    while time.monotonic() < ends and up.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise SystemExit("hourhand up did not become ready")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--windows", type=int, default=3)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        environment = {**os.environ, MARK: folder, "HOURHAND_HOME": str(home), "HOURHAND_PORT": str(port)}
        command = [sys.executable, "-m", "hourhand.cli", "up"]
        up = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            begun = time.monotonic()
            ready(f"http://127.0.0.1:{port}", up)
            print(f"ready after {time.monotonic() - begun:.1f} s", flush=True)
            time.sleep(REST_SECONDS)
            shares = []
            for number in range(args.windows):
                before, begun = processor_seconds(folder), time.monotonic()
                time.sleep(args.seconds)
                shares.append(100 * (processor_seconds(folder) - before) / (time.monotonic() - begun))
                print(f"idle window {number + 1}: {shares[-1]:.2f} % of a core", flush=True)
            memory = megabytes(folder)
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)
    print(
        f"idle median: {statistics.median(shares):.2f} % of a core, {memory:.0f} MB (PSS) besides PostgreSQL",
        flush=True,
    )


if __name__ == "__main__":
    main()
