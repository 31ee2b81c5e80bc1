"""Secrets through a whole Hourhand: what jobs get of them, and that nothing else ever shows them (S9, complaint 18)."""

import base64
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import psutil
import pytest
from harness import HOURHAND, Process, Roles, Up, clean_environment, sql, wait_for

from hourhand.cli.db import _url_of_running
from hourhand.client import ApiProblem, Client

CANARY: Final = "c4n4ry/\"Zürich\" '7' +x=&y"
TOKEN: Final = "t0k3n-5f1e-canary"
FORMS: Final = {
    "as it is": CANARY,
    "JSON": json.dumps(CANARY)[1:-1],
    "JSON with letters": json.dumps(CANARY, ensure_ascii=False)[1:-1],
    "URL": quote(CANARY, safe=""),
    "base64": base64.b64encode(CANARY.encode()).decode().rstrip("="),
    "base64 behind a name": base64.b64encode(f"u:{CANARY}".encode()).decode()[4:20],
    "base64 for URLs": base64.urlsafe_b64encode(CANARY.encode()).decode().rstrip("="),
    "hexadecimal": CANARY.encode().hex(),
    "Python": repr(CANARY)[1:-1],
    "token": TOKEN,
    "token in base64": base64.b64encode(TOKEN.encode()).decode().rstrip("="),
    "token in hexadecimal": TOKEN.encode().hex(),
}
HANDLERS: Final = """
import base64, json, sys
from urllib.parse import quote
from hourhand import Context, job


def forms(value):
    octets = value.encode()
    return [value, json.dumps(value), quote(value, safe=""), base64.b64encode(octets).decode(),
            base64.b64encode(b"u:" + octets).decode(), base64.urlsafe_b64encode(octets).decode(), octets.hex(),
            repr(value), "x" * 16380 + value]


@job("leak.async")
async def leak_async(ctx: Context, mode: str = "") -> dict:
    value = ctx.secret("CANARY")
    for form in forms(value):
        ctx.log(form)
    ctx.progress(50, f"half of {value}")
    if mode == "raise":
        raise RuntimeError(f"cannot log in with {value}")
    return {"value": value, "forms": forms(value)}


@job("leak.sync")
def leak_sync(ctx: Context, mode: str = "") -> dict:
    value = ctx.secret("CANARY")
    for form in forms(value):
        print(form)
        print(form, file=sys.stderr)
    ctx.progress(50, f"half of {value}")
    if mode == "raise":
        raise RuntimeError(f"cannot log in with {value}")
    if mode == "large":
        return {"value": [value] * 20000}
    return {"value": value, "forms": forms(value)}
"""
SHELL: Final = """
printf '%s\\n' "$V"; printf '%s\\n' "$V" >&2; printf '%s' "$V" | base64
printf '%s' "$V" | od -An -tx1 | tr -d ' \\n'; echo
printf '50 half of %s\\n' "$V" > "$HOURHAND_PROGRESS_FILE"
cat "$HOURHAND_SECRET_FILE_CANARY"; echo; stat -c %a "$HOURHAND_SECRET_FILE_CANARY"
tr '\\0' '\\n' < /proc/$$/cmdline; env; set -x; : "$V"; exit $CODE
"""


