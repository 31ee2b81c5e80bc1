"""Calendars and previews over HTTP."""

import asyncio
import threading
from datetime import datetime
from typing import Any

import httpx
import pytest
from api_fakes import code_of, faults_of
from calendar_fakes import FakeCalendarStore

from hourhand.model.icalendar import Imported, import_icalendar
from hourhand.model.preview import Preview

HOLIDAYS = {
    "zone": "Europe/Berlin",
    "dates": ["12-25", "2025-10-03"],
    "weekly": [{"day": "SAT-SUN"}],
    "blackouts": [{"from": "2025-12-20T18:00:00Z", "to": "2026-01-02T08:00:00Z", "reason": "freeze"}],
    "description": "nobody works",
}
ICS = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20251225\nEND:VEVENT\nEND:VCALENDAR\n"
ONE = "/api/v1/calendars/holidays"


async def test_a_calendar_is_made_read_changed_and_deleted(api: httpx.AsyncClient) -> None:
    made = await api.put(ONE, json=HOLIDAYS)
    assert (made.status_code, made.headers["etag"]) == (200, '"1"')
    told = made.json()
    assert told["weekly"] == [
        {"day": "SAT", "from": "00:00", "to": "24:00"},
        {"day": "SUN", "from": "00:00", "to": "24:00"},
    ]
    assert told["dates"] == ["12-25", "2025-10-03"]
    again = await api.put(ONE, json={key: told[key] for key in HOLIDAYS})
    assert again.json() | {"version": 1} == told
    assert (await api.get(ONE)).json()["version"] == 2
    assert [each["name"] for each in (await api.get("/api/v1/calendars")).json()["calendars"]] == ["holidays"]
    assert (await api.delete(ONE)).json() == {"deleted": "holidays"}
    assert (await api.get(ONE)).status_code == 404
    assert (await api.delete(ONE)).status_code == 404


async def test_a_calendar_that_jobs_use_is_not_deleted(api: httpx.AsyncClient, calendars: FakeCalendarStore) -> None:
    await api.put(ONE, json=HOLIDAYS)
    calendars.used_by(1, "holidays", 3)
    answer = await api.delete(ONE)
    assert (answer.status_code, code_of(answer)) == (409, "calendar-in-use")


async def test_if_match_is_honoured(api: httpx.AsyncClient) -> None:
    assert (await api.put(ONE, json=HOLIDAYS, headers={"If-Match": '"0"'})).status_code == 200
    assert (await api.put(ONE, json=HOLIDAYS, headers={"If-Match": '"0"'})).status_code == 412
    assert (await api.put(ONE, json=HOLIDAYS, headers={"If-Match": '"1"'})).json()["version"] == 2


async def test_all_faults_of_a_calendar_are_told_at_once(api: httpx.AsyncClient) -> None:
    body = {"dates": ["2025-02-30"], "weekly": [{"dya": "MON"}], "zone": 5, "blackout": []}
    assert faults_of(await api.put(ONE, json=body)) == {
        "/dates/0": "invalid-date",
        "/weekly/0/dya": "unknown-field",
        "/weekly/0/day": "required",
        "/zone": "wrong-type",
        "/blackout": "unknown-field",
    }


async def test_names_are_checked(api: httpx.AsyncClient) -> None:
    answer = await api.put("/api/v1/calendars/a%20b", json=HOLIDAYS)
    assert (answer.status_code, code_of(answer)) == (400, "invalid-id")


async def test_an_icalendar_file_makes_a_calendar_and_leaves_weekly_windows(api: httpx.AsyncClient) -> None:
    kind = {"Content-Type": "text/calendar"}
    made = await api.post(ONE + "/import", content=ICS, headers=kind, params={"zone": "Europe/Berlin"})
    assert (made.status_code, made.json()["dates"]) == (200, ["2025-12-25"])
    await api.put(ONE, json=HOLIDAYS)
    again = await api.post(ONE + "/import", content=ICS, headers=kind)
    assert again.json()["dates"] == ["12-25", "2025-12-25"]
    assert len(again.json()["weekly"]) == 2
    assert again.json()["blackouts"] == []


async def test_files_that_are_no_calendars_are_refused(api: httpx.AsyncClient) -> None:
    kind = {"Content-Type": "text/calendar"}
    assert faults_of(await api.post(ONE + "/import", content="hello", headers=kind)) == {"": "invalid-icalendar"}
    assert (await api.post(ONE + "/import", content=b"\xff", headers=kind)).status_code == 400
    assert (await api.post(ONE + "/import", content=b" ", headers=kind)).status_code == 400
    assert (await api.post(ONE + "/import", json={})).status_code == 415
    zone = await api.post(ONE + "/import", content=ICS, headers=kind, params={"zone": "Berlin"})
    assert faults_of(zone) == {"/zone": "unknown-timezone"}


