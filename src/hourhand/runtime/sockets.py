"""Which address can be listened on."""

import socket

from hourhand.model.errors import PortTaken


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
