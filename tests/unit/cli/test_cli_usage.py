"""Mistakes on the command line: exit 2, one line that says what was meant; and where the token comes from."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from stub_api import TOKEN, Stub

from hourhand.runtime.signing import make_signing_key, read_key

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["jbo"], "did you mean job?"),
        (["jobs", "list"], "did you mean job?"),
        (["job", "craete"], "did you mean create?"),
        (["job", "ledger"], "did you mean history?"),
        (["run", "log"], "did you mean logs?"),
        (["nonsense"], "there are up, demo, job"),
        (["job", "create", "x", "--priorty", "1"], "--priority"),
        (["job", "list", "-o", "xml"], "'table', 'json', 'yaml'"),
        (["job", "get"], "missing argument 'JOB'"),
        (["job", "create", "x", "--"], "no command follows after --"),
        (["job", "create", "my", "job"], "the words of a command go after --"),
        (["job", "create", "--queue", "q"], "a NAME for the job is missing"),
        (["job", "create", "x", "--every", "5m", "--every", "1m", "--after-completion"], "goes with one --every"),
        (["job", "create", "x", "--payload", "{}", "--payload-file", "-"], "only one of --payload, --payload-file"),
        (["job", "create", "x", "--payload", '{"a": }'], "line 1, column 7"),
        (["job", "create", "x", "--payload", "[1]"], "a JSON object is needed"),
        (["job", "create", "x", "--label", "team"], "'team' has no '='"),
        (["job", "create", "x", "--at", "whenever"], "'whenever' is not a time"),
        (["job", "create", "x", "--at", "06:00", "--tz", "Europe/Berln"], "did you mean Europe/Berlin"),
        (["job", "create", "x", "--url", "http://a", "--", "true"], "one kind; these options make it command and http"),
        (["job", "create", "x", "--kind", "http", "--", "true"], "one kind; these options make it http and command"),
        (["job", "create", "x", "--follow"], "--follow needs --wait"),
        (["job", "create", "x", "--sign-with", "a.pem", "--", "true"], "--sign-with goes with --script"),
        (["job", "create", "x", "--entry", "a.py", "--", "true"], "--entry goes with --script"),
        (["run", "get", "42"], "'42' is not the id of a run"),
        (["run", "wait", "a" * 32, "--timeout", "5"], "has no unit"),
        (["--server", "nowhere", "status"], "'nowhere' is not an address"),
    ],
)
def test_a_mistake_ends_with_2_and_says_what_was_meant(hourhand: Run, stub: Stub, words: list[str], said: str) -> None:
    done = hourhand(*words)

    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("hourhand: ")
    assert said in done.stderr
    assert done.stdout == ""
    assert not stub.seen


@pytest.mark.parametrize("words", [[], ["job"], ["run"]])
def test_no_command_shows_the_help_and_ends_with_2(hourhand: Run, words: list[str]) -> None:
    done = hourhand(*words)
    assert done.exit_code == 2
    assert "Commands:" in done.output


def test_help_names_every_command_without_importing_it(hourhand: Run) -> None:
    done = hourhand("--help")
    assert done.exit_code == 0
    for name in ("up", "demo", "login-link", "api", "scheduler", "executor", "db", "bench", "config", "job", "run"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize("noun", ["job", "run"])
def test_every_verb_has_help(hourhand: Run, noun: str) -> None:
    listed = hourhand(noun, "--help").stdout.partition("Commands:")[2]
    verbs = [line.split()[0] for line in listed.splitlines() if line.startswith("  ") and line[2] != " "]
    assert len(verbs) >= 5
    for verb in verbs:
        assert hourhand(noun, verb, "--help").exit_code == 0


def test_the_version_is_shown(hourhand: Run) -> None:
    assert hourhand("--version").stdout.startswith("hourhand ")


@pytest.mark.parametrize("content", [None, "", "  \n"])
def test_a_file_that_is_missing_or_empty_ends_with_66(hourhand: Run, content: str | None) -> None:
    if content is not None:
        Path("payload.json").write_text(content)
    for words in (["--payload-file", "payload.json"], ["--from-file", "payload.json"]):
        done = hourhand("job", "create", "x", *words)
        assert done.exit_code == 66
        assert "payload.json" in done.stderr


def test_a_folder_and_an_empty_stdin_are_no_input(hourhand: Run) -> None:
    assert hourhand("job", "create", "x", "--from-file", ".").exit_code == 66
    assert hourhand("job", "create", "x", "--payload-file", "-", input="").exit_code == 66


# --- tokens -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_token(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOURHAND_TOKEN")


@pytest.mark.usefixtures("no_token")
def test_without_a_token_it_says_how_to_give_one(hourhand: Run) -> None:
    done = hourhand("status")
    assert done.exit_code == 77
    assert "No token was sent: set HOURHAND_TOKEN" in done.stderr


@pytest.mark.usefixtures("no_token")
def test_the_token_is_found_in_the_home_folder(hourhand: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path(".hourhand").mkdir()
    Path(".hourhand/token").write_text(TOKEN + "\n")
    assert hourhand("status").exit_code == 0

    monkeypatch.setenv("HOURHAND_HOME", "elsewhere")
    assert hourhand("status").exit_code == 77


def test_an_option_wins_over_the_environment_and_that_over_files(
    hourhand: Run, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("other").write_text("hh_other")
    monkeypatch.setenv("HOURHAND_TOKEN_FILE", "other")
    assert hourhand("status").exit_code == 0

    refused = hourhand("status", "--token", "hh_wrong")
    assert refused.exit_code == 77
    assert "not one that server knows" in refused.stderr
    assert "hh_wrong" not in refused.stderr

    monkeypatch.setenv("HOURHAND_TOKEN", "")
    hourhand("status")
    assert stub.last.headers["authorization"] == "Bearer hh_other"


@pytest.mark.usefixtures("no_token")
def test_a_token_file_that_is_named_and_missing_is_a_fault_of_the_configuration(
    hourhand: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOURHAND_TOKEN_FILE", "missing")
    done = hourhand("status")
    assert done.exit_code == 78
    assert "HOURHAND_TOKEN_FILE: missing cannot be read (no such file or directory)" in done.stderr


def test_the_port_of_the_environment_is_used_and_checked(
    hourhand: Run, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOURHAND_SERVER")
    monkeypatch.setenv("HOURHAND_PORT", stub.url.rpartition(":")[2])
    assert hourhand("status").exit_code == 0

    monkeypatch.setenv("HOURHAND_PORT", "http")
    assert hourhand("status").exit_code == 78


@pytest.mark.parametrize(
    "words",
    [
        ["job", "delete", "x"],
        ["artifact", "delete", "tool"],
        ["calendar", "delete", "holidays"],
        ["secret", "delete", "TOKEN"],
        ["secret", "delete", "TOKEN", "--force"],
        ["node", "mark-lost", "7"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_undone_needs_a_yes_where_nobody_can_be_asked(
    hourhand: Run, stub: Stub, words: list[str]
) -> None:
    """Row 175."""
    done = hourhand(*words)
    assert (done.exit_code, "--yes" in done.stderr, done.stdout) == (2, True, ""), done.stderr
    assert not stub.seen, "nobody was asked for anything"


def test_a_key_to_sign_by_is_made_once_and_for_its_owner_alone(hourhand: Run, tmp_path: Path) -> None:
    made = hourhand("artifact", "make-key", "release.pem")
    again = hourhand("artifact", "make-key", "release.pem")

    assert made.exit_code == 0
    assert read_key(made.stdout) is not None
    assert (tmp_path / "release.pem").stat().st_mode & 0o777 == 0o600
    assert (again.exit_code, again.stdout) == (2, "")


@pytest.mark.parametrize(
    ("key", "code", "said"),
    [
        ("none.pem", 66, "none.pem cannot be read (no such file or directory)"),
        ("open.pem", 1, "can be read by others than its owner: chmod 600"),
        ("nonsense.pem", 1, "holds no Ed25519 private key"),
    ],
)
def test_a_key_that_cannot_be_used_signs_nothing(
    hourhand: Run, stub: Stub, tmp_path: Path, key: str, code: int, said: str
) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    make_signing_key(tmp_path / "open.pem")
    (tmp_path / "open.pem").chmod(0o644)
    (tmp_path / "nonsense.pem").write_text("-----BEGIN PRIVATE KEY-----\nTk8=\n-----END PRIVATE KEY-----\n")
    (tmp_path / "nonsense.pem").chmod(0o600)

    done = hourhand("artifact", "upload", "tool", "--sign-with", key)
    assert done.exit_code == code, done.stderr
    assert said in done.stderr
    assert not stub.seen
