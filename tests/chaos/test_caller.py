"""What is written down of a call whose answer nobody heard: `fail` is only what was certainly not carried out."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.chaos.caller import Caller
from tests.chaos.history import ClientCall, read_lines
from tests.chaos.truth import LogFile, TrueClock
from tests.held_ports import held_port

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


class DyingApi:
    """Answers the first request, keeps the connection, and dies as soon as it has read the second."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._server is not None
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heard.append(head.split()[0].decode())
            if len(self.heard) == 2:
                self._server.close()
                writer.transport.abort()
                return
            writer.write(ANSWER)


async def ask(tmp_path: Path, url: str, *methods: str) -> list[ClientCall]:
    """Asks one API that is there, or not, and gives what was written down."""
    path = tmp_path / "client.jsonl"
    cluster: Any = SimpleNamespace(
        token="t", clock=TrueClock(), api_names=["api-1"], nodes={"api-1": SimpleNamespace(url=url)}
    )
    with LogFile(path) as log:
        caller = Caller(cluster, log, seed=1)
        await caller.open()
        try:
            for method in methods:
                await caller.call("other" if method == "GET" else "delete", method, "/jobs/1", job_id="1")
        finally:
            await caller.close()
    return read_lines(path, ClientCall)


async def test_a_delete_that_was_read_by_a_node_that_then_died_is_not_called_undone(tmp_path: Path) -> None:
    """The driver asks again by itself, and finds nobody: that is not the whole story."""
    api = DyingApi()
    await api.start()
    [first, second] = await ask(tmp_path, api.url, "GET", "DELETE")
    assert api.heard == ["GET", "DELETE"]
    assert first.outcome == "ok"
    assert second.note.startswith("ClientConnectorError"), "the second sending was refused"
    assert (second.outcome, second.status, second.ended_at) == ("info", None, None)


async def test_a_delete_that_nobody_took_is_called_undone(tmp_path: Path) -> None:
    [call] = await ask(tmp_path, f"http://127.0.0.1:{held_port()}", "DELETE")
    assert (call.outcome, call.status) == ("fail", None)
