"""Complaint 9: no live logs, broken behind a proxy, lost, or a huge log freezes whoever looks.

Everything here is real: `hourhand up`, a proxy in between, kills. A command prints numbered lines; whoever follows must
see each of them once and in order, whatever happens on the way.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import httpx
import psutil
import pytest
from harness import BIN, HOURHAND, Up, clean_environment, wait_for

from held_ports import held_port
from hourhand.client import Client

COUNT = "n=1; while [ $n -le $0 ]; do echo $n; sleep $1; n=$((n + 1)); done"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
HOLDING_BACK = """
import sys
from aiohttp import ClientSession, ClientTimeout, web

async def handle(request):
    '''Collects 64 KiB before it passes anything on, as proxies do, unless the answer asks it not to; and gives up on an
    answer that is silent for fifteen seconds.'''
    headers = {k: v for k, v in request.headers.items() if k.lower() != "host"} | {"Host": "127.0.0.1"}
    timeout = ClientTimeout(total=None, sock_read=15)
    async with ClientSession(auto_decompress=False, timeout=timeout) as session:
        async with session.request(request.method, sys.argv[1] + request.path_qs, headers=headers,
                                   data=await request.read()) as found:
            kept = {k: v for k, v in found.headers.items() if k.lower() not in ("transfer-encoding", "content-length")}
            answer = web.StreamResponse(status=found.status, headers=kept)
            await answer.prepare(request)
            at_once = found.headers.get("X-Accel-Buffering") == "no"
            held = b""
            async for piece in found.content.iter_any():
                held += piece
                if at_once or len(held) >= 65536:
                    await answer.write(held)
                    held = b""
            await answer.write(held)
            return answer

app = web.Application()
app.router.add_route("*", "/{rest:.*}", handle)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[2]), print=None)
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    settings = {
        "HOURHAND_EXECUTOR_STOP_SECONDS": "1",
        "HOURHAND_KINDS_GRACE_SECONDS": "1",
        "HOURHAND_EXECUTOR_LOG_LINES_MAX": "2000000",
        "HOURHAND_EXECUTOR_LOG_BYTES_MAX": "500000000",
        "HOURHAND_LOGS_MOVE_SECONDS": "1",
    }
    with Up(tmp_path_factory.mktemp("logs"), environment=settings) as up:
        yield up


@pytest.fixture(params=["one that holds back", "nginx"])
def proxy(request: pytest.FixtureRequest, up: Up, tmp_path: Path) -> Iterator[str]:
    """The address of a proxy in front of the API."""
    port = held_port()
    if request.param == "nginx":
        if NGINX is None:
            pytest.skip("there is no nginx here")
        (tmp_path / "nginx.conf").write_text(nginx_configuration(up.port, port, tmp_path))
        command = [NGINX, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path), "-g", "daemon off;"]
    else:
        command = [sys.executable, "-c", HOLDING_BACK, up.url, str(port)]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: answers(port), "the proxy", 20)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def nginx_configuration(api: int, port: int, folder: Path) -> str:
    return textwrap.dedent(f"""\
        pid {folder}/nginx.pid;
        error_log {folder}/error.log;
        events {{}}
        http {{
            access_log off;
            client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
            fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
            server {{
                listen 127.0.0.1:{port};
                location / {{ proxy_pass http://127.0.0.1:{api}; proxy_http_version 1.1; proxy_read_timeout 15s; }}
            }}
        }}
        """)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def start(client: Client, lines: int, pause: float) -> UUID:
    payload = {"argv": ["sh", "-c", COUNT, str(lines), str(pause)]}
    job = client.create_job(name="counts", kind="command", payload=payload, max_retries=0)
    return client.wait_for_start(job.job_id).run_id


