"""Whether the names that a new HTTP job calls lead where jobs may not go, as far as that can be told beforehand.

Runs in the API. It spares people a job that can never run; what keeps jobs out is the check when they connect. So a
name that cannot be resolved here, or not in time, is no fault: executors may know it, or somebody makes it tomorrow.
"""

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from hourhand.job_kinds.addresses import blocked_because, literal_address
from hourhand.model.errors import Fault

LOOK_SECONDS_MAX: Final = 1.0
"""How long whoever submits a job waits for it at most."""
REMEMBER_SECONDS: Final = 60.0
NAMES_MAX: Final = 2000
_THREADS: Final = 4
_PLACES: Final = (("/url", ("url",)), ("/oauth/token_url", ("oauth", "token_url")))


class TargetNames:
    def __init__(self, allow_private: bool, resolve: Callable[..., Any] = socket.getaddrinfo) -> None:
        self._allow_private = allow_private
        self._resolve = resolve
        self._known: OrderedDict[str, tuple[float, asyncio.Future[str | None]]] = OrderedDict()
        # Of its own: names that nobody answers for must not hold up what others do in threads.
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="names")

    async def faults(self, payload: Mapping[str, Any]) -> list[Fault]:
        """Of a payload that is right as such. Pointers are below it."""
        faults = []
        for pointer, steps in _PLACES:
            value: Any = payload
            for step in steps:
                value = value.get(step) if isinstance(value, Mapping) else None
            host = urlsplit(value).hostname if isinstance(value, str) else None
            why = await self._blocked(host) if host and literal_address(host) is None else None
            if why is not None:
                faults.append(Fault(pointer, "target-blocked", f"{host} is {why}"))
        return faults

    async def _blocked(self, name: str) -> str | None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        until, looking = self._known.get(name, (0.0, None))
        if looking is None or now >= until:
            looking = loop.run_in_executor(self._threads, self._look, name)
            self._known[name] = now + REMEMBER_SECONDS, looking
            self._known.move_to_end(name)
            while len(self._known) > NAMES_MAX:
                self._known.popitem(last=False)
        done, _ = await asyncio.wait({looking}, timeout=LOOK_SECONDS_MAX)
        return looking.result() if done else None

    def _look(self, name: str) -> str | None:
        try:
            found = self._resolve(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return None
        for *_, address in found:
            why = blocked_because(ip_address(address[0].partition("%")[0]), self._allow_private)
            if why is not None:
                return why
        return None
