"""What is needed of the store to let somebody outside end an attempt."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

TOLD_IDS_MAX: Final = 100
"""Signed words of progress that count in one second. Further ones of that second are passed over."""


class FoundCallback(NamedTuple):
    token_digest: bytes
    fence: int
    key_id: str | None
    """The master key that the executor has for it; None where it has none."""
    said_digest: bytes | None
    """Of what was said; None while nothing was."""
    current: bool
    """Whether the attempt still has its run, and the time for its callback is not over."""
    told_second: int | None
    """When the newest signed word of progress was signed; None while there was none."""
    told_ids: Sequence[bytes]
    """The words of that second, by the digests of their ids."""


class SaidCallback(NamedTuple):
    said: Mapping[str, Any]
    is_last: bool
    """Whether it is how the attempt ended; else how far it has come."""


class CallbackKeys(Protocol):
    """What an executor and the API have in common that the database does not know: the master keys of one file, each
    known by its id. What is used raises BadConfiguration when the file cannot be used."""

    @property
    def key_ids(self) -> Sequence[str]:
        """The current one first; empty where there is no file."""

    def derived(self, key_id: str, purpose: bytes) -> bytes | None:
        """A key that follows from a master key and a purpose; None where that master key is not here."""

    def seal_for(self, key_id: str, purpose: bytes, value: bytes) -> bytes | None:
        """None where that master key is not here."""

    def open_for(self, key_id: str, purpose: bytes, sealed: bytes) -> bytes:
        """Raises SecretsUnavailable when that master key is not here."""


class CallbackStore(Protocol):
    async def open_callback(
        self, run_id: UUID, fence: int, token_digest: bytes, seconds: float, key_id: str | None
    ) -> None:
        """From now on, and for so long, whoever has the token may say how the attempt ended; and whoever signs by what
        follows from the master key of that id."""

    async def said_callbacks(self, attempts: Sequence[tuple[UUID, int]]) -> dict[tuple[UUID, int], SaidCallback]:
        """The newest word, of those attempts of which something was said."""


class CallbackAnswers(Protocol):
    async def answer_callback(
        self, run_id: UUID, token_digest: bytes, said: Mapping[str, Any], said_digest: bytes
    ) -> bool:
        """Keeps what is said, if it is the first word, in time, and the attempt still has its run."""

    async def tell_callback(self, run_id: UUID, token_digest: bytes, said: Mapping[str, Any]) -> None:
        """Keeps what is said of progress for the executor, in the place of what was said of it before."""

    async def find_callbacks(self, run_id: UUID, token_digest: bytes | None = None) -> list[FoundCallback]:
        """The one of that token, if the run has it; without a token those of the run's newest attempts, the newest
        first."""

    async def mark_told(self, token_digest: bytes, second: int, message_id: bytes) -> None:
        """A word of progress that was signed in that second was heard, and is not to be heard again."""
