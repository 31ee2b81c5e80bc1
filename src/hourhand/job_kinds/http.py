"""The kind `http`: calls a URL and keeps the beginning of what it answers.

The checks of a payload live beside it; what speaks to the network is loaded when an executor opens the kind,
so that the API, which only checks, does not pay for it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hourhand.job_kinds.http_payload import http_faults
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
    body_seconds_max: float = 30.0
    """How long an answer's body may drip in before it is cut off and marked as truncated."""
    body_bytes_max: int = 64 * 1024
    """How much of an answer is read and kept."""


class HttpKind:
    name = "http"

    def __init__(self, settings: HttpSettings | None = None) -> None:
        self.slot_class_of: Callable[[str], SlotClass] = self._slot_class_of
        self._settings = settings or HttpSettings()
        self._caller: HttpCaller | None = None

    def check(self, payload: Mapping[str, Any]) -> list[Fault]:
        return http_faults(payload, self._settings.allow_private)

    def needs(self, payload: Mapping[str, Any], job_name: str) -> str:
        return self.name

    def offers(self) -> Sequence[str]:
        return [self.name]

    async def open(self) -> None:
        from hourhand.job_kinds.http_call import HttpCaller

        self._caller = HttpCaller(self._settings)

    async def close(self) -> None:
        if self._caller is not None:
            await self._caller.close()
            self._caller = None

    async def run(self, task: Task) -> Outcome:
        faults = http_faults(task.payload, self._settings.allow_private)
        if faults:  # checked at submission already; a stored job may be older than a rule, or the API more liberal
            blocked = all(fault.code == "target-blocked" for fault in faults)
            message = "; ".join(f"{fault.pointer}: {fault.message}" for fault in faults)
            reason = Reason.TARGET_BLOCKED if blocked else Reason.BAD_ARGUMENTS
            return Failed(reason, clipped(message), retryable=False)
        assert self._caller is not None, "run is called between open and close"
        return await self._caller.call(task)

    def _slot_class_of(self, need: str) -> SlotClass:
        return SlotClass.INLINE
