"""Commands through a whole `hourhand up`: limits, figures, grants, retries, and nothing that is left of them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Up, wait_for

from hourhand.client import ApiProblem, Client, RunView
from hourhand.job_kinds.cgroups import find_trees
from hourhand.model.usage import Level
from seen_folders import seen_folder

needs_groups = pytest.mark.skipif(find_trees().level is Level.RLIMITS, reason="needs control groups")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


SETTINGS = {"HOURHAND_KINDS_GRACE_SECONDS": "1", "HOURHAND_KINDS_RUN_AS": "none"}


@pytest.fixture(scope="module")
def configured() -> Iterator[Path]:
    """A configuration that lies elsewhere, for everybody to read."""
    with seen_folder("hh-etc-") as folder:
        (folder / "hourhand.toml").write_text("[kinds]\npids_max = 500  # hush\n")
        (folder / "hourhand.toml").chmod(0o644)
        yield folder / "hourhand.toml"


@pytest.fixture(scope="module")
def up(configured: Path) -> Iterator[Up]:
    environment = SETTINGS | {"HOURHAND_CONFIG": str(configured)}
    with seen_folder("hh-up-") as folder, Up(folder, environment=environment) as up:
        yield up


def run(client: Client, argv: list[str], **job: Any) -> RunView:
    made = client.create_job(name=argv[0], kind="command", payload={"argv": argv}, **job)
    return client.wait_for_job(made.job_id, 60)


@needs_groups
def test_a_memory_hog_fails_with_a_reason_and_every_attempt_tells_what_it_took(up: Up) -> None:
    hog = ["/usr/bin/env", "python3", "-c", "x = bytearray(300_000_000)"]
    retry = {"delays": ["10ms"]}
    with up.client() as client:
        ended = run(client, hog, resources={"memory": "64MB"}, max_retries=1, retry=retry)
        detail = client.get_run(ended.run_id)
    assert (detail.status, detail.reason, detail.attempt) == ("failed", "memory_limit", 2)
    assert "64 MB of resources.memory" in (detail.error or "")
    for usage in (detail.usage, detail.attempts[0].usage):
        assert usage is not None
        assert usage.level == find_trees().level
        assert 10_000_000 < usage.memory_bytes_peak <= 64_000_000
        assert usage.cpu_seconds > 0


@needs_root
def test_a_command_finds_no_configuration_wherever_that_lies(up: Up, configured: Path) -> None:
    with up.client() as client:
        ended = run(client, ["sh", "-c", f"grep -c hush {configured}; wc -c < {configured}"])
        said = [line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout"]
    assert said == ["0", "0"]
    assert "hush" in configured.read_text()


@needs_root
def test_a_command_finds_nothing_of_the_cluster_that_runs_it_even_as_root(up: Up) -> None:
    """Security test S11, against the real home of a real cluster."""
    files = ("token", "postgres.password")
    assert all((up.home / name).read_text() for name in files), "it is all there"
    script = f"id -u; ls -A {up.home}; for name in {' '.join(files)}; do cat {up.home}/$name; done; ps ax | wc -l"
    with up.client() as client:
        ended = run(client, ["sh", "-c", script])
        said = [line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout"]
    assert ended.status == "succeeded"
    user, processes = said
    assert user == "0"
    assert int(processes) <= 5, "the heading, the shell, and what it has started"


@needs_root
def test_what_a_command_leaves_in_tmp_is_seen_by_no_other_and_gone_afterwards(up: Up) -> None:
    """Security test S11, even as root: at the same time, and one after the other."""
    mark = f"hourhand-test-{os.getpid()}"
    names = [f"{place}/{mark}" for place in ("/tmp", "/var/tmp", "/dev/shm")]
    leave = f"for name in {' '.join(names)}; do echo hush > $name && cat $name; done"
    with up.client() as client:
        holder = client.create_job(
            name="holder", kind="command", payload={"argv": ["sh", "-c", f"{leave}; sleep 4917"]}, max_retries=0
        )
        held = client.wait_for_start(holder.job_id)
        wait_for(lambda: len(list(client.log_lines(held.run_id))) == len(names), "the holder has written its files")
        assert run(client, ["sh", "-c", leave]).status == "succeeded"
        looked = run(client, ["sh", "-c", f"ls {' '.join(names)} 2>/dev/null; echo looked"])
        said = [line.text for line in client.log_lines(looked.run_id) if line.stream == "stdout"]
        client.cancel_run(held.run_id)
        client.wait_for_job(holder.job_id, 60)
    assert said == ["looked"]
    assert [name for name in names if os.path.exists(name)] == []


def test_a_disk_hog_fails_with_a_reason_and_tells_what_it_took(up: Up) -> None:
    hog = ["sh", "-c", "head -c 60000000 /dev/zero > $TMPDIR/x; exec sleep 4919"]
    with up.client() as client:
        ended = run(client, hog, resources={"disk": "20MB"}, max_retries=0)
        detail = client.get_run(ended.run_id)
        assert client.get_job(detail.job_id).resources == {"disk": "20MB"}
    assert (detail.status, detail.reason) == ("failed", "disk_limit")
    assert "20 MB of resources.disk" in (detail.error or "")
    assert detail.usage is not None
    assert detail.usage.disk_level == "watched"
    assert (detail.usage.disk_bytes_peak or 0) > 20_000_000


def test_a_shell_is_forbidden_unless_it_is_granted(up: Up) -> None:
    with up.client() as client, pytest.raises(ApiProblem) as refused:
        client.create_job(name="x", kind="command", payload={"argv": "ls | wc", "shell": True})
    assert (refused.value.status, refused.value.errors[0].code) == (403, "shell-forbidden")


def test_children_of_a_run_that_takes_too_long_are_not_left(up: Up) -> None:
    """Complaint 15: a kill or a timeout leaves child processes."""
    script = "trap '' TERM; setsid sh -c 'trap \"\" TERM; exec sleep 4913' & sleep 4913 & wait; while :; do wait; done"
    with up.client() as client:
        ended = run(client, ["sh", "-c", script], timeout="1s", max_retries=0)
    assert (ended.status, ended.reason) == ("timed_out", "timeout")
    assert [name for name in up.cage.names() if "sleep 4913" in name] == [], "gone when the run has ended"


def test_retries_wait_are_counted_and_choose_by_exit_code(up: Up) -> None:
    """Complaint 16: retries at once, without a delay, without an end, whatever the error."""
    with up.client() as client:
        began = time.monotonic()
        again = run(
            client, ["sh", "-c", "exit 3"], max_retries=2, retry={"delays": ["300ms", "600ms"], "on": ["exit:3"]}
        )
        took = time.monotonic() - began
        never = run(client, ["sh", "-c", "exit 4"], max_retries=2, retry={"delays": ["1ms"], "never_on": ["exit:4"]})
        attempts = client.get_run(again.run_id).attempts
    assert (again.status, again.reason, again.attempt) == ("failed", "exit_code", 3), "two retries and no more"
    assert [attempt.reason for attempt in attempts] == ["exit_code", "exit_code"]
    assert took > 0.3 + 0.6 - 0.2, "after the delays of its list, of which chance may take a part"
    assert (never.status, never.attempt) == ("failed", 1)


def test_whatever_is_in_a_templated_argument_is_passed_literally(up: Up) -> None:
    """Security test S10, through the API, the database and a template."""
    odd = ["$(id)", "`id`", "; id", "'", '"', "\\", "a\nb", "-n", "--help", "*", "{{scheduled_date}}'; id #"]
    with up.client() as client:
        ended = run(client, ["printf", "%s|", *odd])
        said = "\n".join(line.text for line in client.log_lines(ended.run_id))
    expected = "|".join(odd) + "|"
    before, _, after = expected.partition("{{scheduled_date}}")
    assert said.startswith(before)
    assert said.endswith(after)
