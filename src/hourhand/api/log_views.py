"""Logs as the API shows them."""

from datetime import datetime
from uuid import UUID

import msgspec

from hourhand.model.log import without_steering
from hourhand.model.run import LogLine
from hourhand.operations.logs import JobMatches
from hourhand.operations.requests import LogPage


class LogLineView(msgspec.Struct, omit_defaults=True):
    attempt: int
    number: int
    """Counted by the printing, from 1 within each attempt."""
    at: datetime
    stream: str
    text: str
    left_out: int = 0
    """There for a mark only: it stands for so many lines that are not kept; the next line has `number` + `left_out`."""


class LogPageView(msgspec.Struct):
    lines: list[LogLineView]
    next: str
    """Where to go on."""
    ended: bool
    """Nothing follows: the run is final."""
    more: bool
    """There is more right now."""


class LogEndView(msgspec.Struct):
    status: str
    reason: str | None


class JobLogMatchView(LogLineView, omit_defaults=True, kw_only=True):
    run_id: UUID


class JobLogMatchesView(msgspec.Struct):
    matches: list[JobLogMatchView]
    next_cursor: str | None
    """Where to go on; there while not everything was looked at, also when nothing was found so far."""


def log_page_view(page: LogPage, *, strip: bool = False) -> LogPageView:
    lines = [log_line_view(line, strip=strip) for line in page.lines]
    return LogPageView(lines, f"{page.next_attempt}:{page.next_line}", page.ended, page.more)


def log_line_view(line: LogLine, *, strip: bool = False) -> LogLineView:
    text = without_steering(line.text) if strip else line.text
    return LogLineView(line.attempt, line.number, line.at, line.stream, text, line.left_out)


def job_log_matches_view(found: JobMatches, cursor: str | None, *, strip: bool = False) -> JobLogMatchesView:
    matches = []
    for match in found.matches:
        line = match.line
        text = without_steering(line.text) if strip else line.text
        matches.append(
            JobLogMatchView(
                line.attempt, line.number, line.at, line.stream, text, line.left_out, run_id=match.run_id
            )
        )  # fmt: skip
    return JobLogMatchesView(matches, cursor)
