"""Pauses, the ledger and the catch-up on the command line: what is sent, what is printed."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from click.testing import Result
from stub_api import Stub

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["label", "pause", "team=x"], "/labels/team%3Dx/pause"),
        (["namespace", "pause", "team-a"], "/namespaces/team-a/pause"),
        (["cluster", "pause"], "/cluster/pause"),
    ],
)
def test_many_are_paused_until_a_time_with_a_reason(hourhand: Run, stub: Stub, words: list[str], path: str) -> None:
    done = hourhand(*words, "--reason", "moving", "--until", "2030-01-31T09:00:00Z")
    assert done.exit_code == 0, done.output
    assert stub.last.path.endswith(path.replace("%3D", "=")) or stub.last.path.endswith(path)
    assert stub.last.json == {"reason": "moving", "until": "2030-01-31T09:00:00+00:00"}
    assert "is paused until 2030-01-31 10:00:00 CET: 4 jobs are held" in done.stderr


@pytest.mark.parametrize("words", [["label", "resume", "team=x"], ["namespace", "resume", "a"], ["cluster", "resume"]])
def test_many_are_resumed_with_what_is_caught_up(hourhand: Run, stub: Stub, words: list[str]) -> None:
    done = hourhand(*words, "--catch-up", "last")
    assert done.exit_code == 0, done.output
    assert stub.last.json == {"catch_up": "last"}
    assert "goes on" in done.stderr
    assert hourhand(*words, "--catch-up", "some").exit_code == 2


def test_a_job_and_a_queue_are_paused_for_a_length(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    for words in (["job", "pause", "x"], ["queue", "pause", "reports"]):
        hourhand(*words, "--until", "+2h")
        until = datetime.fromisoformat(stub.last.json["until"])
        assert timedelta(hours=1, minutes=59) < until - datetime.now(until.tzinfo) <= timedelta(hours=2)
    assert hourhand("job", "pause", "x", "--until", "soon").exit_code == 2
    hourhand("job", "resume", "x", "--catch-up", "all")
    assert stub.last.json == {"catch_up": "all"}


def test_pauses_are_listed(hourhand: Run, stub: Stub) -> None:
    done = hourhand("pause", "list")
    assert "label team=x" in done.stdout
    assert "holiday" in done.stdout
    assert json.loads(hourhand("pause", "list", "-o", "json").stdout)[0]["paused_by"] == "stub"


def test_the_status_shows_what_is_paused(hourhand: Run, stub: Stub) -> None:
    assert "label team=x" in hourhand("status").stdout
    assert json.loads(hourhand("status", "-o", "json").stdout)["pauses"][0]["name"] == "team=x"


def test_the_history_is_told_by_stretches_to_people_and_one_by_one_to_programs(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    for_people = hourhand("job", "history", "x")
    assert "no scheduler was at work" in for_people.stdout
    assert "240" in for_people.stdout
    assert "x: 240 due times: 240 missed" in for_people.stderr
    [entry] = json.loads(hourhand("job", "history", "x", "-o", "json").stdout)
    assert (entry["count"], entry["status"]) == (1, "missed")
    assert "compact" not in stub.last.params
    hourhand("job", "history", "x", "-o", "json", "--compact")
    assert stub.last.params["compact"] == ["true"]
    hourhand("job", "history", "x", "--each")
    assert "compact" not in stub.last.params


def test_the_history_is_asked_for_between_two_times(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    hourhand("job", "history", "x", "--from", "2030-01-30 22:00", "--to", "2030-01-31T06:00:00Z")
    assert stub.last.params["from"] == ["2030-01-30T21:00:00+00:00"]
    assert stub.last.params["to"] == ["2030-01-31T06:00:00+00:00"]
    assert hourhand("job", "history", "x", "--from", "sometime").exit_code == 2


def test_the_history_is_asked_for_from_the_beginning_of_a_day(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    assert hourhand("job", "history", "x", "--from", "2026-11-15").exit_code == 0
    assert stub.last.params["from"] == ["2026-11-14T23:00:00+00:00"]


def test_a_paused_job_shows_who_paused_it_until_when_and_why(hourhand: Run, stub: Stub) -> None:
    until = "2030-01-31T09:00:00Z"
    own = {"scope": "job", "paused_at": "2030-01-30T09:00:00Z", "paused_by": "ada", "reason": "broken", "until": until}
    stub.add_job("x", status="paused", pauses=[own, {**own, "scope": "cluster", "paused_by": "bob", "until": None}])
    shown = hourhand("job", "get", "x").stdout
    assert "by ada since 2030-01-30 10:00:00 CET until 2030-01-31 10:00:00 CET: broken" in shown
    assert "cluster by bob since 2030-01-30 10:00:00 CET: broken" in shown


def test_the_catch_up_of_a_job_is_said_and_changed_in_parts(hourhand: Run, stub: Stub) -> None:
    hourhand("job", "create", "x", "--cron", "@hourly", "--catchup", "all", "--catchup-max-runs", "5", "--", "y")
    assert stub.asked("POST", "/jobs").json["catchup"] == {"mode": "all", "max_runs": 5}
    stub.add_job("z", catchup={"mode": "all", "window": "1h", "max_runs": 5}, version=3)
    hourhand("job", "update", "z", "--catchup-window", "2h")
    assert stub.last.json == {"catchup": {"mode": "all", "window": "2h", "max_runs": 5}}
    assert stub.last.headers["if-match"] == '"3"'


@pytest.mark.parametrize(
    ("catchup", "words"),
    [
        ({"mode": "last", "window": "1h", "max_runs": 100}, "last: of what was missed, the newest of the last 1h runs"),
        ({"mode": "all", "window": "2h", "max_runs": 5}, "each, the newest 5 at most, of the last 2h runs"),
        ({"mode": "none", "window": "1h", "max_runs": 5}, "none: what was missed is not run"),
    ],
)
def test_a_job_shows_what_becomes_of_what_it_misses(
    hourhand: Run, stub: Stub, catchup: dict[str, object], words: str
) -> None:
    stub.add_job("x", schedule=[{"cron": "@hourly"}], catchup=catchup)
    assert words in hourhand("job", "get", "x").stdout


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([None], "x is paused: due times while that lasts make no runs"),
        (
            ["2030-01-31T09:00:00Z", "2030-01-31T10:00:00Z"],
            "x is paused: due times before 2030-01-31 11:00:00 CET make",
        ),
    ],
)
def test_the_next_times_of_a_paused_job_are_shown_with_what_the_pause_does_to_them(
    hourhand: Run, stub: Stub, ends: list[str | None], said: str
) -> None:
    pause = {"scope": "job", "name": "", "paused_at": "2030-01-01T00:00:00Z", "paused_by": "ada", "reason": None}
    stub.add_job("x", status="paused", pauses=[{**pause, "until": end} for end in ends])
    shown = hourhand("job", "next", "x")
    assert said in shown.stderr
    assert "2030-01-31" in shown.stdout
