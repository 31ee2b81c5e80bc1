"""`hourhand forecast` against a stub of the API: the chart, the crowds, what is offered."""

import json
from collections.abc import Callable

from click.testing import Result
from stub_api import Stub

Hourhand = Callable[..., Result]


def test_the_chart_has_a_bar_for_each_hour_and_names_the_crowd(hourhand: Hourhand, stub: Stub) -> None:
    ended = hourhand("forecast")
    lines = ended.stdout.splitlines()

    assert ended.exit_code == 0
    assert lines[0] == "444 runs fall due; slots: 10 process, 1000 inline; a run takes 8.0 s"
    bars = [line for line in lines if line[2:3] == ":"]
    assert len(bars) == 24
    [full] = [line for line in bars if "█" * 40 in line]
    assert full.startswith("01:00")  # midnight of UTC, in Berlin
    assert "5.6 times the slots" in full
    assert "crowd  420 jobs at 00:00 UTC need 5.6 times what the slots can do in that minute (here 01:00 CET)" in lines
    assert any("420 jobs with cron '0 0 * * *' in UTC: a, b, c, ..." in line for line in lines)
    assert any("hourhand job update JOB --cron 'H 0 * * *'" in line for line in lines)
    assert lines[-2:] == ["all 421 jobs, every due time", "read this too"]


def test_as_json_it_is_the_answer_itself(hourhand: Hourhand, stub: Stub) -> None:
    found = json.loads(hourhand("forecast", "--hours", "6", "-o", "json").stdout)
    assert found["crowds"][0]["schedules"][0]["spread"] == "H 0 * * *"
    assert stub.last.params == {"hours": ["6"]}


def test_it_looks_a_day_ahead_at_most(hourhand: Hourhand) -> None:
    assert hourhand("forecast", "--hours", "25").exit_code == 2
