"""A real S3-compatible server on loopback: versitygw, built once from the Go module proxy and kept by its version."""

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

import pytest

from held_ports import held_port

VERSION: Final = "v1.8.0"
_MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hourhand-tests"
_BUILD_SECONDS_MAX: Final = 1200
ACCESS_KEY: Final = "hourhand-test"
SECRET_KEY: Final = "not-a-secret-of-anybody"


class S3Server(NamedTuple):
    endpoint: str
    root: Path
    """Buckets are folders in it."""
    process: "subprocess.Popen[bytes]"


def built() -> Path:
    """The program. Building it takes some minutes, once per machine and version; other processes wait for the first."""
    program = _CACHE / f"versitygw-{VERSION}"
    if program.exists():
        return program
    if shutil.which("go") is None:
        _give_up("Go is not here to build versitygw")
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return program
        environment = {**os.environ, "GOBIN": str(_CACHE / "building"), "GOFLAGS": "-mod=mod"}
        done = subprocess.run(
            ["go", "install", _MODULE], env=environment, cwd=_CACHE, timeout=_BUILD_SECONDS_MAX, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            _give_up(f"versitygw cannot be built: {done.stderr[-500:]}")
        (_CACHE / "building" / "versitygw").rename(program)
    return program


def _give_up(why: str) -> NoReturn:
    if os.environ.get("CI"):  # where nobody looks at what was skipped, these tests must not get lost
        pytest.fail(f"no S3-compatible server: {why}")
    pytest.skip(f"no S3-compatible server: {why}")


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[S3Server]:
    root = folder / "buckets"
    root.mkdir(parents=True)
    port = held_port()
    environment = {
        "PATH": os.defpath,
        "HOME": str(folder),
        "ROOT_ACCESS_KEY_ID": ACCESS_KEY,
        "ROOT_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    command = [str(built()), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", "posix", str(root)]
    with open(folder / "versitygw.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        _wait_until_open(port, process, folder / "versitygw.log")
        yield S3Server(f"http://127.0.0.1:{port}", root, process)
    finally:
        process.kill()
        process.wait(10)


def _wait_until_open(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError(f"versitygw did not listen in time: {log.read_text()}")
