"""Where log lines are kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from hourhand.model.log import LogEnd, LogRow, Place
from hourhand.model.run import LogLine


class LogStore(Protocol):
    async def append_logs(self, chunks: Sequence["LogChunk"]) -> None:
        """Stores rows, all or none. One that is there already is left as it is: saying it twice does no harm. Raises
        LogOutOfOrder for one that does not follow the row that it says it follows."""

    async def read_rows(self, run_id: UUID, after: Place, limit: int) -> list[LogRow]:
        """Rows in order, from the one on that holds the line behind the place; it may hold earlier ones too, or no
        later one at all. Fewer than `limit`: there are no more at this moment."""

    async def read_logs(self, run_id: UUID, after_attempt: int, after_line: int, limit: int) -> list[LogLine]:
        """Lines behind a place, at most so many."""

    async def search_rows(
        self, run_id: UUID, after: Place, text: str, ignore_case: bool, limit: int
    ) -> list[LogRow | Place]:
        """The same rows; of one that does not hold the text only the place behind it. A row that is given may still
        not hold it within one line."""

    async def log_ends(self, run_id: UUID) -> dict[int, LogEnd]:
        """Where the log of each attempt ends that has one."""


class LogTip(NamedTuple):
    """Where the log of a run ends at this moment, and where the run stands: another tip, and there may be news."""

    attempt: int | None
    """Of the last row. None: there is none."""
    first_line: int | None
    state: str | None
    """Of the run while it is live."""
    live_attempt: int | None


class LogTips(Protocol):
    async def log_tips(self, run_ids: Sequence[UUID]) -> dict[UUID, LogTip]:
        """The tips of these runs, each of them."""


@dataclass(slots=True)
class LogChunk:
    """Consecutive lines of one attempt. Times and streams are one for each line, or one for all of them."""

    run_id: UUID
    attempt: int
    first_line: int
    at: list[datetime] = field(default_factory=list)
    stream: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    left_out: int = 0
    """Not 0 for a mark: its one line stands for so many that are not kept, of which it has the first one's number."""
    is_last: bool = False
    """Nothing follows in this attempt: it has ended, and everything it wrote was passed on."""
    total_bytes: int = 0
    """With the last one: how much of the attempt was passed on altogether."""
    after: int = 0
    """The first number of the row before it in its attempt, which must be there; 0 when nothing need be."""
    weight: int = 0
    """What it takes in memory, about; for whoever holds it."""
