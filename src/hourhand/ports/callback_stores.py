"""What is needed of the store to let somebody outside end an attempt."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from uuid import UUID


class FoundCallback(NamedTuple):
    fence: int
    said_digest: bytes | None
    """Of what was said; None while nothing was."""
    current: bool
    """Whether the attempt still has its run, and the time for its callback is not over."""


class CallbackStore(Protocol):
    async def open_callback(self, run_id: UUID, fence: int, token_digest: bytes, seconds: float) -> None:
        """From now on, and for so long, whoever has the token may say how the attempt ended."""

    async def said_callbacks(self, attempts: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], Mapping[str, Any]]:
        """What was said, of those attempts of which something was."""


class CallbackAnswers(Protocol):
    async def answer_callback(
        self, run_id: UUID, token_digest: bytes, said: Mapping[str, Any], said_digest: bytes
    ) -> bool:
        """Keeps what is said, if it is the first word, in time, and the attempt still has its run."""

    async def find_callback(self, run_id: UUID, token_digest: bytes) -> FoundCallback | None:
        """None where there is no such token for that run."""
