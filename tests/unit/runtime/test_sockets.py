"""A port that is taken (179): one line, with whoever has it."""

import os
import socket

import psutil
import pytest

from hourhand.model.errors import PortTaken
from hourhand.runtime.sockets import free_port


def test_a_port_that_is_taken_names_who_has_it() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortTaken) as raised:
            free_port("127.0.0.1", port)
    me = f"{psutil.Process().name()} (process {os.getpid()})"
    assert str(raised.value) == (
        f"cannot listen on 127.0.0.1:{port} (Address already in use): "
        f"stop {me}, which listens there, or choose another by HOURHAND_PORT"
    )
    assert free_port("127.0.0.1", port) == port


def test_a_port_that_nobody_chose_is_a_free_one() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port("127.0.0.1", 0)))


def test_a_holder_that_may_not_be_seen_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(kind: str) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "net_connections", refused)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(PortTaken, match="stop what listens there"):
            free_port("127.0.0.1", holder.getsockname()[1])
