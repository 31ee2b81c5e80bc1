"""Which address can be listened on, and how many may connect."""

import resource
import socket
from typing import Final

from hourhand.model.errors import PortTaken

FILES_SPARE: Final = 256
"""Open files for all but connections of callers: the database's, files of blobs, the libraries' own."""


def free_port(host: str, port: int) -> int:
    """The port, or any that is free for 0. Says in one line that it is taken, and by whom if that can be seen, before
    anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            return int(probe.getsockname()[1])
        except OSError as fault:
            remedy = f"stop {_holder_of(port) or 'what listens there'}, or choose another by HOURHAND_PORT"
            raise PortTaken(f"cannot listen on {host}:{port} ({fault.strerror}): {remedy}") from None


def allow_connections(wanted: int) -> int:
    """How many connections can be held at once, at most as many as wanted: the limit of open files is raised for them,
    and some are left for everything else."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + FILES_SPARE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else max(min(wanted, soft - FILES_SPARE), 1)


def _holder_of(port: int) -> str | None:
    """The process that listens there; those of other users are not shown to everybody."""
    import psutil

    try:
        for found in psutil.net_connections("tcp"):
            if found.status == psutil.CONN_LISTEN and found.laddr and found.laddr.port == port and found.pid:
                return f"{psutil.Process(found.pid).name()} (process {found.pid}), which listens there"
    except (psutil.Error, OSError):
        pass
    return None
