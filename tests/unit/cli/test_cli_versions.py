"""`hourhand job diff` and `hourhand job rollback` against a stub of the API."""

import json
from collections.abc import Callable

from click.testing import Result
from stub_api import Stub

Hourhand = Callable[..., Result]


def test_diff_shows_what_was_there_and_what_is_there_instead(hourhand: Hourhand, stub: Stub) -> None:
    stub.add_job("x")
    ended = hourhand("job", "diff", "x", "1", "3")

    assert ended.exit_code == 0
    assert ended.stdout.splitlines() == [
        "version 1 to 3",
        "payload.argv",
        '  - ["a"]',
        '  + ["b", "c"]',
        "queue",
        '  + "q"',
    ]
    assert stub.last.params == {"from": ["1"], "to": ["3"]}


def test_diff_without_versions_asks_for_the_last_change(hourhand: Hourhand, stub: Stub) -> None:
    stub.add_job("x")
    assert json.loads(hourhand("job", "diff", "x", "-o", "json").stdout)["from"] == 1
    assert stub.last.params == {}


def test_versions_that_are_the_same_are_told_so(hourhand: Hourhand, stub: Stub) -> None:
    stub.add_job("x")
    ended = hourhand("job", "diff", "x", "2", "2")
    assert (ended.stdout, ended.stderr) == ("", "versions 2 and 2 are the same\n")


def test_rollback_names_the_version_and_the_one_it_is_meant_for(hourhand: Hourhand, stub: Stub) -> None:
    stub.add_job("x", version=4)
    ended = hourhand("job", "rollback", "x", "2", "--if-version", "4")

    assert ended.exit_code == 0
    assert "is as in version 2 again, now version 5" in ended.stderr
    assert stub.last.json == {"version": 2}
    assert stub.last.headers["if-match"] == '"4"'
    assert "is as in the version before again" in hourhand("job", "rollback", "x").stderr
    assert stub.last.json == {}
