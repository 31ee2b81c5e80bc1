"""Whether an address can be listened on."""

import socket

from hourhand.model.errors import PortTaken


def refuse_taken_port(host: str, port: int) -> None:
    """Says in one line that the port is taken, before anything is started."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as fault:
            remedy = "stop what listens there, or choose another by HOURHAND_PORT"
            raise PortTaken(f"cannot listen on {host}:{port} ({fault.strerror}): {remedy}") from None
