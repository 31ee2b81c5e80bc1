"""`hourhand run`: what is sent, what is printed, how it ends."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, cast
from uuid import UUID, uuid4

import pytest
from click.testing import Result
from stub_api import Stub, is_uuid

from hourhand.cli import watching
from hourhand.client.attempt_views import AttemptView
from hourhand.client.views import LogLineView, PartView, RunDetailView

Run = Callable[..., Result]
AT: Final = datetime(2030, 1, 31, 9, tzinfo=UTC)


def test_a_run_is_shown_with_its_attempts(hourhand: Run, stub: Stub) -> None:
    attempt = {"attempt": 1, "status": "failed", "reason": "exit_code", "error": "exit code 3\nmore"}
    run = stub.add_run(stub.add_job("x"), attempts=[attempt])
    shown = hourhand("run", "get", run["run_id"]).stdout
    assert run["run_id"] in shown
    assert "exit code 3" in shown


def test_logs_are_printed_line_by_line(hourhand: Run, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))["run_id"]

    assert hourhand("run", "logs", run, "-f").stdout == "one\ntwo\nthree\n"
    assert hourhand("run", "logs", run, "-f", "-t").stdout.startswith("2030-01-31T09:00:00Z one\n")
    lines = hourhand("run", "logs", run, "-f", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["one", "two", "three"]


def test_cancelling_a_run_and_waiting_for_its_end(hourhand: Run, stub: Stub) -> None:
    run = stub.add_run(stub.add_job("x"))["run_id"]

    assert "is cancelled" in hourhand("run", "cancel", run, "--wait").stderr
    again = hourhand("run", "cancel", run)
    assert again.exit_code == 4
    assert "the run is cancelled" in again.stderr


def test_a_finished_run_is_run_again_and_its_new_id_printed(hourhand: Run, stub: Stub) -> None:
    old = stub.add_run(stub.add_job("x"), status="failed")["run_id"]

    done = hourhand("run", "retry", old, "--note", "the disk has room again")
    assert (done.exit_code, is_uuid(done.stdout.strip())) == (0, True)
    assert stub.last.json == {"note": "the disk has room again"}
    assert old in hourhand("run", "get", done.stdout.strip()).stdout

    waited = hourhand("run", "retry", old, "--again", "--wait")
    assert (waited.exit_code, json.loads(waited.stdout)) == (0, {"answer": 42})
    live = stub.add_run(stub.add_job("y"))["run_id"]
    assert hourhand("run", "retry", live).exit_code == 4


def test_runs_are_run_again_by_a_filter(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("x")
    old = [stub.add_run(job, status="failed")["run_id"] for _ in range(2)]

    done = hourhand(
        "run", "retry", "--status", "failed,lost", "--reason", "poison", "--job", "x", "--limit", "5",
        "--since", "2030-01-31T09:00:00Z",
    )  # fmt: skip

    assert done.exit_code == 0, done.stderr
    assert stub.last.json == {
        "status": ["failed", "lost"],
        "reason": ["poison"],
        "job_id": job["job_id"],
        "since": "2030-01-31T09:00:00Z",
        "limit": 5,
    }
    new = done.stdout.split()
    assert [stub.runs[run]["retry_of"] for run in new] == old
    assert "2 runs to run again" in done.stderr
    assert "there may be more" in done.stderr


def test_runs_are_cancelled_by_a_filter(hourhand: Run, stub: Stub) -> None:
    stub.add_job("x")
    done = hourhand("run", "cancel", "--job", "x", "--status", "queued")
    assert "7 runs cancelled, 2 being stopped" in done.stderr
    assert stub.last.json == {"job_id": next(iter(stub.jobs)), "status": ["queued"]}


@pytest.mark.parametrize(
    "words",
    [
        ["retry"],
        ["retry", "--limit", "3"],
        ["retry", str(uuid4()), "--status", "failed"],
        ["retry", str(uuid4()), str(uuid4()), "--wait"],
        ["retry", "--status", "failed", "--since", "sometime"],
        ["cancel"],
        ["cancel", str(uuid4()), "--job", "x"],
        ["cancel", "--job", "x", "--wait"],
    ],
)
def test_it_must_be_clear_which_runs_are_meant(hourhand: Run, stub: Stub, words: list[str]) -> None:
    assert hourhand("run", *words).exit_code == 2
    assert [seen for seen in stub.seen if seen.method != "GET"] == []


def test_runs_are_listed_by_reason_and_time(hourhand: Run, stub: Stub) -> None:
    hourhand("run", "list", "--status", "failed", "--reason", "poison", "--since", "2030-01-31T09:00:00Z")
    assert stub.last.params["reason"] == ["poison"]
    assert stub.last.params["since"] == ["2030-01-31T09:00:00+00:00"]


def test_waiting_for_a_run(hourhand: Run, stub: Stub) -> None:
    good, bad = stub.add_job("x"), stub.add_job("fails")
    assert hourhand("run", "wait", stub.add_run(good)["run_id"]).exit_code == 0
    assert hourhand("run", "wait", stub.add_run(bad)["run_id"]).exit_code == 5
    late = hourhand("run", "wait", stub.add_run(good)["run_id"], "--timeout", "1us")
    assert (late.exit_code, "still queued" in late.stderr) == (1, True)


def test_of_several_runs_the_one_that_cannot_be_run_again_is_named(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("backup")
    ended, running, left = (stub.add_run(job, status=word) for word in ("failed", "running", "failed"))

    done = hourhand("run", "retry", ended["run_id"], running["run_id"], left["run_id"])

    assert done.exit_code == 4
    assert f"that is run {running['run_id']}; 1 run before it to run again, 1 not tried" in done.stderr
    assert is_uuid(done.stdout.strip())


def test_a_run_between_two_attempts_is_shown_with_the_next_one(hourhand: Run, stub: Stub) -> None:
    job = stub.add_job("backup")
    waiting = stub.add_run(job, ready_at="2030-01-31T09:00:00Z")
    ended = stub.add_run(job, status="cancelled", reason="cancelled", ended_at="2030-01-31T09:00:00Z", attempt=0)

    assert "next attempt  2030-01-31 10:00:00 CET" in hourhand("run", "get", waiting["run_id"]).stdout
    shown = hourhand("run", "get", ended["run_id"]).stdout
    assert "cancelled (" not in shown
    assert "took" not in shown


class Watched:
    """A client whose run fails twice and then succeeds, seen several times in between."""

    def __init__(self) -> None:
        run_id, job_id = uuid4(), uuid4()
        said = {"status": "failed", "reason": "exit_code", "error": "exited with code 3\nmore"}
        attempts = [AttemptView(attempt=number, **said) for number in (1, 2)]
        facts: dict[str, Any] = {"run_id": run_id, "job_id": job_id, "job_name": "x", "scheduled_for": AT}
        waits = {**facts, "status": "queued", "ready_at": AT}
        self.run_id = run_id
        self.seen = [
            RunDetailView(**facts, status="running"),
            *[RunDetailView(**waits, attempts=attempts[:1])] * 2,
            RunDetailView(**facts, status="running", attempts=attempts),
            RunDetailView(**facts, status="succeeded", attempts=attempts),
        ]

    def watch_run(self, _run_id: UUID, _timeout: float | None) -> Iterator[RunDetailView]:
        yield from self.seen


def test_whoever_waits_is_told_of_every_attempt_that_failed_and_when_the_next_one_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = Watched()
    assert watching._watched(cast("Any", client), client.run_id, None) is client.seen[-1]
    first, second = capsys.readouterr().err.splitlines()
    how = f"of run {client.run_id} ended as failed (exit_code): exited with code 3"
    assert first == f"attempt 1 {how}; again at 2030-01-31T09:00:00Z"
    assert second == f"attempt 2 {how}"


class InParts:
    """A client of a run that went to two executors, and so has no lines of its own."""

    def __init__(self) -> None:
        self.run_id = uuid4()
        self.parts = [PartView(index=place, total=2, run_id=uuid4(), status="succeeded") for place in (0, 1)]

    def run_parts(self, run_id: UUID) -> list[PartView]:
        return self.parts if run_id == self.run_id else []

    def log_lines(self, run_id: UUID, **wanted: Any) -> Iterator[LogLineView]:
        assert wanted == {"contains": "line"}
        place = [part.run_id for part in self.parts].index(run_id)
        yield LogLineView(number=1, attempt=1, at=AT, stream="stdout", text=f"a line of part {place}")


def test_the_log_of_a_run_on_several_executors_is_that_of_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    client = InParts()
    watching.show_logs(cast("Any", client), client.run_id, [], watching.print_lines, contains="line")
    said = capsys.readouterr()
    assert said.out == "a line of part 0\na line of part 1\n"
    first, second = (part.run_id for part in client.parts)
    assert said.err == f"--- part 1 of 2, run {first} ---\n--- part 2 of 2, run {second} ---\n"
