"""Real servers for the tests of HTTP jobs: certificates made on the spot, a proxy that notes what it is asked for."""

import asyncio
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A server on loopback; every request is noted."""

    def __init__(self, answer: Answer, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._answer = answer
        self._tls = tls
        self._host = host
        self.requests: list[Any] = []

    async def __aenter__(self) -> "Site":
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._noted)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, 0, ssl_context=self._tls).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _noted(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.requests.append(request)
        return await self._answer(request)


async def fine(request: web.Request) -> web.Response:
    return web.Response(text="fine")


class Authority:
    """A certificate authority of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        folder.mkdir()
        self.key, self.cert = folder / "ca.key", folder / "ca.pem"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", self.key, "-out", self.cert,
        )  # fmt: skip

    @property
    def pem(self) -> str:
        return self.cert.read_text()

    def issue(self, name: str, *names: str) -> tuple[Path, Path]:
        """Certificate and key; `names` such as "DNS:a.example" or "IP:127.0.0.1"."""
        key, request, cert = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={name}",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        more = self.folder / f"{name}.ext"
        more.write_text(f"subjectAltName={','.join(names)}\n" if names else "")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.cert, "-CAkey", self.key, "-CAcreateserial", "-days", "2",
            "-extfile", more, "-out", cert,
        )  # fmt: skip
        return cert, key

    def server_side(self, *names: str, clients: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue("server", *names))
        if clients:
            context.load_verify_locations(self.cert)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Proxy:
    """A small HTTP proxy: absolute addresses and CONNECT. Reads names by its own list, notes what it was asked for."""

    def __init__(self, names: dict[str, str] | None = None) -> None:
        self.names = names or {}
        self.asked: list[tuple[str, str]] = []
        self.heads: list[str] = []

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            method, target, _ = head.split(" ", 2)
            self.asked.append((method, target))
            place = target if method == "CONNECT" else target.split("/")[2]
            host, _, port = place.rpartition(":")
            there = await asyncio.open_connection(self.names.get(host, host), int(port))
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                there[1].write(head.replace(f"http://{place}", "", 1).encode())
            await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))
        except (OSError, asyncio.IncompleteReadError, ValueError):
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
