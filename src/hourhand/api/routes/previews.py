"""/api/v1/schedules/preview: what a schedule would do."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Final

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.parameters import Parameter, Query
from hourhand.model.local_time import load_zone
from hourhand.model.preview import COUNT_MAX
from hourhand.operations.previews import COUNT_DEFAULT, KINDS, PreviewOperations, PreviewRequest

_PATH: Final = "/api/v1/schedules/preview"
_TIME: Final = {"type": "string", "format": "date-time"}
_PARAMETERS: Final = (
    Parameter("cron", "A cron expression; several for their union.", repeatable=True, judged_by_reader=True),
    *(Parameter(kind, f"As in a schedule: {kind}.") for kind in KINDS if kind != "cron"),
    Parameter("first", "The first time of `rrule`."),
    Parameter("anchor", "Where `every` counts from.", _TIME),
    Parameter("zone", "The IANA zone by whose clock it goes; by default UTC.", judged_by_reader=True),
    Parameter("start_at", "Not due before.", _TIME),
    Parameter("end_at", "Not due after.", _TIME),
    Parameter("dst_gap", "fire_after or skip."),
    Parameter("dst_overlap", "auto, first, last or both."),
    Parameter("calendar", "A calendar whose times are left out; several for all of them.", repeatable=True),
    Parameter("on_excluded", "skip or next_allowed."),
    Parameter("from", "Times from here on; by default from now on.", _TIME),
    Parameter("to", "Times up to here.", _TIME),
    Parameter("count", f"How many: 1 to {COUNT_MAX}, by default {COUNT_DEFAULT}; judged together with the rest."),
)


class PreviewView(msgspec.Struct):
    times: Sequence[datetime]
    local: Sequence[str]
    """The same times as the zone's clock shows them."""
    words: str
    notes: Sequence[str]
    dst_days: Sequence[date]
    """Days on which the clock changes and that the schedule is touched by; `notes` says how."""
    zone: str
    more: bool


class PreviewRoutes:
    def __init__(self, previews: PreviewOperations) -> None:
        self._previews = previews

    def endpoints(self) -> list[Endpoint]:
        summary = "When a schedule would fall due, in words and times"
        return [Endpoint("GET", _PATH, self.preview, "schedules", summary, PreviewView, parameters=_PARAMETERS)]

    async def preview(self, call: Call) -> Answer:
        timing, found = await self._previews.preview(call.caller, _request(call.query))
        zone = load_zone(timing.zone)
        local = [time.astimezone(zone).isoformat() for time in found.times]
        view = PreviewView(found.times, local, found.words, found.notes, found.dst_days, timing.zone, found.more)
        return json_answer(view)


def _request(query: Query) -> PreviewRequest:
    schedules: list[dict[str, Any]] = [{"cron": text} for text in query.repeated("cron")]
    schedules += [{kind: query.text(kind)} for kind in KINDS if kind != "cron" and query.text(kind) is not None]
    for kind, beside in (("rrule", "first"), ("every", "anchor")):
        for schedule in schedules:
            if kind in schedule and query.text(beside) is not None:
                schedule[beside] = query.text(beside)
    return PreviewRequest(
        schedules=schedules,
        zone=query.text("zone"),
        start_at=query.text("start_at"),
        end_at=query.text("end_at"),
        dst_gap=query.text("dst_gap"),
        dst_overlap=query.text("dst_overlap"),
        calendars=query.repeated("calendar"),
        on_excluded=query.text("on_excluded"),
        since=query.text("from"),
        until=query.text("to"),
        count=query.text("count"),
    )
