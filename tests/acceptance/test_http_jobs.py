"""HTTP jobs, progress and arguments through a whole Hourhand, against real servers."""

import base64
import hmac
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import BIN, Roles, Up, sql, wait_for

from hourhand.client import ApiProblem


class Worker(BaseHTTPRequestHandler):
    """Takes work and does it later."""

    taken: list[dict[str, str]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.taken.append(dict(self.headers.items()))
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def worker() -> Iterator[tuple[str, list[dict[str, str]]]]:
    taken: list[dict[str, str]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Worker,), {"taken": taken}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", taken
    server.shutdown()
    server.server_close()


def call_back(headers: dict[str, str], **body: Any) -> httpx.Response:
    token = {"Authorization": f"Bearer {headers['Hourhand-Callback-Token']}"}
    return httpx.post(headers["Hourhand-Callback-Url"], json=body, headers=token, trust_env=False)


def test_a_call_is_ended_by_its_callback(running: Up, worker: tuple[str, list[dict[str, str]]]) -> None:
    url, taken = worker
    payload = {"url": url, "method": "POST", "complete_by": "callback", "callback_timeout": "1m"}
    with running.client() as client:
        job = client.create_job(name="later", kind="http", payload=payload)
        wait_for(lambda: taken, "the work is given to the server")
        run = client.wait_for_start(job.job_id)
        told = call_back(taken[0], status="running", progress={"percent": 30, "message": "packing"})
        assert told.status_code == 200, told.text
        wait_for(lambda: client.get_run(run.run_id).status == "running", "the run is shown as running")
        # Its executor looks for what was said, and masks it, now and then.
        progress = wait_for(lambda: client.get_run(run.run_id).progress, "what was said is shown")
        assert (progress.percent, progress.message) == (30, "packing")

        for changed in (True, False):
            answer = call_back(taken[0], status="succeeded", result={"rows": 42})
            assert (answer.status_code, answer.json()["changed"]) == (200, changed)
        ended = client.wait_for_run(run.run_id, timeout=30)
        assert (ended.status, ended.result, ended.progress) == ("succeeded", {"rows": 42}, None)
        assert call_back(taken[0], status="failed").status_code == 409


def test_a_callback_is_heard_from_nobody_else(running: Up, worker: tuple[str, list[dict[str, str]]]) -> None:
    url, taken = worker
    payload = {"url": url, "method": "POST", "complete_by": "callback"}
    with running.client() as client:
        job = client.create_job(name="later", kind="http", payload=payload)
        wait_for(lambda: taken, "the work is given to the server")
        address = taken[0]["Hourhand-Callback-Url"]
        for headers in ({}, {"Authorization": "Bearer nonsense"}, {"Authorization": f"Bearer {running.token}"}):
            answer = httpx.post(address, json={"status": "succeeded"}, headers=headers, trust_env=False)
            assert (answer.status_code, answer.json()["type"]) == (401, "urn:hourhand:problem:unauthenticated")
        assert call_back(taken[0], status="perhaps").status_code == 422
        assert call_back(taken[0], status="succeeded", result="x" * 300_000).status_code == 413
        assert call_back(taken[0], status="failed", error="no paper", retry=False).status_code == 200
        run = client.wait_for_job(job.job_id, timeout=30)
        assert (run.status, run.reason, run.error) == ("failed", "callback_failed", "no paper")


def sign_as_the_docs_say() -> Callable[[str, str, bytes], dict[str, str]]:
    """The function that the page of HTTP jobs gives to those who are called."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "kinds" / "http.md").read_text()
    [source] = re.findall(r"```python\n(def signed\(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"base64": base64, "hmac": hmac, "time": time}
    exec(source, names)
    signed: Callable[[str, str, bytes], dict[str, str]] = names["signed"]
    return signed


def test_a_call_is_ended_by_a_callback_that_is_signed_as_the_docs_say(
    running: Up, worker: tuple[str, list[dict[str, str]]]
) -> None:
    """Row 117, over the wire."""
    url, taken = worker
    signed = sign_as_the_docs_say()
    with running.client() as client:
        job = client.create_job(
            name="later", kind="http", payload={"url": url, "method": "POST", "complete_by": "callback"}
        )
        wait_for(lambda: taken, "the work is given to the server")
        address, secret = taken[0]["Hourhand-Callback-Url"], taken[0]["Hourhand-Callback-Secret"]
        body = b'{"status": "succeeded", "result": {"rows": 42}}'

        def send(headers: dict[str, str], content: bytes = body) -> tuple[int, Any]:
            headers = {"Content-Type": "application/json", **headers}
            answer = httpx.post(address, content=content, headers=headers, trust_env=False)
            said = answer.json()
            return answer.status_code, said.get("changed", said.get("type", "").rpartition(":")[2])

        right = signed(secret, "msg-1", body)
        stale = signed(secret, "msg-1", body) | {"webhook-timestamp": str(int(time.time()) - 301)}
        assert send(right, body.replace(b"42", b"43")) == (401, "bad-signature")
        assert send(right | {"webhook-signature": "v1,AAAA"}) == (401, "bad-signature")
        assert send({name: value for name, value in right.items() if name != "webhook-id"}) == (401, "bad-signature")
        assert send(signed("whsec_" + "A" * 44, "msg-1", body)) == (401, "bad-signature")
        assert send(stale) == (401, "stale-signature")
        run = client.wait_for_start(job.job_id)
        assert client.get_run(run.run_id).status in ("claimed", "running")
        assert send(right) == (200, True)
        assert send(right) == (200, False)
        ended = client.wait_for_run(run.run_id, timeout=30)
        assert (ended.status, ended.result, ended.attempt) == ("succeeded", {"rows": 42}, 1)
        assert send(right) == (200, False)


def test_a_call_is_signed_by_a_secret_that_its_server_knows(
    running: Up, worker: tuple[str, list[dict[str, str]]]
) -> None:
    url, taken = worker
    key = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    body = {"day": "2026-11-17"}
    with running.client() as client:
        client.put_secret("hook", key)
        payload = {"url": url, "method": "POST", "body": body, "sign_with": {"secret": "hook"}}
        job = client.create_job(name="signed", kind="http", payload=payload)
        run = client.wait_for_job(job.job_id, timeout=30)
        assert run.status == "succeeded"
        assert key not in str(client.get_job(job.job_id))
    [call] = [{name.lower(): value for name, value in each.items()} for each in taken]
    message = f"{run.run_id}.{call['webhook-timestamp']}.".encode() + b'{"day":"2026-11-17"}'
    expected = base64.b64encode(hmac.digest(bytes(range(32)), message, "sha256")).decode()
    assert (call["webhook-id"], call["webhook-signature"]) == (str(run.run_id), f"v1,{expected}")


@pytest.mark.parametrize(
    ("field", "code"),
    [({"verify_tls": False}, "unverified-tls-forbidden"), ({"proxy": "http://proxy.example:1"}, "proxy-forbidden")],
)
def test_what_is_not_granted_is_forbidden(running: Up, field: dict[str, Any], code: str) -> None:
    with running.client() as client, pytest.raises(ApiProblem) as caught:
        client.create_job(name="open", kind="http", payload={"url": "https://example.com/", **field})
    assert (caught.value.status, caught.value.code, caught.value.errors[0].code) == (403, code, code)


def test_arguments_are_checked_by_what_the_executor_says_of_its_handler(running: Up) -> None:
    wrong = {"handler": "daily-data-cleanup", "cleanup_taget": "x", "more": 1}
    with running.client() as client:

        def refused() -> ApiProblem | None:
            try:
                client.create_job(name="clean", payload=wrong)
            except ApiProblem as problem:
                return problem
            return None

        problem = wait_for(refused, "the API has heard of the handler", 15)
        found = [(each.pointer, each.code, each.hint) for each in problem.errors]
        assert problem.status == 422
        assert found == [
            ("/payload/cleanup_taget", "signature-mismatch", "did you mean 'cleanup_target'?"),
            ("/payload/more", "signature-mismatch", None),
        ]
        assert client.create_job(name="clean", payload={"handler": "not-there-yet", "x": 1})


def test_a_run_is_watched_as_it_goes_on(running: Up) -> None:
    argv = ["sh", "-c", 'echo "40 halfway" > "$HOURHAND_PROGRESS_FILE"; sleep 4']
    with running.client() as client, running.http() as http:
        job = client.create_job(name="slow", kind="command", payload={"argv": argv})
        run = client.wait_for_start(job.job_id)
        events: list[tuple[str, Any]] = []
        with http.stream("GET", f"/api/v1/runs/{run.run_id}/events", timeout=60) as stream:
            name = ""
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    events.append((name, json.loads(line.removeprefix("data: "))))
    assert events[0][0] == "state"
    assert [(data["percent"], data["message"]) for name, data in events if name == "progress"] == [(40, "halfway")]
    assert (events[-1][0], events[-1][1]["status"]) == ("end", "succeeded")


def test_whoever_waits_at_the_command_line_sees_progress(running: Up) -> None:
    payload = json.dumps({"argv": ["sh", "-c", 'echo "40 halfway" > "$HOURHAND_PROGRESS_FILE"; sleep 4']})
    words = ["job", "create", "slow", "--kind", "command", "--payload", payload, "--wait"]
    environment = {"HOURHAND_SERVER": running.url, "HOURHAND_TOKEN": running.token, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [BIN / "hourhand", *words], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert ": 40 %, halfway" in done.stderr


def test_a_call_that_waited_on_a_dead_executor_is_made_again_and_the_old_callback_is_stale(
    tmp_path: Path, database_url: str, schema: str, worker: tuple[str, list[dict[str, str]]]
) -> None:
    url, taken = worker
    settings = {"HOURHAND_KINDS_ALLOW_PRIVATE_TARGETS": "true"}
    with Roles(tmp_path / "roles", database_url, schema, settings) as roles:
        roles.start("api", "api")
        roles.start("scheduler", "scheduler")
        address = {"HOURHAND_API_PUBLIC_URL": roles.urls[0]}
        first = roles.start("executor", "first", **address)
        roles.wait_until_ready()
        payload = {"url": url, "method": "POST", "complete_by": "callback"}
        with roles.client() as client:
            job = client.create_job(name="later", kind="http", payload=payload)
            wait_for(lambda: taken, "the work is given to the server")
            first.kill()
            roles.start("executor", "second", **address)
            wait_for(lambda: len(taken) > 1, "the work is given to the server again", 60)
            old, new = taken
            assert old["Idempotency-Key"] == new["Idempotency-Key"]
            assert int(old["Hourhand-Fence-Token"]) < int(new["Hourhand-Fence-Token"])
            stale = call_back(old, status="succeeded", result="old")
            assert (stale.status_code, stale.json()["type"]) == (409, "urn:hourhand:problem:stale-lease")
            assert call_back(new, status="succeeded", result="new").status_code == 200
            run = client.wait_for_job(job.job_id, timeout=30)
            assert (run.status, run.result, run.attempt) == ("succeeded", "new", 2)
    sql(database_url, f"DROP SCHEMA {schema} CASCADE")
