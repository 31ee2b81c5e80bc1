"""`hourhand job`: what is sent, what is printed, how it ends."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from stub_api import Stub, is_uuid

Run = Callable[..., Result]


def test_words_after_the_dashes_make_a_command_job(hourhand: Run, stub: Stub) -> None:
    done = hourhand("job", "create", "hello", "--queue", "slow", "--", "echo", "-o", "json", "--", "x")

    assert done.exit_code == 0, done.stderr
    assert stub.asked("POST", "/jobs").json == {
        "name": "hello",
        "kind": "command",
        "queue": "slow",
        "payload": {"argv": ["echo", "-o", "json", "--", "x"]},
    }
    assert is_uuid(done.stdout.strip())
    assert "job 'hello' is created" in done.stderr


def test_a_url_makes_an_http_job(hourhand: Run, stub: Stub) -> None:
    hourhand("job", "create", "ping", "--url", "https://example.com", "--body", '{"a": 1}', "--every", "5m")

    assert stub.last.json == {
        "name": "ping",
        "kind": "http",
        "schedule": {"every": "5m"},
        "payload": {"url": "https://example.com", "method": "POST", "body": {"a": 1}},
    }


def test_a_handler_makes_a_python_job_with_its_payload(hourhand: Run, stub: Stub) -> None:
    hourhand(
        "job", "create", "report", "--handler", "reports.build", "--payload", '{"days": 7}', "--cron", "0 6 * * *",
        "--tz", "Europe/Berlin", "--priority", "8", "--max-retries", "0", "--timeout", "90s",
        "--label", "team=a", "--label", "env=prod", "--owner", "me",
    )  # fmt: skip

    assert stub.last.json == {
        "name": "report",
        "kind": "python",
        "payload": {"days": 7, "handler": "reports.build"},
        "schedule": {"cron": "0 6 * * *"},
        "zone": "Europe/Berlin",
        "priority": 8,
        "max_retries": 0,
        "timeout": "90s",
        "labels": {"team": "a", "env": "prod"},
        "owner": "me",
    }


def test_a_file_gives_the_fields_and_options_win(hourhand: Run, stub: Stub) -> None:
    Path("job.json").write_text(
        '{"name": "a", "kind": "command", "payload": {"argv": ["x"], "cwd": "/"}, "queue": "q"}'
    )

    assert hourhand("job", "create", "--from-file", "job.json", "--queue", "r", "--", "y").exit_code == 0

    assert stub.last.json == {"name": "a", "kind": "command", "payload": {"argv": ["y"], "cwd": "/"}, "queue": "r"}


def test_a_job_can_come_from_stdin(hourhand: Run, stub: Stub) -> None:
    assert hourhand("job", "create", "--from-file", "-", input='{"name": "a"}').exit_code == 0
    assert stub.last.json == {"name": "a"}


def test_times_are_sent_in_utc(hourhand: Run, stub: Stub) -> None:
    hourhand("job", "create", "a", "--at", "2030-07-01 06:00", "--end-at", "2030-08-01T06:00:00+09:00")

    assert stub.last.json["schedule"] == {"at": "2030-07-01T04:00:00Z"}
    assert stub.last.json["end_at"] == "2030-07-31T21:00:00Z"


def test_waiting_prints_the_result_and_ends_well(hourhand: Run) -> None:
    done = hourhand("job", "create", "hello", "--wait", "--", "true")

    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"answer": 42}
    assert "succeeded in 1.2 s" in done.stderr


def test_waiting_for_a_run_that_fails_ends_with_5(hourhand: Run) -> None:
    done = hourhand("job", "create", "fails", "--wait", "--", "false")

    assert done.exit_code == 5
    assert "ended as failed (exit_code): exit code 3\n" in done.stderr
    assert done.stdout == ""


def test_following_prints_the_log_before_the_result(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("x")
    done = hourhand("job", "run", job["job_id"], "--note", "why", "--wait", "--follow")

    assert done.exit_code == 0
    assert done.stdout.startswith("one\ntwo\nthree\n{")
    assert stub.asked("POST", "/run").json == {"note": "why"}


def test_following_leaves_stdout_to_the_document_when_json_is_asked_for(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    done = hourhand("job", "run", "x", "--wait", "--follow", "-o", "json")

    assert json.loads(done.stdout)["status"] == "succeeded"
    assert "one\ntwo\nthree\n" in done.stderr


def test_keys_are_passed_on(hourhand: Run, stub: Stub) -> None:
    words = ("--idempotency-key", "nightly-7", "--unique-key", "import-7", "--unique-period", "1h")
    assert hourhand("job", "create", "x", *words, "--", "true").exit_code == 0
    assert stub.last.headers["idempotency-key"] == "nightly-7"
    assert (stub.last.json["unique_key"], stub.last.json["unique_period"]) == ("import-7", "1h")

    assert hourhand("job", "create", "x", "--", "true").exit_code == 0
    assert stub.last.headers["idempotency-key"] not in ("", "nightly-7")
    assert "unique_key" not in stub.last.json


def test_a_job_is_found_by_its_name(hourhand: Run, stub: Stub) -> None:
    stub.add_job("nightly", status="cancelled")
    job = stub.add_job("nightly")

    done = hourhand("job", "get", "nightly", "-o", "json")

    assert json.loads(done.stdout)["job_id"] == job["job_id"]


def test_a_name_of_several_jobs_ends_with_4_and_lists_their_ids(hourhand: Run, stub: Stub) -> None:
    ids = [stub.add_job("nightly")["job_id"] for _ in range(2)]

    done = hourhand("job", "get", "nightly")

    assert done.exit_code == 4
    assert "2 jobs are named 'nightly'" in done.stderr
    assert all(job_id in done.stderr for job_id in ids)


@pytest.mark.parametrize("word", ["nothing-like-it", "0198c0de-0000-7000-8000-000000000000"])
def test_a_job_that_does_not_exist_ends_with_3(hourhand: Run, word: str) -> None:
    done = hourhand("job", "get", word)
    assert done.exit_code == 3
    assert "does not exist" in done.stderr


def test_an_update_changes_only_what_is_given(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")

    done = hourhand("job", "update", "x", "--queue", "slow", "--timeout", "none", "--if-version", "1")

    assert done.exit_code == 0
    assert stub.last.json == {"queue": "slow", "timeout": None}
    assert stub.last.headers["if-match"] == '"1"'
    assert "too late for run" in done.stderr


def test_an_update_of_a_part_keeps_the_other_parts(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x", kind="http", payload={"url": "http://a", "headers": {"X": "y"}}, labels={"a": "1"}, version=4)

    hourhand("job", "update", "x", "--url", "http://b", "--label", "b=2")

    assert stub.last.json == {"payload": {"url": "http://b", "headers": {"X": "y"}}, "labels": {"a": "1", "b": "2"}}
    assert stub.last.headers["if-match"] == '"4"'


def test_an_update_against_a_changed_job_ends_with_4(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x", version=2)
    done = hourhand("job", "update", "x", "--queue", "q", "--if-version", "1")
    assert done.exit_code == 4
    assert "version 2 by now" in done.stderr


def test_an_update_of_nothing_is_a_mistake(hourhand: Run) -> None:
    assert hourhand("job", "update", "x").exit_code == 2


def test_deleting_needs_a_yes_where_nobody_can_be_asked(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("x")

    refused = hourhand("job", "delete", "x")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert job["status"] == "scheduled"

    assert hourhand("job", "delete", "x", "--yes").exit_code == 0
    assert job["status"] == "cancelled"


def test_pausing_and_resuming(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("x")

    assert "is paused" in hourhand("job", "pause", "x", "--reason", "holiday").stderr
    assert job["pause_reason"] == "holiday"
    assert "goes on" in hourhand("job", "resume", "x").stderr


def test_resuming_a_cancelled_job_ends_with_4(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("x", status="cancelled")
    assert hourhand("job", "resume", job["job_id"]).exit_code == 4


def test_every_field_at_fault_is_printed_on_its_own_line(hourhand: Run) -> None:
    done = hourhand("job", "create", "x", "--cron", "bad", "--", "true")

    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "hourhand: 2 fields are wrong",
        "  /schedule/cron: five fields are needed",
        "  /zone: no such zone (Europe/Berlin?)",
    ]


def test_options_of_the_session_are_accepted_anywhere_and_the_last_one_counts(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    for words in (
        ["-o", "json", "job", "list"],
        ["job", "-o", "json", "list"],
        ["job", "list", "-o", "json"],
        ["-o", "yaml", "job", "list", "-o", "json"],
    ):
        assert json.loads(hourhand(*words).stdout)[0]["name"] == "x"

    hourhand("--namespace", "a", "job", "list", "--namespace", "b")
    assert stub.last.params["namespace"] == ["b"]


def test_lists_say_when_there_is_more(hourhand: Run, stub: Stub) -> None:
    for n in range(5):
        stub.add_job(f"job-{n}")

    some = hourhand("job", "list", "--limit", "2", "--label", "a=b")
    assert len(some.stdout.splitlines()) == 3
    assert "--all" in some.stderr
    assert stub.last.params["label"] == ["a:b"]
    assert len(hourhand("job", "list", "--all").stdout.splitlines()) == 6
    assert hourhand("job", "list", "--limit", "5").stderr == ""


def test_tables_hold_full_ids_and_times_with_their_zone_where_there_is_no_terminal(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("a [red]name[/red] " + "x" * 100, schedule={"cron": "0 6 * * *"})
    run = stub.add_run(job, lateness_ms=12)

    listed = hourhand("job", "list").stdout
    assert job["job_id"] in listed
    assert job["name"] in listed
    assert "2030-01-31 10:00:00 CET" in listed
    assert run["run_id"] in hourhand("run", "list", "--status", "queued").stdout
    assert run["run_id"] in hourhand("job", "runs", job["job_id"]).stdout


def test_text_of_others_cannot_steer_the_terminal(hourhand: Run, stub: Stub) -> None:
    stub.add_job("evil\x1b]0;title\x07")
    assert "\x1b" not in hourhand("job", "list").stdout


def test_json_has_times_in_utc(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    assert json.loads(hourhand("job", "list", "-o", "json").stdout)[0]["next_due"] == "2030-01-31T09:00:00Z"
    assert json.loads(hourhand("job", "next", "x", "-n", "2", "-o", "json").stdout) == ["2030-01-31T09:00:00Z"] * 2


def test_details_versions_and_due_times_are_shown_to_people(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x", zone="Asia/Tokyo", labels={"a": "b"})

    assert "a=b" in hourhand("job", "get", "x").stdout
    assert "2030-01-31 10:00:00 CET   Thu 2030-01-31 18:00:00 JST" in hourhand("job", "next", "x").stdout
    assert "stub" in hourhand("job", "versions", "x").stdout


def test_a_table_tells_which_fields_a_version_changed(berlin: None, capsys: pytest.CaptureFixture[str]) -> None:
    from hourhand.cli.planning_tables import version_table
    from hourhand.client import VersionView
    from hourhand.client.views import FieldChangeView

    changes = [FieldChangeView(field="/queue", before="a", after="b"), FieldChangeView(field="/payload/argv")]
    version_table([VersionView(version=2, changes=changes), VersionView(version=1)])
    version_table([])

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-2:] == ["queue,", "payload.argv"]
    assert lines[2].split()[-1] == "created"


def test_on_a_terminal_of_80_columns_ids_stay_whole_and_names_give_way(stub: Stub) -> None:
    job = stub.add_job("a name that is much longer than the room there is for it")
    run = stub.add_run(job, status="succeeded")
    seen = on_a_terminal("run", "list", columns=80)

    assert run["run_id"] in seen
    assert "succeeded" in seen
    assert "DUE (CET)" in seen
    assert max(map(len, seen.splitlines())) <= 80


def on_a_terminal(*words: str, columns: int) -> str:
    """What the command shows to a person, without colours."""
    main, other = pty.openpty()
    source = str(Path(__file__).parents[3] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "COLUMNS": str(columns), "TERM": "dumb", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "hourhand.cli", *words]
    with subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal says that the other side has closed it
            while chunk := os.read(main, 65536):
                shown += chunk
        process.wait(30)
    os.close(main)
    return shown.decode().replace("\r\n", "\n")


def test_failures_to_retry_are_given_as_words_or_codes(hourhand: Run, stub: Stub) -> None:
    hourhand(
        "job",
        "create",
        "x",
        "--retry-on",
        "http:5xx,3",
        "--retry-on",
        "timeout",
        "--never-retry-on",
        "KeyError",
        "--",
        "y",
    )
    assert stub.asked("POST", "/jobs").json["retry"] == {"on": ["http:5xx", 3, "timeout"], "never_on": ["KeyError"]}


def test_an_update_of_the_failures_to_retry_keeps_the_delays(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x", retry={"delays": ["30s"], "on": ["exit:3"]}, version=4)
    hourhand("job", "update", "x", "--retry-on", "exit:4")
    assert stub.last.json == {"retry": {"delays": ["30s"], "on": ["exit:4"]}}
    assert stub.last.headers["if-match"] == '"4"'


def test_the_status_of_the_cluster(hourhand: Run, stub: Stub) -> None:
    shown = hourhand("status").stdout
    assert stub.url in shown
    assert "3 queued, 1 running" in shown
    assert "12.5 s" in shown
    assert json.loads(hourhand("status", "-o", "json").stdout)["leader"] == "alpha"


# --- limits, overlap, repetitions -------------------------------------------------------------------------


def test_limits_are_taken_away_by_none_and_flags_taken_back(hourhand: Run, stub: Stub) -> None:
    stub.add_job("backup")
    done = hourhand(
        "job", "update", "backup", "--max-concurrency", "none", "--concurrency-limit", "none", "--overlap-max", "7",
        "--no-at-most-once", "--on-next-due", "supersede", "--on-disconnect", "kill",
    )  # fmt: skip

    assert done.exit_code == 0, done.stderr
    assert stub.last.json == {
        "max_concurrency": None,
        "concurrency_limit": None,
        "overlap_max": 7,
        "at_most_once": False,
        "on_next_due": "supersede",
        "on_disconnect": "kill",
    }
    assert hourhand("job", "update", "backup", "--max-concurrency", "many").exit_code == 2


def test_a_job_is_shown_with_what_it_is_limited_by(hourhand: Run, stub: Stub) -> None:
    stub.add_job("plain", overlap="allow", on_disconnect="continue")
    stub.add_job(
        "bound", overlap="queue_all", overlap_max=7, max_concurrency=3, concurrency_key="a-{id}", concurrency_limit=2,
        rate_limit="5/s", deadline="1h", queue_timeout="5m", at_most_once=True, on_disconnect="kill",
    )  # fmt: skip

    plain, bound = (hourhand("job", "get", name).stdout.splitlines() for name in ("plain", "bound"))

    words = [line.split("  ")[0] for line in plain]
    assert "overlap" in words
    assert not {"limit", "key", "rate", "deadline", "queue timeout", "at most once", "on disconnect"} & set(words)
    told = {line.split("  ")[0]: line.strip().split("  ")[-1].strip() for line in bound}
    assert (told["limit"], told["key"], told["rate"]) == ("3 at once", "a-{id}, 2 at once", "5/s")
    assert (told["deadline"], told["queue timeout"], told["at most once"]) == ("1h", "5m", "yes")
    assert told["overlap"] == "queue_all, at most 7 waiting"


def test_a_job_is_run_beside_another_run_when_that_is_asked_for(hourhand: Run, stub: Stub) -> None:
    stub.add_job("backup")
    hourhand("job", "run", "backup", "--overlap", "allow")
    assert stub.asked("POST", "/run").json == {"overlap": "allow"}


def test_resources_are_said_one_by_one(hourhand: Run, stub: Stub) -> None:
    options = ["--cpu", "0.5", "--memory", "512MB", "--slots", "2", "--pids", "9", "--resource", "gpu=1"]
    options += ["--disk", "2GB"]
    assert hourhand("job", "create", "train", *options, "--", "true").exit_code == 0
    taken = {"cpu": 0.5, "memory": "512MB", "slots": 2, "pids": 9, "gpu": 1, "disk": "2GB"}
    assert stub.last.json["resources"] == taken

    done = hourhand("job", "create", "train", "--resource", "gpu", "--", "true")
    assert done.exit_code == 2
    assert "write NAME=N" in done.stderr

    hourhand("job", "create", "train", "--cpu", "nan", "--slots", "many", "--", "true")
    assert stub.last.json["resources"] == {"cpu": "nan", "slots": "many"}, "the server judges them"


def test_an_update_of_one_resource_keeps_the_others(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x", resources={"memory": "1GB", "gpu": 1}, version=4)
    hourhand("job", "update", "x", "--memory", "2GB", "--resource", "gpu=none")
    assert stub.last.json == {"resources": {"memory": "2GB", "gpu": None}}
