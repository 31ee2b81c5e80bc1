"""Ports that are chosen now and listened on later, by whoever is started with them."""

import socket

_held: list[socket.socket] = []


def held_port() -> int:
    """A port of this machine on which nobody listens. It is not given to anybody else while this process lives, also
    not between two starts of one server: it stays bound, which does not hinder those who name it from listening."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _held.append(holder)
    return int(holder.getsockname()[1])
