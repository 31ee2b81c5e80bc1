"""Calls addresses that jobs must not reach, inside a network of its own where somebody listens on each of them.

Run by test_ssrf.py in fresh network and mount namespaces. Names are resolved by the machine's own resolver, which asks
the small DNS server here; one of its names has another address each time it is asked for. Prints what became of every
call and how often each listener was reached.
"""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.ports.job_kind import Task

PUBLIC = "93.184.216.34"
INSIDE = ("127.0.0.1", "127.0.0.53", "10.0.0.5", "172.16.0.9", "192.168.7.7", "100.64.0.3", "169.254.169.254",
          "100.100.100.200", "::1", "fd00:ec2::254", "fd12::1")  # fmt: skip
NAMES = {
    "good.example": [[PUBLIC]],
    "private.example": [["10.0.0.5"]],
    "meta.example": [["169.254.169.254"]],
    "mixed.example": [[PUBLIC, "10.0.0.5"]],
    "flip.example": [[PUBLIC], ["127.0.0.1"], ["169.254.169.254"]],
}


class Dns(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        labels, place = [], 12
        while data[place]:
            labels.append(data[place + 1 : place + 1 + data[place]].decode())
            place += data[place] + 1
        name, question = ".".join(labels).lower(), data[12 : place + 5]
        answers = b""
        count = 0
        if name in NAMES and struct.unpack(">H", data[place + 1 : place + 3])[0] == 1:
            looks = NAMES[name]
            found = looks[self.asked[name] % len(looks)]
            self.asked[name] += 1
            for each in found:
                answers += b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(each)
            count = len(found)
        head = data[:2] + struct.pack(">HHHHH", 0x8580 if name in NAMES else 0x8583, 1, count, 0, 0)
        self.transport.sendto(head + question + answers, address)


class Listener:
    """Answers, sends on to where the query says, and counts."""

    def __init__(self, address: str, hits: Counter[str]) -> None:
        self.address = address
        self.hits = hits

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.hits[self.address] += 1  # the connection alone is one too many
        try:
            target = urlsplit((await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1])
            onward = "/loop" if target.path == "/loop" else parse_qs(target.query).get("to", [None])[0]
            status = "200 OK" if onward is None else f"302 Found\r\nLocation: {onward}"
            # Closed each time: a connection that is kept leads to the address that was judged, and proves nothing.
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfine".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def task(url: str) -> Task:
    payload = {"url": url, "follow_redirects": True}
    return Task(uuid4(), uuid4(), "default", "x", "http", payload, 1, 1, datetime.now(UTC), lambda *_: None)


async def main(cases: dict[str, Any]) -> dict[str, Any]:
    for address in (PUBLIC, *INSIDE):
        if not address.startswith("127.") and address != "::1":
            # `nodad`: an address whose uniqueness is still being looked into cannot be listened on.
            of_version = ["128", "nodad"] if ":" in address else ["32"]
            subprocess.run(
                ["ip", "addr", "add", f"{address}/{of_version[0]}", "dev", "lo", *of_version[1:]], check=True
            )
    hits: Counter[str] = Counter()
    for address in (PUBLIC, *INSIDE):
        await asyncio.start_server(Listener(address, hits).serve, address, 80)
    dns = Dns()
    await asyncio.get_running_loop().create_datagram_endpoint(lambda: dns, local_addr=("127.0.0.2", 53))
    said = {}
    for grant in ("strict", "private"):
        kind = HttpKind(HttpSettings(allow_private=grant == "private"))
        await kind.open()
        said[grant] = []
        for url in cases[grant]:
            async with asyncio.timeout(20):
                outcome = await kind.run(task(url))
            said[grant].append(getattr(outcome, "reason", "ok"))
        await kind.close()
    return {"said": said, "hits": hits, "asked": dns.asked}


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    resolver = Path(sys.argv[1])
    resolver.write_text("nameserver 127.0.0.2\noptions attempts:1 timeout:2\n")
    subprocess.run(["mount", "--bind", str(resolver), "/etc/resolv.conf"], check=True)
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))