class _Echo(BaseHTTPRequestHandler):
    seen: list[str] = []  # noqa: RUF012 - of the one server of a test

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        sent = self.headers["Authorization"]
        self.seen.append(sent)
        told = {"you sent": sent, "in base64": base64.b64encode(sent.encode()).decode(), "in hex": sent.encode().hex()}
        body = json.dumps(told).encode()
        if self.path == "/later":
            said = {"status": "failed", "error": f"no right with {sent}", "result": told, "retry": False}
            threading.Thread(target=_call_back, args=(dict(self.headers.items()), said)).start()
        self.send_response(500 if self.path == "/fails" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


def _call_back(headers: dict[str, str], said: dict[str, Any]) -> None:
    token = {"Authorization": f"Bearer {headers['Hourhand-Callback-Token']}"}
    httpx.post(headers["Hourhand-Callback-Url"], json=said, headers=token, trust_env=False)


@pytest.fixture
def echo() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def up(short_path: Path) -> Iterator[Up]:
    (short_path / "leaking.py").write_text(HANDLERS)
    settings = {"PYTHONPATH": str(short_path), "HOURHAND_LOG_LEVEL": "debug", "HOURHAND_EXECUTOR_STOP_SECONDS": "1"}
    with Up(short_path, arguments=["--import", "leaking"], environment=settings) as up:
        yield up


def told_in(text: str) -> list[str]:
    return [name for name, form in FORMS.items() if form in text]


def test_no_secret_in_any_output(up: Up, echo: str) -> None:
    client = up.client()
    client.put_secret("CANARY", CANARY, description="a bird")
    client.put_secret("TOKEN", TOKEN)
    program = {"argv": ["sh", "-c", SHELL], "secret_files": {"keys/canary": {"secret": "CANARY"}}}
    call = {"method": "POST", "headers": {"Authorization": {"secret": "TOKEN", "prefix": "Bearer "}}}
    jobs = [
        _job("command", **program, env={"V": {"secret": "CANARY"}, "CODE": "0"}),
        _job("command", **program, env={"V": {"secret": "CANARY"}, "CODE": "3"}),
        _job("script", language="bash", source='echo "$V"; exit 1', env={"V": {"secret": "CANARY"}}),
        _job("http", url=f"{echo}/works", **call),
        _job("http", url=f"{echo}/fails", **call),
        _job("http", url=f"{echo}/later", **call, complete_by="callback"),
        *(
            _job("python", handler=f"leak.{which}", secrets=["CANARY"], mode=mode)
            for which in ("async", "sync")
            for mode in ("", "raise")
        ),
        _job("python", handler="leak.sync", secrets=["CANARY"], mode="large"),
    ]
    with up.http() as http:
        made = [client.create_job(**job) for job in jobs]
        runs = [client.wait_for_job(job.job_id, timeout=90) for job in made]
        shown = [http.get(f"/api/v1/jobs/{job.job_id}").text for job in made]
        for run in runs:
            shown += [
                http.get(f"/api/v1/runs/{run.run_id}{rest}").text for rest in ("", "/logs?limit=1000", "/explain")
            ]
        for page in ("secrets", "secrets/CANARY", "audit", "cluster", "nodes", "jobs", "runs"):
            shown.append(http.get(f"/api/v1/{page}").text)
    logs = "\n".join(line.text for run in runs for line in client.run_logs(run.run_id, limit=1000).lines)

    # First that the jobs had the values, and would have shown them.
    assert "".join(run.status[0] for run in runs) == "sffsffsfsfs"
    assert _Echo.seen[:1] == [f"Bearer {TOKEN}"]
    assert logs.count("[secret CANARY]") > 30
    assert "\n600\n" in logs
    assert "[secret CANARY]" in str([run.error for run in runs])
    assert "Bearer [secret TOKEN]" in str([run.result for run in runs])
    assert runs[5].error == "no right with Bearer [secret TOKEN]"
    assert told_in("\n".join(shown)) == []
    assert told_in(logs) == []
    shown_config = Process(up.cage, [*HOURHAND, "config", "show"], up.folder, up.environment)
    shown_config.wait()
    assert told_in(shown_config.said) == []
    assert told_in(up.said) == []
    assert told_in("\n".join(" ".join(_cmdline(each)) for each in psutil.process_iter())) == []
    assert _told_in_database(_url_of_running(up.home)) == []
    files = [
        path for path in up.home.rglob("*") if path.is_file() and "postgres" not in path.relative_to(up.home).parts
    ]
    assert [str(path) for path in files if told_in(path.read_bytes().decode("utf-8", "replace"))] == []
    up.stop()
    # Everything that PostgreSQL has on disk: tables, their past, the log of writes.
    raw = {name: form.encode() for name, form in FORMS.items()}
    found = {
        (name, path.name)
        for path in (up.home / "postgres").rglob("*")
        if path.is_file()
        for name, form in raw.items()
        if form in path.read_bytes()
    }
    assert found == set()


def test_secrets_are_not_in_clear_in_definitions_and_logs_and_their_use_is_audited(up: Up) -> None:
    """Complaint 18."""
    client = up.client()
    written = client.put_secret("CANARY", CANARY)
    assert written.version == 1
    job = client.create_job(**_job("command", argv=["sh", "-c", 'echo "$V"'], env={"V": {"secret": "CANARY"}}))
    run = client.wait_for_job(job.job_id, timeout=60)
    assert [line.text for line in client.run_logs(run.run_id).lines] == ["[secret CANARY]"]
    assert client.get_job(job.job_id).payload["env"] == {"V": {"secret": "CANARY"}}
    [use, write] = client.audit(subject="secret/CANARY")
    assert (use.action, use.details["run_id"], use.details["version"]) == ("secret.use", str(run.run_id), 1)
    assert (write.action, write.actor) == ("secret.write", "admin")
    assert client.get_secret("CANARY").last_used_run == run.run_id
    with up.http() as http:
        for method in ("GET", "POST"):
            assert http.request(method, "/api/v1/secrets/CANARY/value").status_code in (404, 405)
    _refused(client, "unknown-secret", env={"V": {"secret": "NONE"}})
    client.change_secret("CANARY", grant={"jobs": ["another"]})
    _refused(client, "unknown-secret", env={"V": {"secret": "CANARY"}})


def test_a_key_that_was_lost_keeps_hourhand_from_starting_and_says_so(up: Up) -> None:
    key = up.home / "secret.key"
    assert key.stat().st_mode & 0o777 == 0o600
    up.client().put_secret("CANARY", CANARY)
    up.stop()
    kept = key.read_bytes()
    for content, why in ((None, "put the file back"), (b"hourhand-key-1 AAAA\n", "has 3 bytes, not 32")):
        key.unlink(missing_ok=True)
        if content is not None:
            key.write_bytes(content)
            key.chmod(0o600)
        process = Process(up.cage, [*HOURHAND, "up"], up.folder, up.environment)
        assert process.wait() == 78, process.said
        assert why in process.said
    key.write_bytes(kept)
    up.start()
    assert up.client().get_secret("CANARY").version == 1


def test_a_new_key_is_taken_up_by_running_nodes(up: Up) -> None:
    client = up.client()
    client.put_secret("CANARY", CANARY)
    before = (up.home / "secret.key").read_text()
    rotating = Process(up.cage, [*HOURHAND, "secret", "rotate-key", "--forget-old"], up.folder, up.environment)
    assert rotating.wait() == 0, rotating.said
    assert "1 secrets are sealed" in rotating.said
    assert (up.home / "secret.key").read_text() != before
    job = client.create_job(**_job("command", argv=["sh", "-c", 'test -n "$V"'], env={"V": {"secret": "CANARY"}}))
    assert client.wait_for_job(job.job_id, timeout=60).status == "succeeded"
    assert client.put_secret("CANARY", "another value").version == 2


def _job(kind: str, **payload: Any) -> dict[str, Any]:
    return {"name": f"leaks by {kind}", "kind": kind, "payload": payload, "max_retries": 0, "timeout": "60s"}


def _refused(client: Client, code: str, **payload: Any) -> None:
    with pytest.raises(ApiProblem) as caught:
        client.create_job(**_job("command", argv=["true"], **payload))
    assert caught.value.status == 422
    assert [fault.code for fault in caught.value.errors] == [code]


def _cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _told_in_database(url: str) -> list[tuple[str, str]]:
    """Every row of every table as text, and every value of bytes as they are."""
    tables = sql(
        url,
        "SELECT oid::regclass::text AS name FROM pg_class "
        "WHERE relkind = 'r' AND relnamespace::regnamespace::text = 'hourhand'",
    )
    found = []
    for table in tables:
        rows = sql(url, f"SELECT * FROM {table['name']}")
        text = "\n".join(str(dict(row)) for row in rows)
        found += [(table["name"], name) for name in told_in(text)]
    return found


def test_what_an_api_cannot_take_is_told_with_the_setting_and_what_to_do(
    tmp_path: Path, database_url: str, schema: str
) -> None:
    """Without a key file, and with an upload that is too large: at the command line, over the wire."""
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(20_000_000))
    with Roles(tmp_path / "roles", database_url, schema, {"HOURHAND_API_ARTIFACT_BYTES_MAX": "1000000"}) as roles:
        roles.start("api", "api")
        wait_for(lambda: _answers(roles.urls[0]), "the API answers", 60)
        environment = clean_environment(HOURHAND_SERVER=roles.urls[0], HOURHAND_TOKEN=roles.token)

        def ask(*words: str, given: str = "") -> tuple[int, str]:
            how: dict[str, Any] = {"env": environment, "capture_output": True, "text": True, "timeout": 60}
            done = subprocess.run([*HOURHAND, *words], input=given, check=False, **how)
            return done.returncode, done.stderr

        key = roles.folder / ".hourhand" / "secret.key"
        code, told = ask("secret", "set", "DB", given="hunter2")
        assert code == 69
        assert f"hourhand secret make-key {key}" in told
        assert "secrets.key_file" in told
        assert "hunter2" not in told
        assert ask("secret", "make-key", str(key))[0] == 0
        assert ask("secret", "set", "DB", given="hunter2")[0] == 0, "and no restart was needed"

        code, told = ask("artifact", "upload", str(large))
        assert (code, "api.artifact_bytes_max" in told) == (1, True), told
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
