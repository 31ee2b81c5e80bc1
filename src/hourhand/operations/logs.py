"""What a caller may ask of logs: read a page, follow, search, take the whole.

Every answer is bounded in lines and in bytes, every search in what it looks at; both say where to go on.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from uuid import UUID

import msgspec

from hourhand.model.errors import NotFound
from hourhand.model.log import LOST_TEXT, START, LogRow, Place, end_of, lines_in
from hourhand.model.parts import is_part
from hourhand.model.run import LogLine, Run
from hourhand.operations.log_source import LogSource
from hourhand.operations.log_watch import LogWatch
from hourhand.operations.requests import Caller, LogPage, RunFilter, RunPage
from hourhand.ports.log_stores import LogTip
from hourhand.ports.placing_stores import PartsRead

PAGE_BYTES_MAX: Final = 2 * 1024 * 1024
"""A page ends after about so much text, whatever its limit: lines may be long."""
STREAM_LINES_MAX: Final = 500
"""Lines per event of a stream."""
STREAM_BYTES_MAX: Final = 256 * 1024
"""About how much text an event has: as much waits in memory for each caller who reads slowly."""
SCAN_ROWS_MAX: Final = 512
"""Rows that one search looks at before it answers; a row has at most some 128 KiB."""
SCAN_RUNS_MAX: Final = 100
"""Runs that one search over a job looks at."""
SAID_SOON: Final = timedelta(seconds=5)


class RunReader(Protocol):
    async def get(self, caller: Caller, run_id: UUID) -> Run: ...

    async def list(self, caller: Caller, filter: RunFilter, before: UUID | None, limit: int) -> RunPage: ...


class JobMatch(msgspec.Struct, frozen=True):
    run_id: UUID
    line: LogLine


class JobMatches(msgspec.Struct, frozen=True):
    matches: list[JobMatch]
    next_run: UUID | None
    """Where to go on: in this run, behind `next_place`. None when everything was looked at."""
    next_place: Place = START


class LogOperations:
    def __init__(
        self,
        runs: RunReader,
        source: LogSource,
        watch: LogWatch,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        parts: PartsRead | None = None,
    ) -> None:
        self._parts = parts
        self._now = now
        self._runs = runs
        self._source = source
        self._watch = watch

    async def page(self, caller: Caller, run_id: UUID, after: Place, limit: int) -> LogPage:
        """Lines behind a place."""
        # The state is read first: lines are stored before the end is, so after a final state nothing more can come.
        run = await self._runs.get(caller, run_id)
        return await self._page(run, after, limit)

    async def search(
        self, caller: Caller, run_id: UUID, text: str, ignore_case: bool, after: Place, limit: int
    ) -> LogPage:
        """Lines behind a place that hold the text. A page that is not full may still be followed by others."""
        run = await self._runs.get(caller, run_id)
        return await self._search(run, text, ignore_case, after, limit, SCAN_ROWS_MAX)

    async def search_job(
        self,
        caller: Caller,
        job_id: UUID,
        text: str,
        ignore_case: bool,
        start: tuple[UUID, Place] | None,
        limit: int,
    ) -> JobMatches:
        """The same over the runs of a job and their parts, newest first."""
        runs = await self._runs_from(caller, job_id, start)
        by_id = {run.run_id: run for run in runs}
        matches: list[JobMatch] = []
        rows_left, place = SCAN_ROWS_MAX, START if start is None else start[1]
        for run_id in await self._with_parts(runs[:SCAN_RUNS_MAX]):
            if len(matches) >= limit or rows_left <= 0:
                return JobMatches(matches, run_id, place)
            try:
                run = by_id.get(run_id) or await self._runs.get(caller, run_id)
            except NotFound:  # retention may take a part before what it is a part of
                continue
            page = await self._search(run, text, ignore_case, place, limit - len(matches), rows_left)
            matches += [JobMatch(run.run_id, line) for line in page.lines]
            rows_left -= max(page.rows, 1)
            if page.more:
                return JobMatches(matches, run.run_id, Place(page.next_attempt, page.next_line))
            place = START
        return JobMatches(matches, runs[SCAN_RUNS_MAX].run_id if len(runs) > SCAN_RUNS_MAX else None)

    async def rows(self, caller: Caller, run_id: UUID, after: Place = START) -> AsyncGenerator[LogRow, None]:
        """The whole log as it is now, row by row; marks included where it ends without having been finished."""
        run = await self._runs.get(caller, run_id)
        place = after
        async with aclosing(self._source.rows(run_id, after, run.state.is_final)) as rows:
            marks = await self._lost_marks(run) if run.attempt > 1 or run.state.is_final else []
            async for row in rows:
                while marks and marks[0].attempt < row.attempt:
                    yield _as_row(marks.pop(0))
                place = max(place, row.end)
                yield row
        for mark in marks:
            if end_of(mark) > place:
                yield _as_row(mark)

    async def follow(self, caller: Caller, run_id: UUID, after: Place) -> AsyncGenerator[LogPage | Run, None]:
        """Pages of lines as they come; at the end the run that they belong to. Asks again who may read: never."""
        seen: LogTip | None = None
        while True:
            run = await self._runs.get(caller, run_id)
            page = await self._page(run, after, STREAM_LINES_MAX, STREAM_BYTES_MAX)
            if page.lines:
                yield page
                after = Place(page.next_attempt, page.next_line)
            if page.ended:
                yield run
                return
            if not page.more:
                seen = await self._watch.changed(run_id, seen)

    # --- steps -------------------------------------------------------------------------------------------

    async def _page(self, run: Run, after: Place, limit: int, bytes_max: int = 0) -> LogPage:
        lines: list[LogLine] = []
        size, more, bytes_max = 0, False, bytes_max or PAGE_BYTES_MAX
        async with aclosing(self._source.rows(run.run_id, after, run.state.is_final)) as rows:
            async for row in rows:
                for line in lines_in(row, after):
                    more = len(lines) >= limit or size >= bytes_max
                    if more:
                        break
                    lines.append(line)
                    size += len(line.text)
                if more:
                    break
        if not more or (lines and lines[-1].attempt != after.attempt):
            lines = _with_marks(lines, await self._lost_marks(run), after, more)
        return _page_of(lines, after, run, more)

    async def _search(self, run: Run, text: str, ignore_case: bool, after: Place, limit: int, rows_max: int) -> LogPage:
        wanted = text.lower() if ignore_case else text
        found: list[LogLine] = []
        place, count, more = after, 0, False
        async with aclosing(self._source.search(run.run_id, after, text, ignore_case, run.state.is_final)) as rows:
            async for row in rows:
                if more or count >= rows_max:
                    more = True
                    break
                count += 1
                if not isinstance(row, LogRow):
                    place = max(place, row)
                    continue
                for line in lines_in(row, after):
                    if wanted in (line.text.lower() if ignore_case else line.text):
                        if len(found) >= limit:
                            more = True
                            break
                        found.append(line)
                        place = end_of(line)
                else:
                    place = max(place, row.end)
        return LogPage(found, run.state.is_final and not more, *place, more=more, rows=count)

    async def _with_parts(self, runs: Sequence[Run]) -> list[UUID]:
        """Runs that went to several executors have no lines of their own, but each of their parts has."""
        of = {} if self._parts is None else await self._parts.parts_by_run([run.run_id for run in runs])
        return [piece for run in runs for piece in (run.run_id, *of.get(run.run_id, ()))]

    async def _runs_from(self, caller: Caller, job_id: UUID, start: tuple[UUID, Place] | None) -> list[Run]:
        """The runs of a job, newest first: one more than are looked at."""
        if start is None:
            return list((await self._runs.list(caller, RunFilter(job_id=job_id), None, SCAN_RUNS_MAX + 1)).runs)
        begun = [await self._runs.get(caller, start[0])]
        last = start[0]
        if is_part(last) and self._parts is not None and (whole := await self._parts.run_of_part(last)) is not None:
            siblings = (await self._parts.parts_by_run([whole])).get(whole, ())
            begun += [await self._runs.get(caller, other) for other in _behind(siblings, last)]
            last = whole
        page = await self._runs.list(caller, RunFilter(job_id=job_id), last, SCAN_RUNS_MAX)
        return [*begun, *page.runs]

    async def _lost_marks(self, run: Run) -> list[LogLine]:
        """One for each attempt that is over and never said that its log is whole: its executor was lost, or could not
        store the end of it."""
        if not run.state.is_final and run.attempt <= 1:
            return []
        # A handler that completes its run in its own transaction says a moment later that its log is whole.
        is_over = run.state.is_final and (run.ended_at is None or self._now() - run.ended_at > SAID_SOON)
        ends = await self._source.ends(run.run_id)
        return [
            LogLine(end.next_line, end.at or run.scheduled_for, "log", LOST_TEXT, attempt)
            for attempt, end in sorted(ends.items())
            if end.is_whole is False and (is_over or attempt < run.attempt)
        ]


def _behind(siblings: Sequence[UUID], one: UUID) -> Sequence[UUID]:
    return siblings[siblings.index(one) + 1 :] if one in siblings else ()


def _with_marks(lines: list[LogLine], marks: Iterable[LogLine], after: Place, more: bool) -> list[LogLine]:
    last = end_of(lines[-1]) if lines else after
    due = [mark for mark in marks if end_of(mark) > after and (not more or end_of(mark) < last)]
    return sorted([*lines, *due], key=end_of) if due else lines


def _page_of(lines: list[LogLine], after: Place, run: Run, more: bool) -> LogPage:
    place = end_of(lines[-1]) if lines else after
    return LogPage(lines, run.state.is_final and not more, *place, more=more)


def _as_row(mark: LogLine) -> LogRow:
    return LogRow(mark.attempt, mark.number, [mark.at], [2], [mark.text])
