"""`hourhand backfill` against a stub of the API: what is sent, what is shown, how it ends."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from click.testing import Result
from stub_api import Stub

Hourhand = Callable[..., Result]
IDENTITY = "01a1e1a7-d333-7efc-b4d6-560568a1bdff"


def a_backfill(stub: Stub, **fields: Any) -> dict[str, Any]:
    """Kept by the stub; each look moves it on by four runs."""
    made = {
        "backfill_id": IDENTITY, "job_id": str(UUID(int=7)), "job_name": "report", "status": "running", "total": 10,
        "remaining": 10, "live": 0, "succeeded": 0, "failed": 0, "percent": 0.0, "from": "2026-10-01T00:00:00Z",
        "to": "2026-10-11T00:00:00Z", "first_due": "2026-10-01T00:00:00Z", "last_due": "2026-10-10T00:00:00Z",
    } | fields  # fmt: skip
    stub.backfills[IDENTITY] = made
    return made


def a_job(hourhand: Hourhand, *words: str) -> None:
    made = hourhand("job", "create", "report", "--cron", "0 0 * * *", *words, "--", "true")
    assert made.exit_code == 0


def test_start_sends_the_range_and_the_choices_and_prints_the_id(hourhand: Hourhand, stub: Stub) -> None:
    a_job(hourhand)
    ended = hourhand(
        "backfill", "start", "report", "--from", "2026-10-01T00:00:00Z", "--to", "2026-10-11T00:00:00Z",
        "--existing", "repeat", "--parallelism", "4", "--rate", "10/m", "--overlap", "allow", "--reason", "independent",
        "--note", "audit",
    )  # fmt: skip

    assert ended.exit_code == 0
    assert ended.stdout.strip() in stub.backfills
    assert stub.asked("POST", "/backfill").json == {
        "from": "2026-10-01T00:00:00Z", "to": "2026-10-11T00:00:00Z", "existing": "repeat", "parallelism": 4,
        "rate": "10/m", "overlap": "allow", "reason": "independent", "note": "audit",
    }  # fmt: skip


def test_a_range_may_be_told_as_so_long_ago_and_ends_now(hourhand: Hourhand, stub: Stub) -> None:
    a_job(hourhand)
    assert hourhand("backfill", "start", "report", "--from", "7d").exit_code == 0

    sent = stub.asked("POST", "/backfill").json
    begin, end = datetime.fromisoformat(sent["from"]), datetime.fromisoformat(sent["to"])
    assert end - begin == timedelta(days=7)
    assert abs(datetime.now(UTC) - end) < timedelta(minutes=1)


def test_times_without_an_offset_are_meant_in_the_zone_of_the_job(hourhand: Hourhand, stub: Stub) -> None:
    a_job(hourhand, "--tz", "Asia/Tokyo")
    assert (
        hourhand("backfill", "start", "report", "--from", "2026-10-01 09:00", "--to", "2026-10-02 09:00").exit_code == 0
    )
    assert stub.asked("POST", "/backfill").json["from"] == "2026-10-01T00:00:00Z"
    assert hourhand("backfill", "start", "report", "--from", "2026-10-02", "--to", "2026-10-03").exit_code == 0
    assert stub.last.json["from"] == "2026-10-01T15:00:00Z"
    assert stub.last.json["to"] == "2026-10-02T15:00:00Z"


def test_a_dry_run_shows_how_many_when_and_how_long(hourhand: Hourhand, stub: Stub) -> None:
    a_job(hourhand)
    ended = hourhand("backfill", "start", "report", "--from", "10d", "--dry-run")
    assert ended.exit_code == 0
    assert stub.asked("POST", "/backfill").json["dry_run"] is True
    for told in ("nothing was stored", "10, the first 2026-10-01", "2 min 5 s", "read this before"):
        assert told in ended.stdout


def test_wait_stays_until_it_is_over_and_ends_with_5_when_a_run_failed(hourhand: Hourhand, stub: Stub) -> None:
    a_backfill(stub)
    ended = hourhand("backfill", "show", IDENTITY, "--wait", "-o", "json")
    assert ended.exit_code == 0
    assert json.loads(ended.stdout)["succeeded"] == 10

    a_backfill(stub, failed=1, total=11)
    ended = hourhand("backfill", "show", IDENTITY, "--wait")
    assert ended.exit_code == 5
    assert "is completed: 10 succeeded, 1 failed" in ended.stderr


def test_it_is_paused_resumed_and_cancelled_by_its_id(hourhand: Hourhand, stub: Stub) -> None:
    a_backfill(stub)
    for verb, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        ended = hourhand("backfill", verb, IDENTITY)
        assert ended.exit_code == 0
        assert stub.backfills[IDENTITY]["status"] == status
    assert hourhand("backfill", "pause", IDENTITY, "--reason", "lunch").exit_code == 0
    assert stub.asked("POST", "/pause").json == {"reason": "lunch"}


def test_the_list_shows_how_far_each_has_come(hourhand: Hourhand, stub: Stub) -> None:
    assert "no backfills" in hourhand("backfill", "list").stderr
    a_backfill(stub, percent=42.5)
    ended = hourhand("backfill", "list", "--status", "running")
    assert "42.5 %" in ended.stdout
    assert stub.last.params["status"] == ["running"]


def test_a_word_that_is_no_id_is_refused_before_anybody_is_asked(hourhand: Hourhand, stub: Stub) -> None:
    ended = hourhand("backfill", "show", "report")
    assert ended.exit_code == 2
    assert "is not the id of a backfill" in ended.stderr
    assert stub.seen == []


def test_wait_and_dry_run_exclude_each_other(hourhand: Hourhand, stub: Stub) -> None:
    assert hourhand("backfill", "start", "report", "--from", "1d", "--dry-run", "--wait").exit_code == 2
