"""`--script`: a file becomes the payload of a script job."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from stub_api import Stub

from hourhand.cli.script_files import artifact_name, guess_language

Run = Callable[..., Result]


def test_a_file_makes_a_script_job_in_the_language_of_its_suffix(hourhand: Run, stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "backup.py"
    file.write_text("print('{{name}}', {{}})\n")
    done = hourhand("job", "create", "backup", "--cron", "@daily", "--script", str(file), "--", "--all", "x y")

    assert done.exit_code == 0, done.stderr
    assert stub.last.json == {
        "name": "backup",
        "kind": "script",
        "schedule": {"cron": "@daily"},
        "payload": {"source": "print('{{{{name}}}}', {{{{}}}})\n", "language": "python", "args": ["--all", "x y"]},
    }


@pytest.mark.parametrize(
    ("first", "language"),
    [
        ("#!/bin/bash", "bash"),
        ("#!/usr/bin/env python3", "python"),
        ("#!/usr/bin/env -S node --test", "node"),
        ("#! /usr/bin/perl -w", "perl"),
        ("#!/bin/sh -e", "sh"),
        ("#!/usr/bin/Rscript", "r"),
        ("echo hi", None),
        ("", None),
    ],
)
def test_a_file_without_suffix_says_its_language_in_its_first_line(first: str, language: str | None) -> None:
    assert guess_language("backup", f"{first}\nmore #!/bin/bash\n") == language


def test_a_file_that_does_not_say_its_language_is_told_what_to_say(hourhand: Run, tmp_path: Path) -> None:
    (tmp_path / "backup").write_text("echo hi\n")
    done = hourhand("job", "create", "backup", "--script", str(tmp_path / "backup"))

    assert done.exit_code == 2
    assert "--language" in done.stderr


def test_what_is_said_wins(hourhand: Run, stub: Stub) -> None:
    hourhand("job", "create", "x", "--script", "-", "--language", "lua", input="print(1)")
    assert stub.last.json["payload"] == {"source": "print(1)", "language": "lua"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--script", "no-such-file"], 66),
        (["--script", "."], 66),
        (["--entry", "run"], 2),
        (["--script", "-", "--language", "lua", "--entry", "run"], 2),
        (["--language", "lua"], 2),
        (["--script", "-", "--language", "lua", "--url", "https://example.com"], 2),
        (["--script", "-", "--language", "lua", "--kind", "command"], 2),
    ],
)
def test_what_cannot_be_meant_is_refused(hourhand: Run, arguments: list[str], code: int) -> None:
    assert hourhand("job", "create", "x", *arguments, input="print(1)").exit_code == code


def test_an_archive_needs_to_be_told_what_to_run(hourhand: Run, tmp_path: Path) -> None:
    (tmp_path / "app.tar.gz").write_bytes(b"whatever it is")
    done = hourhand("job", "create", "x", "--script", str(tmp_path / "app.tar.gz"))

    assert done.exit_code == 2
    assert "--entry" in done.stderr


@pytest.mark.parametrize(
    ("path", "name"),
    [("/a/my tool.sh", "my-tool.sh"), (".hidden", "hidden"), ("ä/ö", "artifact"), ("x" * 300, "x" * 128)],
)
def test_a_file_gets_a_name_that_the_server_takes(path: str, name: str) -> None:
    assert artifact_name(path) == name
