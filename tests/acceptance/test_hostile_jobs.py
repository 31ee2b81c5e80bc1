"""What callers and jobs write is taken at its word by nobody: security tests S10 (injection), S12 (pickle, YAML)."""

import base64
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from harness import Up

from seen_folders import seen_folder

ODD: Final = [
    "$(id)", "`id`", "; id", "| id", "&& id", "> /tmp/x", "'", '"', "\\", "a\nb", "-n", "--help", "*", "~", "${PATH}",
    "$HOME", "%s%n%x", "\x1b]0;title\x07", "../../etc/passwd", "é\u202eß", "<script>alert(1)</script>", "' OR 1=1 --",
    "{0.__class__}", "#{7*7}", "<%= 7*7 %>", "\t leading and trailing ",
]  # fmt: skip
WITNESS: Final = (
    "import sys, os, json; "
    "print(json.dumps([sys.argv[1:], os.environ['ODD'], sys.stdin.read(), os.environ['HOURHAND_JOB_NAME']]))"
)


def test_whatever_is_written_into_any_field_of_a_program_arrives_literally(running: Up) -> None:
    """S10: every field that texts are put into, beside a template that is filled in."""
    text = "".join(ODD)
    due = "{{scheduled_date}}"
    common = {"env": {"ODD": text + due}, "stdin": text + due}
    name = "".join(each for each in text if each.isprintable())[:100].strip()
    payloads = {
        "command": {"argv": ["/usr/bin/env", "python3", "-c", WITNESS, *ODD, due], **common},
        "script": {"source": WITNESS, "language": "python", "args": [*ODD, due], **common},
    }
    for kind, payload in payloads.items():
        with running.client() as client:
            made = client.create_job(name=name, kind=kind, payload=payload, max_retries=0)
            ended = client.wait_for_job(made.job_id, 90)
            printed = "".join(line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout")
        assert ended.status == "succeeded", (kind, ended.error)
        argv, variable, given, job_name = json.loads(printed)
        date = argv[-1]
        assert len(date) == len("2030-01-31"), kind
        assert argv[:-1] == ODD, kind
        assert (variable, given, job_name) == (text + date, text + date, name), kind


def test_a_folder_with_an_odd_name_is_only_a_folder(running: Up) -> None:
    odd = "a b; $(touch x) `id` 'q' \"d\" *"
    with running.client() as client:
        made = client.create_job(name="cwd", kind="command", payload={"argv": ["pwd"], "cwd": odd}, max_retries=0)
        ended = client.wait_for_job(made.job_id, 90)
        [said] = [line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout"]
    assert said.endswith(f"/{odd}")


# --- S12 ------------------------------------------------------------------------------------------------------


class _Evil:
    def __init__(self, place: Path) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self._place}",)


@pytest.fixture
def trap() -> Iterator[Path]:
    """A file that appears when somebody does what a text says. Any user could make it."""
    with seen_folder("hh-trap-", 0o777) as folder:
        yield folder / "sprung"


def corpus(trap: Path) -> dict[str, bytes]:
    pickles = {f"pickle {number}": pickle.dumps(_Evil(trap), protocol=number) for number in range(6)}
    return pickles | {
        "pickle by hand": b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR.",
        "yaml": f"!!python/object/apply:os.system ['touch {trap}']\n".encode(),
        "yaml of another name": f"!!python/object/new:os.system [touch {trap}]\n".encode(),
        "yaml bomb": b"a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n",
        "marshal": b"\xe3" + bytes(40),
    }


def test_pickles_and_yaml_are_bytes_and_texts_to_everybody(running: Up, trap: Path) -> None:
    evil = corpus(trap)
    assert pickle.loads(evil["pickle 4"]) == 0
    assert trap.exists(), "it is a trap"
    trap.unlink()

    texts = {name: base64.b64encode(content).decode() for name, content in evil.items()}
    texts |= {f"{name} as text": content.decode("latin-1").replace("\0", " ") for name, content in evil.items()}
    with running.http() as http, running.client() as client:
        for content in evil.values():
            for media in ("application/x-python-pickle", "application/yaml", "text/yaml", "application/x-yaml"):
                for path in ("/api/v1/jobs", "/api/v1/jobs/batch", "/jobs", "/api/jobs"):
                    answer = http.post(path, content=content, headers={"Content-Type": media})
                    assert (answer.status_code, path) == (415, path)
            as_json = http.post("/api/v1/jobs", content=content, headers={"Content-Type": "application/json"})
            assert (as_json.status_code, as_json.json()["type"]) == (400, "urn:hourhand:problem:malformed-json")
            archive = http.put("/api/v1/artifacts/evil.zip", content=content)
            assert (archive.status_code, archive.json()["errors"][0]["code"]) == (422, "archive-unreadable")
        # As an argument of a handler, which gives it back as its result.
        made = client.create_job(
            name="daily-data-cleanup", payload={"cleanup_target": json.dumps(texts)}, max_retries=0
        )
        ended = client.get_run(client.wait_for_job(made.job_id, 90).run_id)
        assert ended.result == {"cleaned": json.dumps(texts)}
        # As what a program prints, reads and leaves.
        argv = ["sh", "-c", 'printf %s "$1" | base64 -d | tee "$HOURHAND_OUTPUT_DIR/evil.pkl" | od -c | head -3', "-"]
        for text in (texts["pickle 4"], texts["yaml"]):
            made = client.create_job(name="prints", kind="command", payload={"argv": [*argv, text]}, max_retries=0)
            assert client.wait_for_job(made.job_id, 90).status == "succeeded"
    assert not trap.exists()
