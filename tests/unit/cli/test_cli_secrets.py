"""`hourhand secret` and `hourhand audit`: what is sent, and that a value is neither an argument nor shown."""

import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from stub_api import Stub

Run = Callable[..., Result]
SECRET = {
    "name": "DB", "description": "words", "version": 2, "grant": {"kinds": ["http"]}, "jobs": 3,
    "updated_at": "2026-01-01T00:00:00Z", "updated_by": "ada", "last_used_at": None, "last_used_run": None,
}  # fmt: skip


def answer(stub: Stub, body: object) -> None:
    stub.raw = (200, "application/json", json.dumps(body).encode())


def test_a_value_is_piped_in_and_not_shown(hourhand: Run, stub: Stub) -> None:
    answer(stub, {**SECRET, "warnings": ["too short"]})
    result = hourhand(
        "secret", "set", "DB", "--description", "words", "--job", "a", "--label", "t=x", input="hunter2\n"
    )
    assert result.exit_code == 0, result.stderr
    assert (stub.last.method, stub.last.path) == ("PUT", "/api/v1/secrets/DB")
    assert stub.last.json == {
        "value": "hunter2",
        "description": "words",
        "grant": {"jobs": ["a"], "labels": {"t": "x"}},
    }
    assert "hunter2" not in result.output + result.stderr
    assert "warning: too short" in result.stderr


def test_bytes_are_sent_as_they_are(hourhand: Run, stub: Stub) -> None:
    answer(stub, SECRET)
    assert hourhand("secret", "set", "DB", "--binary", input=b"\xff\x00\n").exit_code == 0
    assert stub.last.json == {"value_base64": base64.b64encode(b"\xff\x00\n").decode()}
    assert hourhand("secret", "set", "DB", input=b"\xff").exit_code == 2
    assert hourhand("secret", "set", "DB", input=b"a\x00b").exit_code == 2
    assert hourhand("secret", "set", "DB", input=b"").exit_code == 2


def test_a_value_is_no_argument(hourhand: Run, stub: Stub) -> None:
    assert hourhand("secret", "set", "DB", "hunter2").exit_code == 2
    assert hourhand("secret", "set", "DB", "--value", "hunter2").exit_code == 2


def test_secrets_are_shown_granted_and_deleted(hourhand: Run, stub: Stub) -> None:
    answer(stub, {"secrets": [SECRET]})
    assert "kinds http" in hourhand("secret", "list").stdout
    answer(stub, SECRET)
    assert "3 jobs" in hourhand("secret", "show", "DB").stdout
    assert hourhand("secret", "grant", "DB", "--kind", "http").exit_code == 0
    assert stub.last.json == {"grant": {"kinds": ["http"]}}
    assert hourhand("secret", "grant", "DB", "--everybody").exit_code == 0
    assert stub.last.json == {"grant": None}
    assert hourhand("secret", "grant", "DB").exit_code == 2
    assert hourhand("secret", "grant", "DB", "--everybody", "--job", "a").exit_code == 2
    answer(stub, {"deleted": "DB"})
    assert hourhand("secret", "delete", "DB", "--force", "--yes").exit_code == 0
    assert (stub.last.method, stub.last.params) == ("DELETE", {"force": ["true"]})


def test_the_audit_is_asked_for_by_filters(hourhand: Run, stub: Stub) -> None:
    entry = {"id": 7, "at": "2026-01-01T00:00:00Z", "actor": "ada", "action": "secret.use", "subject": "secret/DB"}
    answer(stub, {"entries": [{**entry, "details": {"version": 2}}]})
    assert "version 2" in hourhand("secret", "uses", "DB").stdout
    assert stub.last.params == {"subject": ["secret/DB"], "limit": ["100"]}
    assert "secret.use" in hourhand("audit", "list", "--actor", "ada", "--since", "2026-01-01T00:00:00Z").stdout
    assert stub.last.params["actor"] == ["ada"]
    assert stub.last.params["since"] == ["2026-01-01T00:00:00+00:00"]


@pytest.mark.parametrize(
    ("grant", "told"), [({"jobs": ["a"], "kinds": ["http"]}, "for jobs a; kinds http"), (None, "for every job")]
)
def test_the_audit_tells_for_whom_a_secret_was_made(hourhand: Run, stub: Stub, grant: Any, told: str) -> None:
    entry = {"id": 7, "at": "2026-01-01T00:00:00Z", "actor": "ada", "action": "secret.change", "subject": "secret/DB"}
    answer(stub, {"entries": [{**entry, "details": {"grant": grant}}]})
    assert told in hourhand("secret", "uses", "DB").stdout


def test_a_key_file_is_made_once(hourhand: Run, stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "a.key"
    assert hourhand("secret", "make-key", str(file)).exit_code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    assert hourhand("secret", "make-key", str(file)).exit_code == 78
    assert file.read_bytes() == before


@pytest.mark.parametrize("words", [("--label", "x"), ("--job", "a", "--label", "=")])
def test_labels_that_are_none_are_not_sent(hourhand: Run, stub: Stub, words: tuple[str, ...]) -> None:
    answer(stub, SECRET)
    result = hourhand("secret", "set", "DB", *words, input="hunter2")
    assert (result.exit_code == 2) == (words[-1] == "x")
