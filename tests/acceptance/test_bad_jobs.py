"""The catalogue of bad input for payloads, commands, scripts and kinds (91 to 99, 118 to 127, 159 to 163), on the wire.

Each row has its exact answer, and nothing of it is stored. Rows of HTTP jobs are in test_bad_http_jobs.py, uploads in
tests/integration/test_bad_uploads.py.
"""

from typing import Any, NamedTuple

import pytest
from harness import Up, sql, wait_for

from hourhand.cli.db import _url_of_running

Faults = dict[str, str]


class Bad(NamedTuple):
    row: int
    job: dict[str, Any]
    faults: Faults
    status: int = 422
    code: str = "invalid-fields"


def command(**payload: Any) -> dict[str, Any]:
    return {"kind": "command", "payload": {"argv": ["true"], **payload}}


def python(handler: str, **arguments: Any) -> dict[str, Any]:
    return {"payload": {"handler": handler, **arguments}}


def script(**payload: Any) -> dict[str, Any]:
    return {"kind": "script", "payload": payload}


def limited(**resources: Any) -> dict[str, Any]:
    return command() | {"resources": resources}


LARGE = {"/payload": "payload-too-large"}
RESERVED_NAMES = (
    "",
    "A=B",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PATH",
    "HOURHAND_FENCE_TOKEN",
)

ROWS = [
    Bad(91, python("bench.noop", text="x" * (256 << 10)), LARGE, 413, "payload-too-large"),
    Bad(91, command(stdin="x" * (256 << 10)), LARGE, 413, "payload-too-large"),
    Bad(91, python("bench.noop", text="x" * (256 << 10)) | {"priority": 17}, LARGE | {"/priority": "invalid-priority"}),
    Bad(94, command(argv=["echo", "{{sheduled_date}}"]), {"/payload/argv/1": "template-unknown"}),
    *(
        Bad(94, command(argv=["echo", text]), {"/payload/argv/1": "template-forbidden"})
        for text in (
            "{{''.__class__}}",
            "{{7*7}}",
            "{{scheduled_date.__class__.__mro__}}",
            "{{ config['x'] }}",
            "{{a|b}}",
        )
    ),
    Bad(95, command(env={"T": {"secret": "NOBODYS"}}), {"/payload/env/T": "unknown-secret"}),
    Bad(95, command(secret_files={"a": {"secret": "NOBODYS"}}), {"/payload/secret_files/a": "unknown-secret"}),
    *(
        Bad(97, python(handler), {"/payload/handler": "function-not-registered"})
        for handler in ("os:system", "builtins:eval", "..x:y", "subprocess:run", "os.path:../x", "a b")
    ),
    Bad(
        98, python("daily-data-cleanup", __reduce__=["os.system", "id"]), {"/payload/__reduce__": "signature-mismatch"}
    ),
    Bad(99, python("daily-data-cleanup", retention=3), {"/payload/retention": "signature-mismatch"}),
    Bad(
        99,
        python("daily-data-cleanup", a=1, b=2),
        {"/payload/a": "signature-mismatch", "/payload/b": "signature-mismatch"},
    ),
    *(Bad(118, command(argv=argv), {"/payload/argv": "argv-must-be-list"}) for argv in ([], "ls -l", None, {}, 3)),
    Bad(119, command(argv="ls | wc", shell=True), {"/payload/shell": "shell-forbidden"}, 403, "shell-forbidden"),
    Bad(
        119,
        command(argv="ls", shell=True, cwd="/"),
        {"/payload/shell": "shell-forbidden", "/payload/cwd": "cwd-outside-workdir"},
    ),
    *(Bad(121, command(env={name: "x"}), {f"/payload/env/{name}": "env-reserved"}) for name in RESERVED_NAMES),
    *(
        Bad(121, script(source="x", language="bash", env={name: "x"}), {f"/payload/env/{name}": "env-reserved"})
        for name in ("LD_PRELOAD", "PATH")
    ),
    *(Bad(122, command(cwd=cwd), {"/payload/cwd": "cwd-outside-workdir"}) for cwd in ("/etc", "..", "a/../../b")),
    *(
        Bad(125, limited(memory=memory), {"/resources/memory": "invalid-limit"})
        for memory in ("lots", "1B", 1, "-1", "1e99")
    ),
    *(Bad(125, limited(cpu=cpu), {"/resources/cpu": "invalid-limit"}) for cpu in (-1, 0, 1e9)),
    Bad(
        125, limited(pids=0, memory="lots"), {"/resources/pids": "invalid-limit", "/resources/memory": "invalid-limit"}
    ),
    *(
        Bad(127, command(**{field: 0}), {f"/payload/{field}": "unknown-field"})
        for field in ("uid", "gid", "run_as", "state")
    ),
    Bad(159, {"kind": "../x"}, {"/kind": "unknown-kind"}),
    Bad(159, {"kind": "x/../../y"}, {"/kind": "unknown-kind"}),
    *(
        Bad(161, script(artifact=name, argv=["x"]), {"/payload/artifact": "invalid-artifact"})
        for name in ("../x", "a/b", "/etc/passwd", "a\nb", "x" * 300, "a@b")
    ),
    *(
        Bad(161, script(artifact="a.zip", entry=entry), {"/payload/entry": "entry-outside-artifact"})
        for entry in ("../x", "/bin/sh", "a/../../b")
    ),
    Bad(163, script(artifact="sha256:" + "0" * 64, argv=["x"]), {"/payload/artifact": "unknown-artifact"}),
]


