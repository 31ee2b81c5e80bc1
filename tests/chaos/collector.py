"""Hears the witnesses, outside of every fault: a process of its own that stamps each line with the true clock.

A unix datagram socket, because it loses nothing: a sender waits when the collector is behind, and a line that was sent
is kept by the kernel when its sender dies. Started as `python collector.py SOCKET FILE OFFSET`; ends with its parent.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

LINE_BYTES_MAX = 4096
ENOUGH = b"enough"
"""The datagram that ends a collector once everything sent before it is written."""


class Collector:
    """The collector as its starter sees it."""

    def __init__(self, socket_path: Path, log: Path, offset: float) -> None:
        self.socket_path = socket_path
        self.log = log
        command = [sys.executable, "-I", "-S", __file__, str(socket_path), str(log), repr(offset), str(os.getpid())]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the collector did not start"

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Returns when all that was sent is in the log."""
        if self._process.poll() is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as voice:
                voice.sendto(ENOUGH, str(self.socket_path))
            self._process.wait(30)


def collect(socket_path: str, log: str, offset: float, parent: int) -> None:
    ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ears.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    ears.bind(socket_path)
    os.chmod(socket_path, 0o666)
    ears.settimeout(2.0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us says when it is enough
    print("ready", flush=True)
    with open(log, "ab", buffering=0) as file:
        while True:
            try:
                line = ears.recv(LINE_BYTES_MAX)
            except TimeoutError:
                if os.getppid() != parent:
                    return
                continue
            if line == ENOUGH:
                return
            file.write(b'{"at":%.6f,%s\n' % (time.monotonic() + offset, line[1:]))


if __name__ == "__main__":
    collect(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
