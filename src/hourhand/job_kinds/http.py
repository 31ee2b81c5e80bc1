"""The kind `http`: calls a URL and keeps the beginning of what it answers.

The checks of a payload live beside it; what speaks to the network is loaded when an executor opens the kind,
so that the API, which only checks, does not pay for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hourhand.job_kinds.http_payload import Allowed, http_faults
from hourhand.model.errors import Fault
from hourhand.model.outcome import Failed, Outcome, clipped
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass, Task

if TYPE_CHECKING:
    from hourhand.job_kinds.http_call import HttpCaller


@dataclass(frozen=True, slots=True)
class HttpSettings:
    allow_private: bool = False
    """Whether jobs may call loopback and private addresses; link-local ones are refused in any case."""
    connect_seconds_max: float = 30.0
    """How long a connection may take to be made."""
    idle_seconds_max: float = 300.0
    """How long a server may be silent, before its answer and in the midst of it."""
    total_seconds_max: float = 3600.0
    """How long a call may take with all its redirects, for jobs that set no timeout of their own."""
    body_seconds_max: float = 30.0
    """How long an answer's body may drip in before it is cut off and marked as truncated."""
    body_bytes_max: int = 64 * 1024
    """How much of an answer is read and kept."""
    ca_file: Path | None = None
    """Certificates (PEM) that are believed beside those that the machine trusts."""
    allow_unverified_tls: bool = False
    """Whether jobs may leave the server's certificate unchecked."""
    proxy: str | None = None
    """The proxy that all calls go through."""
    proxy_resolves_names: bool = False
    """Whether that proxy is given names; else it is given the addresses that were judged here."""
    allow_job_proxies: bool = False
    """Whether jobs may name a proxy of their own."""

    @property
    def allowed(self) -> Allowed:
        return Allowed(self.allow_private, self.allow_unverified_tls, self.allow_job_proxies)


class HttpKind:
    name = "http"

    def __init__(self, settings: HttpSettings | None = None) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._settings = settings or HttpSettings()
        self._allowed = self._settings.allowed
        self._caller: HttpCaller | None = None

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return http_faults(payload, self._allowed)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [self.name]

    async def open(self) -> None:
        from hourhand.job_kinds.http_call import HttpCaller

        self._caller = HttpCaller(self._settings)
        await self._caller.open()

    async def close(self) -> None:
        if self._caller is not None:
            await self._caller.close()
            self._caller = None

    async def run(self, task: Task) -> Outcome:
        faults = http_faults(task.payload, self._allowed)
        if faults:  # checked at submission already; a stored job may be older than a rule, or the API more liberal
            blocked = all(fault.code == "target-blocked" for fault in faults)
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            reason = Reason.TARGET_BLOCKED if blocked else Reason.BAD_ARGUMENTS
            return Failed(reason, clipped(message), retryable=False)
        assert self._caller is not None, "run is called between open and close"
        return await self._caller.call(task)

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.INLINE
