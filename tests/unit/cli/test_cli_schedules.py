"""`hourhand cron explain`, which needs no server; `hourhand calendar`; the schedules that `job create` can write."""

# ruff: noqa: E501 - rows of tables stay on one line

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import Result

sys.path.insert(0, str(Path(__file__).parents[1] / "client"))

from stub_api import Stub

Run = Callable[..., Result]
WINDOW = ("--tz", "Europe/Berlin", "--from", "2027-03-27", "--to", "2027-03-30")


@pytest.fixture
def nowhere(hourhand: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Commands without any server."""
    monkeypatch.setenv("HOURHAND_SERVER", "http://127.0.0.1:1")
    return hourhand


def explained(run: Run, *words: str) -> dict[str, object]:
    result = run("cron", "explain", *words, "-o", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_an_expression_is_explained_without_a_server(nowhere: Run) -> None:
    assert explained(nowhere, "30 2 * * *", *WINDOW) == {
        "times": ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"],
        "words": "At 02:30 every day (Europe/Berlin)",
        "notes": [
            "2027-03-28: the clock goes from 02:00 forward to 03:00; "
            "02:30 does not exist and is due at 03:00 instead (gap: fire_after)"
        ],
    }


def test_the_dst_choices_change_what_is_shown(nowhere: Run) -> None:
    assert explained(nowhere, "30 2 * * *", *WINDOW, "--gap", "skip")["times"] == [
        "2027-03-27T01:30:00Z",
        "2027-03-29T00:30:00Z",
    ]
    autumn = ("--tz", "Europe/Berlin", "--from", "2026-10-25T00:00:00Z", "--to", "2026-10-25T02:00:00Z")
    for overlap, times in (
        ("first", ["00:30"]),
        ("last", ["01:30"]),
        ("both", ["00:30", "01:30"]),
        ("auto", ["00:30"]),
    ):
        found = explained(nowhere, "30 2 * * *", *autumn, "--overlap", overlap)["times"]
        assert found == [f"2026-10-25T{time}:00Z" for time in times]


def test_people_see_words_times_and_marked_days(nowhere: Run) -> None:
    lines = nowhere("cron", "explain", "30 2 * * *", *WINDOW).stdout.splitlines()
    assert lines[0] == "At 02:30 every day (Europe/Berlin)"
    assert lines[1].startswith("  note: 2027-03-28: the clock goes")
    assert lines[3] == "Sun 2027-03-28 03:00:00 CEST   2027-03-28T01:00:00Z   <- the clock changes"
    assert "<-" not in lines[2] + lines[4]


def test_without_an_end_ten_times_from_now_are_shown(nowhere: Run) -> None:
    times = explained(nowhere, "* * * * *")["times"]
    assert isinstance(times, list)
    assert len(times) == 10
    assert datetime.fromisoformat(times[0]) > datetime(2026, 1, 1, tzinfo=UTC)
    assert len(explained(nowhere, "@daily", "-n", "3")["times"]) == 3  # type: ignore[arg-type]


def test_a_window_is_shown_whole(nowhere: Run) -> None:
    found = explained(nowhere, "* * * * *", "--from", "2027-01-01", "--to", "2027-01-31")
    assert len(found["times"]) == 30 * 1440 + 1  # type: ignore[arg-type]
    assert set(found) == {"times", "words", "notes"}


def test_both_day_fields_get_a_note(nowhere: Run) -> None:
    assert "either is enough" in str(explained(nowhere, "0 0 13 * FRI")["notes"])


def test_h_is_that_of_the_job_when_its_id_is_given(nowhere: Run) -> None:
    one = explained(nowhere, "H H * * *", "--job-id", "0198c0de-7a5c-7000-8000-000000000001", "-n", "1")["times"]
    two = explained(nowhere, "H H * * *", "--job-id", "0198c0de-7a5c-7000-8000-000000000002", "-n", "1")["times"]
    assert one != two


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("60 * * * *",), "EXPRESSION: 60 is out of range: minute 0-59"),
        (("",), "the cron expression is empty"),
        (("@daily", "--tz", "Europe/Berln"), "did you mean Europe/Berlin"),
        (("@daily", "--from", "soon"), "'soon' is not a time"),
        (("@daily", "--from", "2027-01-02", "--to", "2027-01-01"), "earlier than --from"),
        (("@daily", "--gap", "jump"), "jump"),
        (("@daily", "--count", "0"), "count is 1 to 500, not '0'"),
        (("@daily", "-n", "501"), "count is 1 to 500, not '501'"),
        (("@daily", "--job-id", "x"), "is not an id"),
        (("0 0 31 2 *",), "never fires"),
    ],
)
def test_what_is_wrong_is_a_usage_error_with_a_reason(nowhere: Run, words: tuple[str, ...], said: str) -> None:
    result = nowhere("cron", "explain", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""


# --- calendars --------------------------------------------------------------------------------------------

HOLIDAYS = {
    "name": "holidays",
    "dates": ["12-25"],
    "weekly": [{"day": "SAT", "from": "00:00", "to": "24:00"}],
    "blackouts": [{"from": "2030-01-01T00:00:00Z", "to": "2030-01-02T00:00:00Z", "reason": "freeze"}],
    "version": 3,
    "jobs": 1,
    "updated_at": "2026-01-01T00:00:00Z",
    "updated_by": "ada",
}


def answer(stub: Stub, body: object) -> None:
    stub.raw = (200, "application/json", json.dumps(body).encode())


def test_a_calendar_is_set_from_options(hourhand: Run, stub: Stub) -> None:
    answer(stub, HOLIDAYS)
    result = hourhand(
        "calendar", "set", "holidays", "--date", "12-25", "--date", "2030-01-01", "--weekly", "SAT-SUN",
        "--weekly", "MON-FRI 22:00-06:00", "--blackout", "2030-12-20 18:00/2031-01-02T08:00:00Z",
        "--tz", "Europe/Berlin", "--description", "days off",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert (stub.last.method, stub.last.path) == ("PUT", "/api/v1/calendars/holidays")
    assert stub.last.json == {
        "zone": "Europe/Berlin",
        "dates": ["12-25", "2030-01-01"],
        "weekly": [{"day": "SAT-SUN"}, {"day": "MON-FRI", "from": "22:00", "to": "06:00"}],
        "blackouts": [{"from": "2030-12-20T17:00:00Z", "to": "2031-01-02T08:00:00Z"}],
        "description": "days off",
    }
    assert "2030-01-01T00:00:00Z to 2030-01-02T00:00:00Z (freeze)" in result.stdout


def test_a_calendar_is_imported_listed_and_deleted(hourhand: Run, stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "days.ics"
    file.write_text("BEGIN:VCALENDAR\n")
    answer(stub, HOLIDAYS)
    assert hourhand("calendar", "import", "holidays", str(file), "--tz", "Europe/Berlin").exit_code == 0
    assert (stub.last.path, stub.last.params) == ("/api/v1/calendars/holidays/import", {"zone": ["Europe/Berlin"]})
    assert stub.last.headers["content-type"] == "text/calendar"
    answer(stub, {"calendars": [HOLIDAYS]})
    assert "1 date, 1 weekly window, 1 blackout" in hourhand("calendar", "list").stdout
    answer(stub, {"deleted": "holidays"})
    assert "is deleted" in hourhand("calendar", "delete", "holidays", "--yes").stderr
    assert stub.last.method == "DELETE"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("set", "x"), 2, "nothing is given"),
        (("set", "x", "--weekly", "MON 22:00"), 2, "FROM-TO"),
        (("set", "x", "--blackout", "2030-01-01"), 2, "FROM/TO"),
        (("set", "x", "--blackout", "soon/later"), 2, "is not a time"),
        (("import", "x", "/nowhere.ics"), 66, "cannot be read"),
        (("create", "x"), 2, "did you mean set"),
    ],
)
def test_calendars_that_cannot_be_read_are_not_sent(
    hourhand: Run, stub: Stub, words: tuple[str, ...], code: int, said: str
) -> None:
    result = hourhand("calendar", *words)
    assert (result.exit_code, stub.seen) == (code, [])
    assert said in result.stderr


# --- jobs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("--every", "10m", "--after-completion"), {"schedule": {"every": "10m", "after": "completion"}}),
        (
            ("--rrule", "FREQ=DAILY", "--first", "2030-01-31T09:00", "--tz", "Europe/Berlin"),
            {"schedule": {"rrule": "FREQ=DAILY", "first": "2030-01-31T09:00"}, "zone": "Europe/Berlin"},
        ),
        (
            ("--every", "90m", "--anchor", "2030-01-31 09:00", "--tz", "Europe/Berlin"),
            {"schedule": {"every": "90m", "anchor": "2030-01-31T08:00:00Z"}, "zone": "Europe/Berlin"},
        ),
        (
            ("--every", "90m", "--anchor", "2030-01-31T09:00:00Z", "--cron", "@daily"),
            {"schedule": [{"cron": "@daily"}, {"every": "90m", "anchor": "2030-01-31T09:00:00Z"}]},
        ),
        (("--daily", "09:00"), {"schedule": {"daily": "09:00"}}),
        (
            ("--cron", "0 9 * * *", "--cron", "0 17 * * FRI", "--at", "2030-01-31T09:00:00Z", "--zone", "Europe/Berlin"),
            {"schedule": [{"cron": "0 9 * * *"}, {"cron": "0 17 * * FRI"}, {"at": "2030-01-31T09:00:00Z"}], "zone": "Europe/Berlin"},
        ),
        (("--monthly", "2030-01-31T09:00"), {"schedule": {"monthly": "2030-01-31T09:00"}}),
        (
            ("--cron", "@daily", "--max-runs", "5", "--jitter", "10m", "--calendar", "a", "--calendar", "b"),
            {"schedule": {"cron": "@daily"}, "max_runs": 5, "jitter": "10m", "calendars": ["a", "b"]},
        ),
        (
            ("--cron", "@daily", "--on-excluded", "next_allowed", "--dst-gap", "skip", "--dst-overlap", "both"),
            {"schedule": {"cron": "@daily"}, "on_excluded": "next_allowed", "dst_gap": "skip", "dst_overlap": "both"},
        ),
        (("--max-runs", "none", "--jitter", "none", "--calendar", "none"), {"max_runs": None, "jitter": None, "calendars": None}),
    ],
)  # fmt: skip
def test_the_options_of_a_job_become_its_fields(
    hourhand: Run, stub: Stub, words: tuple[str, ...], fields: dict[str, object]
) -> None:
    assert hourhand("job", "create", "x", *words, "--handler", "h").exit_code == 0
    sent = stub.asked("POST", "/jobs").json
    assert {name: sent[name] for name in sent if name not in ("name", "kind", "payload")} == fields


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cron", "@daily", "--after-completion"), "--after-completion goes with one --every"),
        (("--daily", "09:00", "--first", "2030-01-31T09:00"), "--first goes with one --rrule"),
        (("--daily", "09:00", "--anchor", "2030-01-31T09:00"), "--anchor goes with one --every"),
        (("--every", "1h", "--every", "7h", "--anchor", "2030-01-31T09:00"), "--anchor goes with one --every"),
        (("--every", "1h", "--anchor", "soon"), "is not a time"),
        (("--rrule", "FREQ=DAILY", "--rrule", "FREQ=WEEKLY", "--first", "2030-01-31T09:00"), "--first goes with one"),
    ],
)
def test_options_that_do_not_go_together_are_refused(hourhand: Run, words: tuple[str, ...], said: str) -> None:
    result = hourhand("job", "create", "x", *words, "--handler", "h")
    assert (result.exit_code, said in result.stderr) == (2, True)
