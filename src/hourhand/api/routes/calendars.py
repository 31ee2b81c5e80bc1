"""/api/v1/calendars: times that jobs leave out."""

from typing import Final

import msgspec

from hourhand.api.answers import Answer, header, json_answer
from hourhand.api.decoding import read_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.api.parameters import Parameter, limit_parameter
from hourhand.model.errors import MalformedBody
from hourhand.operations.calendars import CalendarOperations, CalendarRequest, CalendarView

BASE: Final = "/api/v1/calendars"
_ONE: Final = BASE + "/{name}"
_BYTES_MAX: Final = 1 << 20
_AFTER: Final = Parameter("after", "Begin behind this name: the last one of the page before.")
_ZONE: Final = Parameter("zone", "By whose clock times without a zone go; else by that of the calendar, or UTC.")


class CalendarListView(msgspec.Struct):
    calendars: list[CalendarView]


class DeletedView(msgspec.Struct):
    deleted: str


class CalendarRoutes:
    def __init__(self, calendars: CalendarOperations) -> None:
        self._calendars = calendars

    def endpoints(self) -> list[Endpoint]:
        tag = "calendars"
        return [
            Endpoint(
                "GET", BASE, self.list_calendars, tag, "Calendars of the namespace, by name", CalendarListView,
                parameters=(limit_parameter(100, 500), _AFTER),
            ),
            Endpoint("GET", _ONE, self.get, tag, "One calendar", CalendarView),
            Endpoint(
                "PUT", _ONE, self.put, tag, "Make a calendar, or replace all of it", CalendarView, 200, CalendarRequest,
                body_bytes_max=_BYTES_MAX,
            ),
            Endpoint(
                "POST", _ONE + "/import", self.import_events, tag, "Make a calendar of an iCalendar file's events",
                CalendarView, 200, str, body_media=("text/calendar",), body_bytes_max=_BYTES_MAX, parameters=(_ZONE,),
            ),
            Endpoint("DELETE", _ONE, self.delete, tag, "Delete a calendar that no job uses", DeletedView),
        ]  # fmt: skip

    async def list_calendars(self, call: Call) -> Answer:
        limit = call.query.integer("limit", 100, 1, 500)
        return json_answer(CalendarListView(await self._calendars.list(call.caller, call.query.text("after"), limit)))

    async def get(self, call: Call) -> Answer:
        return _answer(await self._calendars.get(call.caller, call.path["name"]))

    async def put(self, call: Call) -> Answer:
        request, form = read_body(call.body, CalendarRequest)
        if form:
            raise all_faults(form, self._calendars.faults_of_put(request))
        return _answer(await self._calendars.put(call.caller, call.path["name"], request, call.if_version()))

    async def import_events(self, call: Call) -> Answer:
        try:
            text = call.body.decode()
        except UnicodeDecodeError as wrong:
            raise MalformedBody("invalid-icalendar", f"the body is not UTF-8 text (byte {wrong.start})") from None
        if not text.strip():
            raise MalformedBody("body-required", "an iCalendar file is needed as the body")
        zone = call.query.text("zone")
        return _answer(
            await self._calendars.import_events(call.caller, call.path["name"], text, zone, call.if_version())
        )

    async def delete(self, call: Call) -> Answer:
        await self._calendars.delete(call.caller, call.path["name"])
        return json_answer(DeletedView(call.path["name"]))


def _answer(view: CalendarView) -> Answer:
    return json_answer(view, 200, [header("etag", f'"{view.version}"')])