async def test_others_are_answered_while_a_file_is_being_imported(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def waits(text: str, zone: str | None, now: datetime) -> Imported:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(10), "nobody else was answered"
        return import_icalendar(text, zone, now)

    monkeypatch.setattr("hourhand.operations.calendars.import_icalendar", waits)
    kind = {"Content-Type": "text/calendar"}
    first, second = (
        asyncio.create_task(api.post(f"{ONE}{name}/import", content=ICS, headers=kind)) for name in ("a", "b")
    )
    await begun.wait()
    assert (await api.get("/api/v1/calendars")).json() == {"calendars": []}
    go_on.set()
    assert [(await each).status_code for each in (first, second)] == [200, 200]


async def test_calendars_belong_to_a_namespace(api: httpx.AsyncClient, bound: httpx.AsyncClient) -> None:
    await api.put(ONE, json=HOLIDAYS)
    assert (await bound.get(ONE)).status_code == 404


# --- previews ---------------------------------------------------------------------------------------------


async def preview(api: httpx.AsyncClient, **params: Any) -> dict[str, Any]:
    answer = await api.get("/api/v1/schedules/preview", params=params)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_preview_has_times_words_and_notes(api: httpx.AsyncClient) -> None:
    window = {"from": "2026-03-28T00:00:00Z", "to": "2026-03-30T12:00:00Z"}
    assert await preview(api, cron="30 2 * * *", zone="Europe/Berlin", **window) == {
        "times": ["2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
        "local": ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"],
        "words": "At 02:30 every day (Europe/Berlin)",
        "notes": [
            "2026-03-29: the clock goes from 02:00 forward to 03:00; "
            "02:30 does not exist and is due at 03:00 instead (gap: fire_after)"
        ],
        "dst_days": ["2026-03-29"],
        "zone": "Europe/Berlin",
        "more": False,
    }


async def test_a_preview_takes_every_kind_of_schedule_and_their_union(api: httpx.AsyncClient) -> None:
    union = await preview(api, cron=["0 12 * * *", "30 12 * * *"], every="1h", count=4)
    assert [time[11:16] for time in union["times"]] == ["09:00", "10:00", "11:00", "12:00"]
    rule = await preview(api, rrule="FREQ=MONTHLY;BYDAY=-1FR", first="2025-01-01T09:00", count=1)
    assert rule["times"] == ["2025-09-26T09:00:00Z"]
    assert (await preview(api, weekly="2025-09-24T10:00", count=2))["times"] == [
        "2025-09-24T10:00:00Z", "2025-10-01T10:00:00Z",
    ]  # fmt: skip


async def test_a_preview_of_an_interval_counts_from_its_anchor(api: httpx.AsyncClient) -> None:
    query = {"every": "1h", "anchor": "2025-01-01T00:20:00Z", "from": "2030-01-01T00:00:00Z", "count": 1}
    assert (await api.get("/api/v1/schedules/preview", params=query)).json()["times"] == ["2030-01-01T00:20:00Z"]


async def test_a_preview_of_the_past_is_possible(api: httpx.AsyncClient) -> None:
    found = await preview(api, cron="0 0 1 1 *", **{"from": "2000-01-01T00:00:00Z", "to": "2002-06-01T00:00:00Z"})
    assert [time[:4] for time in found["times"]] == ["2000", "2001", "2002"]


async def test_a_preview_leaves_out_what_a_calendar_does(api: httpx.AsyncClient) -> None:
    await api.put(ONE, json={"weekly": [{"day": "SAT-SUN"}]})
    times = (await preview(api, daily="09:00", calendar="holidays", count=4))["times"]
    assert [time[8:10] for time in times] == ["24", "25", "26", "29"]
    moved = (await preview(api, daily="09:00", calendar="holidays", on_excluded="next_allowed", count=4))["times"]
    assert moved[3] == "2025-09-29T00:00:00Z"


async def test_wrong_parameters_of_a_preview_are_told_at_once(api: httpx.AsyncClient) -> None:
    params = {"cron": "x", "zone": "Berlin", "from": "soon", "to": "2025", "count": "0", "calendar": "nobody"}
    assert faults_of(await api.get("/api/v1/schedules/preview", params=params)) == {
        "/cron": "cron-field-count",
        "/zone": "unknown-timezone",
        "/from": "invalid-date-time",
        "/to": "invalid-date-time",
        "/count": "out-of-range",
        "/calendar": "unknown-calendar",
    }
    assert faults_of(await api.get("/api/v1/schedules/preview")) == {"/schedule": "schedule-required"}
    backwards = {"cron": "@daily", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}
    assert faults_of(await api.get("/api/v1/schedules/preview", params=backwards)) == {"/to": "empty-window"}
    assert (await api.get("/api/v1/schedules/preview?crn=1")).status_code == 400


async def test_the_loop_goes_on_while_a_preview_that_takes_long_is_made(
    api: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def slowly(*_: Any) -> Preview:
        assert may_end.wait(5), "nobody else was answered meanwhile"
        return Preview([], "", [], [], False)

    monkeypatch.setattr("hourhand.operations.previews.preview", slowly)
    slow = asyncio.ensure_future(preview(api, cron=[f"{minute} * * * *" for minute in range(50)]))
    await asyncio.sleep(0.01)
    assert (await api.get("/api/v1/calendars")).status_code == 200
    may_end.set()
    assert (await slow)["times"] == []
