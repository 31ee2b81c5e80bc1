"""What runs wrote: page by page, live, searched, and as a whole."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from hourhand.api.answers import JSON, TEXT, Answer, encode, header, json_answer
from hourhand.api.cursors import make_cursor, read_cursor
from hourhand.api.endpoints import NDJSON, Call, Endpoint
from hourhand.api.log_views import JobLogMatchesView, LogEndView, LogPageView, job_log_matches_view, log_page_view
from hourhand.api.log_views import log_line_view as line_view
from hourhand.api.parameters import CURSOR, Parameter, limit_parameter
from hourhand.api.sse import EVENT_STREAM, ServerEvent, events_answer
from hourhand.api.streaming import StreamAnswer, Streams, stream_answer
from hourhand.model.errors import InvalidParameter
from hourhand.model.log import NUMBER_MAX, START, LogRow, Place, lines_in, without_steering
from hourhand.operations.logs import JobMatches, LogOperations
from hourhand.operations.requests import LogPage

_RUN: Final = "/api/v1/runs/{run_id}/logs"
_JOB: Final = "/api/v1/jobs/{job_id}/logs"
CONTAINS_CHARS_MAX: Final = 200
PIECE_BYTES: Final = 64 * 1024
AFTER: Final = Parameter(
    "after", "Where to go on: `next` of the page before.", {"type": "string", "pattern": "^[0-9]+:[0-9]+$"}
)
CONTAINS: Final = Parameter(
    "contains",
    "Only lines that hold this text. A page may hold none and still be followed by others: see `more`.",
    {"type": "string", "minLength": 1, "maxLength": CONTAINS_CHARS_MAX},
)
IGNORE_CASE: Final = Parameter(
    "ignore_case", "With `contains`: capital or small makes no difference.", {"type": "boolean", "default": False}
)
ANSI: Final = Parameter(
    "ansi",
    "`strip` takes out colours and everything else that steers a terminal.",
    {"type": "string", "enum": ["keep", "strip"], "default": "keep"},
)
LAST_EVENT_ID: Final = Parameter(
    "Last-Event-ID",
    "The id of the last event that was received: goes on behind it. Goes before `after`.",
    {"type": "string", "pattern": "^[0-9]+:[0-9]+$"},
)


class LogRoutes:
    def __init__(self, logs: LogOperations, streams: Streams) -> None:
        self._logs = logs
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        tag = "logs"
        return [
            Endpoint(
                "GET",
                _RUN,
                self.page,
                tag,
                "What a run wrote",
                LogPageView,
                parameters=(AFTER, limit_parameter(1000, 10_000), CONTAINS, IGNORE_CASE, ANSI),
                media_types=(JSON, "text/plain"),
            ),
            Endpoint(
                "GET",
                _RUN + "/stream",
                self.stream,
                tag,
                "What a run writes, as it writes it",
                parameters=(AFTER, ANSI),
                headers=(LAST_EVENT_ID,),
                media_types=(EVENT_STREAM,),
                description="Server-sent events: `lines` with a page of lines, then `end` with the state of the run.",
            ),
            Endpoint(
                "GET",
                _RUN + "/download",
                self.download,
                tag,
                "The whole log of a run",
                parameters=(ANSI,),
                media_types=("text/plain", NDJSON),
            ),
            Endpoint(
                "GET",
                _JOB,
                self.search_job,
                tag,
                "Search the logs of a job, newest run first",
                JobLogMatchesView,
                parameters=(CONTAINS, IGNORE_CASE, limit_parameter(100, 1000), CURSOR, ANSI),
            ),
        ]

    async def page(self, call: Call) -> Answer:
        after, limit = position("after", call.query.text("after")), call.query.integer("limit", 1000, 1, 10_000)
        text = _contains(call)
        run_id = call.id("run_id")
        if text is None:
            page = await self._logs.page(call.caller, run_id, after, limit)
        else:
            page = await self._logs.search(call.caller, run_id, text, _ignores_case(call), after, limit)
        if call.media_type == JSON:
            return json_answer(log_page_view(page, strip=_strips(call)))
        lines = [line.text for line in page.lines]
        if _strips(call):
            lines = [without_steering(line) for line in lines]
        body = "".join(line + "\n" for line in lines)
        more = [] if page.ended and not page.lines else [header("hourhand-next", _next(page))]
        return Answer(body.encode("utf-8", "replace"), 200, TEXT, more)

    async def stream(self, call: Call) -> StreamAnswer:
        given = call.header(b"last-event-id")
        after = position("after", call.query.text("after")) if given is None else position("Last-Event-ID", given)
        run_id, strip = call.id("run_id"), _strips(call)
        await self._logs.page(call.caller, run_id, after, 1)  # what cannot be read at all is told before the stream

        async def events() -> AsyncGenerator[ServerEvent, None]:
            async with aclosing(self._logs.follow(call.caller, run_id, after)) as pages:
                async for page in pages:
                    if isinstance(page, LogPage):
                        yield ServerEvent("lines", _next(page), log_page_view(page, strip=strip))
                    else:
                        yield ServerEvent("end", None, LogEndView(page.state.word, page.reason))

        return await events_answer(self._streams, events())

    async def download(self, call: Call) -> StreamAnswer:
        run_id = call.id("run_id")
        as_json, strip = call.media_type == NDJSON, _strips(call)

        async def pieces() -> AsyncGenerator[bytes, None]:
            gathered: list[bytes] = []
            size = 0
            async with aclosing(self._logs.rows(call.caller, run_id)) as rows:
                async for row in rows:
                    gathered.append(_json_lines(row, strip) if as_json else _text_lines(row, strip))
                    size += len(gathered[-1])
                    if size >= PIECE_BYTES:
                        yield b"".join(gathered)
                        gathered.clear()
                        size = 0
            yield b"".join(gathered)

        name = f"{run_id}.{'jsonl' if as_json else 'log'}"
        headers = [header("content-disposition", f'attachment; filename="{name}"')]
        return await stream_answer(pieces(), NDJSON if as_json else TEXT, headers)

    async def search_job(self, call: Call) -> Answer:
        text = _contains(call)
        if text is None:
            raise InvalidParameter("contains", "is needed here: the text to look for")
        job_id = call.id("job_id")
        bound_to = f"job logs {call.caller.namespace} {job_id} {call.query.filters('cursor', 'limit', 'namespace')}"
        cursor, _, place = (call.query.text("cursor") or "").partition("~")
        run_id = read_cursor(cursor or None, f"{bound_to} {place}")
        start = None if run_id is None else (run_id, position("cursor", place))
        limit = call.query.integer("limit", 100, 1, 1000)
        found = await self._logs.search_job(call.caller, job_id, text, _ignores_case(call), start, limit)
        return json_answer(job_log_matches_view(found, _job_cursor(found, bound_to), strip=_strips(call)))


def position(name: str, text: str | None) -> Place:
    """ "2:57" is behind line 57 of attempt 2."""
    if text is None:
        return START
    attempt, colon, line = text.partition(":")
    if (
        not colon
        or not all(part.isascii() and part.isdigit() and len(part) <= 10 for part in (attempt, line))
        or int(attempt) > 2**15 - 1
        or int(line) > NUMBER_MAX
    ):
        raise InvalidParameter(name, "must be 'next' of the page before, such as 1:57", "invalid-cursor")
    return Place(int(attempt), int(line))


def _job_cursor(found: JobMatches, bound_to: str) -> str | None:
    if found.next_run is None:
        return None
    place = f"{found.next_place.attempt}:{found.next_place.line}"
    return f"{make_cursor(found.next_run, f'{bound_to} {place}')}~{place}"


def _next(page: LogPage) -> str:
    return f"{page.next_attempt}:{page.next_line}"


def _contains(call: Call) -> str | None:
    text = call.query.text("contains")
    if text is not None and (not 1 <= len(text) <= CONTAINS_CHARS_MAX or "\n" in text):
        message = f"must be 1 to {CONTAINS_CHARS_MAX} characters of one line"
        raise InvalidParameter("contains", message)
    return text


def _ignores_case(call: Call) -> bool:
    return call.query.text("ignore_case") == "true"


def _strips(call: Call) -> bool:
    return call.query.text("ansi") == "strip"


def _text_lines(row: LogRow, strip: bool) -> bytes:
    lines = [without_steering(line) for line in row.lines] if strip else row.lines
    return ("\n".join(lines) + "\n").encode("utf-8", "replace") if lines else b""


def _json_lines(row: LogRow, strip: bool) -> bytes:
    return b"".join(encode(line_view(line, strip=strip)) + b"\n" for line in lines_in(row, START))