def test_lines_come_live_through_a_proxy_long_before_the_run_ends(up: Up, proxy: str) -> None:
    with up.client() as client:
        run_id = start(client, 60, 0.1)
    seen: list[tuple[float, int]] = []
    path = f"{proxy}/api/v1/runs/{run_id}/logs/stream"
    headers = {"Authorization": f"Bearer {up.token}", "Accept": "text/event-stream"}
    with httpx.stream("GET", path, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data:") and "lines" in (data := json.loads(line[5:])):
                seen += [(time.monotonic(), int(each["text"])) for each in data["lines"]]
            if line == "event: end":
                ended = time.monotonic()
    assert [number for _, number in seen] == list(range(1, 61))
    assert ended - seen[0][0] > 2, "the first line came long before the end"
    assert len({round(moment, 2) for moment, _ in seen}) > 5, "lines came as they were written, not all at once"


def test_who_follows_misses_nothing_when_the_api_is_killed_in_mid_stream(up: Up) -> None:
    with up.client() as client:
        run_id = start(client, 100, 0.1)
        numbers: list[int] = []

        def follow() -> None:
            numbers.extend(int(line.text) for line in client.follow_logs(run_id))

        following = threading.Thread(target=follow)
        following.start()
        wait_for(lambda: len(client.run_logs(run_id).lines) > 10, "some lines", 30)
        os.kill(role_pid(up, "api"), signal.SIGKILL)
        following.join(90)
        assert not following.is_alive()
    assert numbers == list(range(1, 101))


def test_what_an_executor_that_was_killed_had_stored_has_no_holes_and_says_where_it_ends(up: Up) -> None:
    with up.client() as client:
        run_id = start(client, 1_000_000, 0.001)
        wait_for(lambda: len(client.run_logs(run_id).lines) > 100, "some lines", 30)
        os.kill(role_pid(up, "executor"), signal.SIGKILL)
        wait_for(lambda: client.get_run(run_id).attempt > 1, "the next attempt", 60)
        client.cancel_run(run_id)
        client.wait_for_run(run_id, 60)
        first = [line for line in client.log_lines(run_id) if line.attempt == 1]
    assert [line.number for line in first] == list(range(1, len(first) + 1))
    assert [line.text for line in first[:-1]] == [str(number) for number in range(1, len(first))]
    assert "the log ends here" in first[-1].text


def test_a_log_of_a_million_lines_is_kept_read_searched_and_moved_and_nobody_freezes(up: Up) -> None:
    with up.client(timeout=120) as client, up.http() as http:
        argv = ["seq", "-f", "line %.0f", "1", "1000000"]
        job = client.create_job(name="million", kind="command", payload={"argv": argv}, max_retries=0)
        run = client.wait_for_job(job.job_id, timeout=180)
        assert run.succeeded
        path = f"/api/v1/runs/{run.run_id}/logs"
        wait_for(lambda: list((up.home / "blobs").rglob("*.jsonl.gz")), "it has moved out of the database", 90)
        for number in (1, 500_000, 999_999):
            began = time.monotonic()
            page = http.get(path, params={"after": f"1:{number - 1}", "limit": 3}).json()
            assert page["lines"][0]["text"] == f"line {number}"
            assert time.monotonic() - began < 5, "a page in the middle does not read what comes before"
        found = [line.number for line in client.log_lines(run.run_id, contains="line 99999")]
        assert found == [99_999, *range(999_990, 1_000_000)]
        expected = 1
        with http.stream("GET", path + "/download", headers={"Accept": "text/plain"}, timeout=180) as answer:
            for text in answer.iter_lines():
                assert text == f"line {expected}"
                expected += 1
        assert expected == 1_000_001


def test_the_command_line_follows_strips_and_searches(up: Up) -> None:
    with up.client() as client:
        script = "printf 'one\\n\\033[31mred\\033[0m\\033[2J\\n'; echo needle; printf '\\0\\377x\\n'"
        payload = {"argv": ["sh", "-c", script]}
        job = client.create_job(name="colours", kind="command", payload=payload, max_retries=0)
        run = client.wait_for_job(job.job_id)
    environment = clean_environment(HOURHAND_SERVER=up.url, HOURHAND_TOKEN=up.token)

    def said(*arguments: str) -> list[str]:
        command = [*HOURHAND, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    raw = said("run", "logs", str(run.run_id), "-f")
    assert raw == ["one", "\x1b[31mred\x1b[0m\x1b[2J", "needle", "\N{REPLACEMENT CHARACTER}x"]
    assert said("run", "logs", str(run.run_id), "--no-color")[1] == "red"
    assert said("run", "logs", str(run.run_id), "--grep", "NEEDLE", "-i") == ["needle"]
    [match] = said("job", "logs", str(job.job_id), "--grep", "needle")
    assert match == f"{run.run_id} 1:3 needle"
    on_terminal = subprocess.run(
        ["script", "-qec", f"{BIN / 'hourhand'} run logs {run.run_id}", "/dev/null"],
        env=environment, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "\x1b[31mred" in on_terminal
    assert "\x1b[2J" not in on_terminal
    assert on_terminal.endswith("\x1b[0m")  # whatever was left on: the prompt that comes next is its owner's


def role_pid(up: Up, role: str) -> int:
    for process in up.cage.processes():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[-1:] == [role] or role in process.cmdline()[3:5]:
                return process.pid
    raise AssertionError(f"no {role} among {up.cage.names()}")
