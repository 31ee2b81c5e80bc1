"""The bad-input catalogue of schedules, cron expressions, times and zones: what comes in, and what exactly goes out."""

# ruff: noqa: E501 - rows of tables stay on one line

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec
import pytest
from api_fakes import NOW, faults_of

from hourhand.model.local_time import ZoneFault, format_instant

HOURLY = {"cron": "0 * * * *"}
WAYS = "/api/v1/jobs"


async def refused(api: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.post(WAYS, json={"name": "a", **body})
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:hourhand:problem:invalid-fields"
    found: list[dict[str, Any]] = answer.json()["errors"]
    return found


# --- B. definitions: the rows about schedules -------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "body", "pointer", "code", "said"),
    [
        (29, {"schedule": {"cron": "0 * * * *", "at": "2030-01-01T00:00:00Z"}}, "/schedule", "conflicting-schedule", "only one of cron, at"),
        (29, {"schedule": {}}, "/schedule", "schedule-required", "now, at, cron, every, rrule, daily"),
        (29, {"schedule": []}, "/schedule", "schedule-required", "the list is empty"),
        (29, {"schedule": ["now", HOURLY]}, "/schedule", "conflicting-schedule", "now stands alone"),
        (30, {"schedule": {"at": "2025-09-24T06:59:59Z"}}, "/schedule/at", "run-at-in-past", format_instant(NOW)),
        (31, {"schedule": {"at": "10000-01-01T00:00:00Z"}}, "/schedule/at", "time-out-of-range", "1970 and 2200"),
        (31, {"schedule": {"at": "0001-01-01T00:00:00Z"}}, "/schedule/at", "time-out-of-range", "1970 and 2200"),
        (46, {"schedule": HOURLY, "start_at": "2026-02-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}, "/end_at", "empty-window", "earlier than start_at"),
        (46, {"schedule": HOURLY, "end_at": "2025-09-24T07:00:00Z"}, "/end_at", "schedule-never-fires", "has passed; the server's time is 2025-09-24T08:00:00Z"),
        (46, {"schedule": HOURLY, "end_at": "2025-09-24T08:30:00Z"}, "/end_at", "schedule-never-fires", "no due time"),
        (47, {"schedule": {"every": "15m"}, "jitter": "15m"}, "/jitter", "jitter-too-large", "here 15m"),
        (47, {"schedule": {"every": "15m"}, "jitter": "1d"}, "/jitter", "jitter-too-large", "here 15m"),
        (47, {"schedule": {"cron": "*/5 * * * *"}, "jitter": "5m"}, "/jitter", "jitter-too-large", "here 5m"),
    ],
)  # fmt: skip
async def test_definitions(
    api: httpx.AsyncClient, row: int, body: dict[str, Any], pointer: str, code: str, said: str
) -> None:
    [fault] = await refused(api, body)
    assert (fault["pointer"], fault["code"]) == (pointer, code), row
    assert said in fault["message"], row


async def test_all_wrong_fields_of_an_expression_are_told_at_once(api: httpx.AsyncClient) -> None:
    faults = await refused(api, {"schedule": {"cron": "99 88 77 FOO BAR"}})
    assert {fault["pointer"] for fault in faults} == {"/schedule/cron"}
    assert [(fault["code"], fault["message"]) for fault in faults] == [
        ("cron-out-of-range", "99 is out of range: minute 0-59"),
        ("cron-out-of-range", "88 is out of range: hour 0-23"),
        ("cron-out-of-range", "77 is out of range: day of month 1-31"),
        ("unknown-name", "FOO is no month: month 1-12"),
        ("unknown-name", "BAR is no weekday: weekday 0-7"),
    ]


@pytest.mark.parametrize(
    ("schedule", "message", "hint"),
    [
        ({"now": False}, "expected true, not false; a job that is not to run now has another schedule", None),
        ({"now": 1}, "expected true, not a number", None),
        ({"daily": "9:00"}, "'9:00' is no first time; write for example '09:00' or '2030-01-31T09:00'", "did you mean 09:00?"),
        ({"daily": "nine"}, "'nine' is no first time; write for example '09:00' or '2030-01-31T09:00'", None),
        ({"weekly": "09:00"}, "'09:00' is no first time; write for example '2030-01-31T09:00'", None),
        ({"rrule": "FREQ=DAILY", "first": "soon"}, "'soon' is no first time; write for example '2030-01-31T09:00'", None),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_said_in_words_of_the_field(
    api: httpx.AsyncClient, schedule: Any, message: str, hint: str | None
) -> None:
    [fault] = await refused(api, {"schedule": schedule})
    assert (fault["message"], fault.get("hint")) == (message, hint)


@pytest.mark.parametrize(
    ("field", "kind"),
    [("cron", "cron"), ("run_at", "at"), ("every", "every"), ("interval", "every"), ("daily", "daily")],
)
async def test_a_schedule_beside_the_schedule_is_sent_into_it(api: httpx.AsyncClient, field: str, kind: str) -> None:
    [fault] = await refused(api, {field: "x"})
    assert (fault["pointer"], fault["code"]) == (f"/{field}", "unknown-field")
    assert fault["hint"] == f'put it into the schedule: {{"schedule": {{"{kind}": …}}}}'


async def test_row_49_one_bad_schedule_of_a_batch_is_named_by_its_place_and_nothing_is_stored(
    api: httpx.AsyncClient, jobs: Any
) -> None:
    batch = [{"name": f"job-{place}", "schedule": HOURLY} for place in range(20)]
    batch[17]["schedule"] = {"cron": "61 * * * *"}
    batch[18]["name"] = 5  # so that the form is wrong too: everything is told at once
    answer = await api.post("/api/v1/jobs/batch", json=batch)
    assert faults_of(answer) == {"/17/schedule/cron": "cron-out-of-range", "/18/name": "wrong-type"}
    assert jobs.jobs == {}


# --- C. cron expressions ----------------------------------------------------------------------------------

CRONS = [
    (51, "", "cron-empty", "empty"),
    (51, "   ", "cron-empty", "empty"),
    (53, "* * * *", "cron-field-count", "5 or 6 fields are needed, not 4"),
    (53, "0 0 0 1 1 * 2030", "cron-field-count", "not 7"),
    (54, "60 * * * *", "cron-out-of-range", "minute 0-59"),
    (55, "* 24 * * *", "cron-out-of-range", "hour 0-23"),
    (57, "* * * 13 *", "cron-out-of-range", "month 1-12"),
    (57, "* * * 0 *", "cron-out-of-range", "month 1-12"),
    (58, "* * * * 8", "cron-out-of-range", "weekday 0-7"),
    (59, "0 0 31 2 *", "cron-never-fires", "never fires"),
    (59, "0 0 30 2 *", "cron-never-fires", "never fires"),
    (59, "0 0 31 4,6 *", "cron-never-fires", "never fires"),
    (61, "*/0 * * * *", "step-zero", "at least 1"),
    (62, "*/61 * * * *", "step-larger-than-range", "61"),
    (63, "5-1 * * * *", "reversed-range", "ends before it starts"),
    (65, "abc * * * *", "unknown-name", "ABC"),
    (65, "* * * FOO *", "unknown-name", "FOO"),
    (66, "@fortnightly", "unknown-macro", "@yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
    (67, "@reboot", "unsupported-macro", "@reboot"),
    (70, "０ 0 * * *", "non-ascii", "U+FF10"),
    (70, "٣ 0 * * *", "non-ascii", "U+0663"),
    (70, "0\u200b 0 * * *", "non-ascii", "U+200B"),
    (71, "0 0\n* * *", "cron-syntax", "'\\n'"),
    (74, "CRON_TZ=Europe/Berlin 0 0 * * *", "unsupported-prefix", "not supported"),
    (74, "TZ=UTC 0 0 * * *", "unsupported-prefix", "not supported"),
    (75, "${7*7} * * * *", "cron-syntax", "'$'"),
    (75, "{{7*7}} * * * *", "cron-syntax", "'{'"),
    (75, "%{7} * * * *", "cron-syntax", "'%'"),
]


@pytest.mark.parametrize(("row", "text", "code", "said"), CRONS)
async def test_cron_expressions(api: httpx.AsyncClient, row: int, text: str, code: str, said: str) -> None:
    [fault] = await refused(api, {"schedule": {"cron": text}})
    assert (fault["pointer"], fault["code"]) == ("/schedule/cron", code), row
    assert said in fault["message"], row
    assert "49" not in fault["message"], "nothing that was sent is evaluated"


async def test_row_71_a_nul_is_refused_before_anything_reads_it(api: httpx.AsyncClient) -> None:
    [fault] = await refused(api, {"schedule": {"cron": "0 0\x00* * *"}})
    assert (fault["pointer"], fault["code"]) == ("/schedule/cron", "cron-syntax")
    several = await refused(api, {"schedule": [{"cron": "0 0 * * *"}, {"cron": "0 0\x00* * *"}]})
    assert [(fault["pointer"], fault["code"]) for fault in several] == [("/schedule/1/cron", "cron-syntax")]
    answer = await api.get("/api/v1/schedules/preview?cron=0%200%00*%20*%20*")
    assert faults_of(answer) == {"/cron": "cron-syntax"}


@pytest.mark.parametrize(("row", "text", "code", "said"), CRONS)
async def test_the_preview_refuses_the_same_expressions_with_the_parameter_as_pointer(
    api: httpx.AsyncClient, row: int, text: str, code: str, said: str
) -> None:
    answer = await api.get(f"/api/v1/schedules/preview?{urlencode({'cron': text})}")
    assert answer.status_code == 422
    [fault] = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/cron", code), row


@pytest.mark.parametrize(
    ("row", "text", "kept"),
    [
        (69, "H * * * *", "H * * * *"),
        (73, "0 0 * * 0-7", "0 0 * * 0-6"),
        (53, "*/10 0 9 * * *", "*/10 0 9 * * *"),
    ],
)
async def test_expressions_that_others_refuse_are_taken_and_mean_what_they_say(
    api: httpx.AsyncClient, row: int, text: str, kept: str
) -> None:
    answer = await api.post(WAYS, json={"name": "a", "schedule": {"cron": text}})
    assert answer.status_code == 202, row
    assert answer.json()["schedule"] == [{"cron": kept}]


async def test_row_69_h_is_one_minute_and_never_silently_every_minute(api: httpx.AsyncClient) -> None:
    answer = await api.post(WAYS, json={"name": "a", "schedule": {"cron": "H * * * *"}})
    times = (await api.get(f"{WAYS}/{answer.json()['job_id']}/next?count=3")).json()["times"]
    assert len({time[14:16] for time in times}) == 1


@pytest.mark.parametrize("schedule", [{"cron": "* * * * * *"}, {"cron": "0-30 * * * * *"}, {"every": "1s"}])
async def test_row_77_what_fires_every_second_is_taken_with_a_warning(api: httpx.AsyncClient, schedule: Any) -> None:
    answer = await api.post(WAYS, json={"name": "a", "schedule": schedule})
    assert answer.status_code == 202
    assert answer.json()["warnings"][0].startswith("fires-every-second")
    calm = await api.post(WAYS, json={"name": "a", "schedule": {"cron": "*/30 * * * * *"}})
    assert "warnings" not in calm.json()


# --- D. times and zones -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "body", "pointer", "code", "said"),
    [
        (78, {"schedule": HOURLY, "zone": "Europe/Berln"}, "/zone", "unknown-timezone", "did you mean Europe/Berlin"),
        (79, {"schedule": HOURLY, "zone": "UTC+99"}, "/zone", "unknown-timezone", "no time zone"),
        (79, {"schedule": HOURLY, "zone": "CET+25"}, "/zone", "unknown-timezone", "no time zone"),
        (81, {"schedule": HOURLY, "zone": "../../x"}, "/zone", "unknown-timezone", "no time zone"),
        (81, {"schedule": HOURLY, "zone": "x" * 1500}, "/zone", "unknown-timezone", "no time zone"),
        (81, {"schedule": HOURLY, "zone": "/etc/localtime"}, "/zone", "unknown-timezone", "no time zone"),
        (82, {"schedule": {"at": "2030-01-01T10:00:00"}}, "/schedule/at", "offset-required", "has no offset"),
        (83, {"schedule": {"at": "2026-02-30T10:00:00Z"}}, "/schedule/at", "invalid-date-time", "does not exist"),
        (83, {"schedule": {"at": "2026-02-20T24:00:00Z"}}, "/schedule/at", "invalid-date-time", "does not exist"),
        (83, {"schedule": {"at": "2026-02-20T10:00:60Z"}}, "/schedule/at", "invalid-date-time", "does not exist"),
        (85, {"schedule": {"at": "2026-10-25T02:30:00"}, "zone": "Europe/Berlin"}, "/schedule/at", "ambiguous-local-time", "2026-10-25T02:30:00+02:00 or 2026-10-25T02:30:00+01:00"),
        (85, {"schedule": {"at": "2026-03-29T02:30:00"}, "zone": "Europe/Berlin"}, "/schedule/at", "invalid-date-time", "the clock jumps over it"),
        (86, {"schedule": {"at": 1767225600000}}, "/schedule/at", "wrong-type", "expected an RFC 3339 string"),
        (87, {"schedule": {"every": "5 minutes"}}, "/schedule/every", "invalid-duration", "write for example"),
        (87, {"schedule": {"every": "PT5X"}}, "/schedule/every", "invalid-duration", "write for example"),
        (87, {"schedule": {"every": "P1M"}}, "/schedule/every", "invalid-duration", "no fixed length"),
    ],
)  # fmt: skip
async def test_times_and_zones(
    api: httpx.AsyncClient, row: int, body: dict[str, Any], pointer: str, code: str, said: str
) -> None:
    [fault] = await refused(api, body)
    assert (fault["pointer"], fault["code"]) == (pointer, code), row
    assert said in fault["message"], row


async def test_row_78_up_to_three_zones_are_suggested(api: httpx.AsyncClient) -> None:
    [fault] = await refused(api, {"schedule": HOURLY, "zone": "Europe/Berln"})
    assert "Europe/Berlin" in fault["allowed"]
    assert 1 <= len(fault["allowed"]) <= 3


async def test_row_81_a_zone_with_a_nul_is_refused(api: httpx.AsyncClient) -> None:
    [fault] = await refused(api, {"schedule": HOURLY, "zone": "Europe/\x00Berlin"})
    assert (fault["pointer"], fault["code"]) == ("/zone", "unknown-timezone")
    answer = await api.get("/api/v1/schedules/preview?cron=0%200%20*%20*%20*&zone=Europe/%00Berlin")
    assert faults_of(answer) == {"/zone": "unknown-timezone"}


async def test_a_nul_in_a_payload_is_broken_text_whatever_its_key(api: httpx.AsyncClient) -> None:
    [fault] = await refused(api, {"schedule": HOURLY, "payload": {"cron": "\x00"}})
    assert (fault["pointer"], fault["code"]) == ("/payload/cron", "invalid-unicode")


@pytest.mark.parametrize("count", ["0", "100000", "501", "-1", "ten", "１０", ""])
async def test_row_89_a_count_out_of_1_to_500_is_422(api: httpx.AsyncClient, count: str) -> None:
    answer = await api.get("/api/v1/schedules/preview", params={"cron": "0 2 * * *", "count": count})
    assert faults_of(answer) == {"/count": "out-of-range"}
    assert "1 to 500" in answer.json()["errors"][0]["message"]


async def test_row_90_a_job_whose_zone_is_gone_is_flagged_and_not_run_by_utc(api: httpx.AsyncClient, jobs: Any) -> None:
    answer = await api.post(WAYS, json={"name": "a", "schedule": HOURLY, "zone": "Europe/Berlin"})
    assert "warnings" not in answer.json()
    [(job_id, job)] = jobs.jobs.items()
    timing = msgspec.structs.replace(job.definition.timing, zone="Mars/Olympus")
    jobs.jobs[job_id] = replace(job, definition=msgspec.structs.replace(job.definition, timing=timing))
    [warning] = (await api.get(f"{WAYS}/{job_id}")).json()["warnings"]
    assert warning.startswith("invalid-timezone: there is no time zone 'Mars/Olympus'")
    with pytest.raises(ZoneFault):
        timing.next_after(NOW)


async def test_everything_wrong_with_a_schedule_is_told_at_once(api: httpx.AsyncClient) -> None:
    faults = await refused(
        api,
        {
            "schedule": [{"cron": "61 * * * *"}, {"every": "5 minutes"}, {"rrule": "FREQ=NEVER"}, {"weeky": "x"}],
            "zone": "Europe/Berln",
            "start_at": "2026-01-01T00:00:00",
            "dst_gap": "jump",
            "dst_overlap": "twice",
            "max_runs": 0,
            "jitter": "soon",
            "on_excluded": "never",
        },
    )
    assert {fault["pointer"]: fault["code"] for fault in faults} == {
        "/schedule/0/cron": "cron-out-of-range",
        "/schedule/1/every": "invalid-duration",
        "/schedule/2/rrule": "rrule-syntax",
        "/schedule/3/weeky": "unknown-field",
        "/zone": "unknown-timezone",
        "/start_at": "offset-required",
        "/dst_gap": "invalid-value",
        "/dst_overlap": "invalid-value",
        "/max_runs": "out-of-range",
        "/jitter": "invalid-duration",
        "/on_excluded": "invalid-value",
    }
    [unknown] = [fault for fault in faults if fault["pointer"] == "/schedule/3/weeky"]
    assert unknown["hint"] == "did you mean weekly?"
