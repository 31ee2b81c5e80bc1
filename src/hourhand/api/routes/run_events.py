"""/api/v1/runs/{run_id}/events: a run as it changes, for those who watch it."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.sse import EVENT_STREAM, ServerEvent, events_answer
from hourhand.api.streaming import StreamAnswer, Streams
from hourhand.api.views import progress_view, run_view
from hourhand.model.run import Run
from hourhand.operations.requests import Caller
from hourhand.operations.run_watch import RunWatch
from hourhand.operations.runs import RunOperations
from hourhand.ports.progress_stores import Glance

_DESCRIPTION: Final = (
    "Server-sent events: `state` when the run has another state or attempt, `progress` when its attempt says how far "
    "it has come, and `end` with the whole run when it is finished. The first event tells how it stands."
)


class StateView(msgspec.Struct):
    run_id: UUID
    status: str
    attempt: int
    started_at: datetime | None


class RunEventRoutes:
    def __init__(self, runs: RunOperations, watch: RunWatch, streams: Streams) -> None:
        self._runs = runs
        self._watch = watch
        self._streams = streams

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "GET",
                "/api/v1/runs/{run_id}/events",
                self.events,
                "runs",
                "Watch a run",
                media_types=(EVENT_STREAM,),
                description=_DESCRIPTION,
            )
        ]

    async def events(self, call: Call) -> StreamAnswer:
        run = await self._runs.get(call.caller, call.id("run_id"))
        return await events_answer(self._streams, self._events(call.caller, run))

    async def _events(self, caller: Caller, run: Run) -> AsyncGenerator[ServerEvent, None]:
        shown: Glance | None = None
        while not run.state.is_final:
            async for glance in self._watch.follow(run.run_id):
                if shown is None or (glance.state, glance.attempt) != (shown.state, shown.attempt):
                    state = StateView(run.run_id, glance.state.word, glance.attempt, glance.started_at)
                    yield ServerEvent("state", None, state)
                if glance.progress is not None and (shown is None or glance.progress != shown.progress):
                    yield ServerEvent("progress", None, progress_view(glance.progress))
                shown = glance
            run = await self._runs.get(caller, run.run_id)
        yield ServerEvent("end", None, run_view(run))