@pytest.fixture(scope="module")
def informed(running: Up) -> Up:
    """Once the API has heard what the executor's handlers take: before that it judges no arguments."""
    wrong = {"name": "does the API know?"} | python("daily-data-cleanup", nothing_of_the_kind=1)
    with running.http() as http:
        wait_for(lambda: http.post("/api/v1/jobs", json=wrong).status_code == 422, "arguments are judged")
    return running


@pytest.mark.parametrize("bad", ROWS, ids=lambda bad: f"{bad.row} {bad.faults}"[:80])
def test_a_job_that_is_wrong_gets_its_exact_answer(informed: Up, bad: Bad) -> None:
    name = f"bad {ROWS.index(bad)}"
    with informed.http() as http:
        answer = http.post("/api/v1/jobs", json={"name": name} | bad.job)
        problem = answer.json()
        told = {fault["pointer"]: fault["code"] for fault in problem["errors"]}
        assert (answer.status_code, told) == (bad.status, bad.faults)
        assert problem["type"] == f"urn:hourhand:problem:{bad.code}"
        assert answer.headers["content-type"] == "application/problem+json"
        assert http.get("/api/v1/jobs", params={"name": name}).json()["jobs"] == []


def test_a_secret_of_another_namespace_is_as_unknown_as_one_that_is_not_there(running: Up) -> None:
    sql(
        _url_of_running(running.home),
        "INSERT INTO hourhand.namespaces (name) VALUES ('elsewhere') ON CONFLICT DO NOTHING",
    )
    told = []
    with running.http() as http:
        kept = http.put("/api/v1/secrets/THEIRS", json={"value": "t0p-s3cr3t"}, params={"namespace": "elsewhere"})
        granted = {"value": "t0p-s3cr3t", "grant": {"jobs": ["another"]}}
        not_for_it = http.put("/api/v1/secrets/GRANTED", json=granted)
        for name in ("THEIRS", "GRANTED", "NOBODYS"):
            body = {"name": "thief"} | command(env={"T": {"secret": name}})
            answer = http.post("/api/v1/jobs", json=body)
            assert "t0p-s3cr3t" not in answer.text
            document = answer.json()
            document.pop("instance")
            told.append((answer.status_code, str(document).replace(name, "NAME")))
    assert (kept.is_success, not_for_it.is_success) == (True, True), (kept.text, not_for_it.text)
    assert told[0] == told[1] == told[2]
    assert told[0][0] == 422


@pytest.mark.parametrize(
    ("argv", "reason", "said"),
    [
        (["no-such-program"], "exec_not_found", "'no-such-program' was not found on this executor"),
        (["/no/such/program"], "exec_not_found", "'/no/such/program' was not found on this executor"),
        (["/etc/passwd"], "not_executable", "'/etc/passwd' may not be executed"),
        (["/etc"], "not_executable", "'/etc' may not be executed"),
    ],
)
def test_a_program_that_is_missing_or_none_fails_by_its_code_and_is_not_retried(
    running: Up, argv: list[str], reason: str, said: str
) -> None:
    """Row 123."""
    with running.client() as client:
        job = client.create_job(name="123", **command(argv=argv), max_retries=3, retry={"delays": ["1ms"]})
        ended = client.get_run(client.wait_for_job(job.job_id, 60).run_id)
    assert (ended.status, ended.reason, ended.attempt) == ("failed", reason, 1)
    assert ended.attempts == []
    assert ended.error == said


def test_what_a_job_prints_sets_nothing_but_its_log(running: Up) -> None:
    """Row 127: output that looks like a control message, of ours or of others, is text."""
    lines = [
        '{"type": "result", "value": 1}', '{"complete": 1, "code": 0, "uid": 0}', '{"state": "succeeded"}',
        "::set-output name=uid::0", "HOURHAND_RUN_ID=00000000-0000-0000-0000-000000000000", '{"next_run": 1}',
    ]  # fmt: skip
    with running.client() as client:
        job = client.create_job(
            name="127",
            **command(argv=["sh", "-c", 'printf "%s\\n" "$@"; exit 3', "-", *lines]),
            max_retries=0,
        )
        ended = client.get_run(client.wait_for_job(job.job_id, 60).run_id)
        printed = [line.text for line in client.log_lines(ended.run_id) if line.stream == "stdout"]
    assert (ended.status, ended.reason, ended.result) == ("failed", "exit_code", {"exit_code": 3})
    assert printed == lines
