import asyncio
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
import uvloop
from aiohttp import web
from aiohttp.resolver import ThreadedResolver

from hourhand.job_kinds.http import HttpKind, HttpSettings
from hourhand.model.outcome import Succeeded
from hourhand.model.states import Reason


class Server:
    """A real server that answers by path and remembers who called."""

    def __init__(self):
        self.calls = []
        self.waiting = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.url = ""

    async def start(self):
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"

    async def stop(self):
        await self._runner.cleanup()

    async def _answer(self, request):
        self.calls.append((request.method, request.path, dict(request.headers), await request.text()))
        name, _, rest = request.match_info["path"].partition("/")
        return await getattr(self, f"_{name}")(request, rest)

    async def _ok(self, request, rest):
        return web.Response(text="fine", headers={"X-Other": "1"})

    async def _status(self, request, rest):
        headers = {"Retry-After": request.query["after"]} if "after" in request.query else {}
        return web.Response(status=int(rest), text="no", headers=headers)

    async def _redirect(self, request, rest):
        return web.Response(status=int(rest or 302), headers={"Location": request.query["to"]})

    async def _loop(self, request, rest):
        return web.Response(status=302, headers={"Location": "/loop"})

    async def _bytes(self, request, rest):
        return web.Response(body=b"a\x00\xff", content_type="text/plain", charset=rest or None)

    async def _endless(self, request, rest):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 10_000)
        finally:
            self.hung_up.set()

    async def _drip(self, request, rest):
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"drop")
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.hung_up.set()

    async def _wait(self, request, rest):
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.hung_up.set()


@pytest.fixture
async def server():
    server = Server()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def open_kind():
    kinds = []

    async def open_with(**settings):
        kind = HttpKind(HttpSettings(**{"allow_private": True, **settings}))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


@pytest.fixture
async def kind(open_kind):
    return await open_kind()


@pytest.fixture
def call(kind, server, make_task):
    async def call_path(path, **payload):
        return await kind.run(make_task({"url": server.url + path, **payload}, kind="http").task)

    return call_path


async def test_an_answer_is_kept_as_the_result(call):
    result = {
        "status": 200,
        "headers": {"content-type": "text/plain; charset=utf-8"},
        "body": "fine",
        "truncated": False,
    }
    assert await call("/ok") == Succeeded(result)


async def test_every_call_says_which_run_it_belongs_to(kind, server, make_task):
    task, _ = make_task({"url": f"{server.url}/ok", "headers": {"X-Token": "t"}}, attempt=3)
    await kind.run(task)
    [(method, _, headers, body)] = server.calls
    assert (method, body) == ("GET", "")
    assert headers["Idempotency-Key"] == headers["Hourhand-Run-Id"] == str(task.run_id)
    assert (headers["Hourhand-Attempt"], headers["Hourhand-Fence-Token"]) == ("3", str(task.fence))
    assert (headers["User-Agent"], headers["X-Token"]) == ("hourhand", "t")


async def test_bodies_are_sent_as_text_or_as_json(call, server):
    await call("/ok", method="POST", body="héllo")
    await call("/ok", method="PUT", body={"a": [1, None]})
    await call("/ok", method="POST", body="<a/>", headers={"content-type": "text/xml"})
    assert [
        (method, body, headers.get("Content-Type") or headers["content-type"])
        for method, _, headers, body in server.calls
    ] == [
        ("POST", "héllo", "text/plain; charset=utf-8"),
        ("PUT", '{"a":[1,null]}', "application/json"),
        ("POST", "<a/>", "text/xml"),
    ]


async def test_an_unexpected_status_fails_and_keeps_the_answer(call):
    outcome = await call("/status/503")
    assert (outcome.reason, outcome.error) == (Reason.HTTP_STATUS, "expected 2xx, got 503")
    assert outcome.retryable
    assert (outcome.result["status"], outcome.result["body"]) == (503, "no")


@pytest.mark.parametrize(
    ("status", "retryable"), [(400, False), (404, False), (408, True), (425, True), (429, True), (500, True)]
)
async def test_what_the_caller_did_wrong_is_not_retried(call, status, retryable):
    assert (await call(f"/status/{status}")).retryable is retryable


async def test_a_failure_is_known_by_its_status_and_the_class_of_it(call):
    assert (await call("/status/503")).tags == ("http:503", "http:5xx")


async def test_other_statuses_can_be_expected(call):
    assert (await call("/status/404", expect_status=[404])).result["status"] == 404
    assert (await call("/status/404", expect_status=["4xx"])).result["status"] == 404
    assert (await call("/ok", expect_status=[201, "3xx"])).error == "expected 201 or 3xx, got 200"


async def test_the_servers_wish_when_to_come_back_is_honoured(call):
    assert (await call("/status/503?after=120")).retry_after_seconds == 120
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True).replace(" ", "%20")
    assert 3590 <= (await call(f"/status/429?after={date}")).retry_after_seconds <= 3600
    for nonsense in ("soon", "Mon,%2001%20Jan%200001%2000:00:00%20%2B9999", "1e999", "-5", "Mon,"):
        assert (await call(f"/status/429?after={nonsense}")).retry_after_seconds is None
    assert (await call("/status/429?after=99999999999")).retry_after_seconds == 86_400


async def test_an_endless_answer_is_cut_off_and_marked(call, server):
    outcome = await call("/endless")
    assert len(outcome.result["body"]) == 64 * 1024
    assert outcome.result["truncated"] is True
    await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_an_answer_that_drips_is_cut_off_and_marked(open_kind, server, make_task):
    kind = await open_kind(body_seconds_max=0.1)
    outcome = await kind.run(make_task({"url": f"{server.url}/drip"}).task)
    assert (outcome.result["body"], outcome.result["truncated"]) == ("drop", True)
    await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_a_server_that_falls_silent_is_not_waited_for(open_kind, server, make_task):
    kind = await open_kind(idle_seconds_max=0.1)
    outcome = await kind.run(make_task({"url": f"{server.url}/wait"}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.CONNECTION, True)
    assert "timeout" in outcome.error.lower()


async def test_a_job_may_be_less_patient_than_its_executor(call):
    outcome = await call("/wait", idle_timeout="100ms")
    assert (outcome.reason, outcome.retryable) == (Reason.CONNECTION, True)


async def test_a_call_that_never_ends_is_ended(open_kind, server, make_task):
    kind = await open_kind(total_seconds_max=0.1)
    outcome = await kind.run(make_task({"url": f"{server.url}/wait"}).task)
    assert (outcome.reason, outcome.error) == (Reason.TIMEOUT, "the call took longer than 0.1 seconds")
    await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_secrets_are_sent_as_headers(kind, server, make_task):
    task = make_task(
        {
            "url": f"{server.url}/ok",
            "headers": {"Authorization": {"secret": "token", "prefix": "Bearer "}, "X-Key": {"secret": "key"}},
        }
    ).task
    task.secrets = {"token": "abc", "key": "k1"}
    await kind.run(task)
    [(_, _, headers, _)] = server.calls
    assert (headers["Authorization"], headers["X-Key"]) == ("Bearer abc", "k1")


async def test_secrets_in_any_header_stay_with_the_first_server(kind, server, make_task):
    other = Server()
    await other.start()
    url = f"{server.url}/redirect?to={other.url}/ok"
    task = make_task(
        {"url": url, "follow_redirects": True, "headers": {"X-Key": {"secret": "key"}, "X-Keep": "k"}}
    ).task
    task.secrets = {"key": "k1"}
    await kind.run(task)
    await other.stop()
    [(_, _, headers, _)] = other.calls
    assert "X-Key" not in headers
    assert headers["X-Keep"] == "k"


@pytest.mark.parametrize(
    ("secrets", "said"), [({}, "was not given"), ({"key": "a\r\nX-Evil: 1"}, "has a line end or a control character")]
)
async def test_a_secret_that_is_missing_or_unfit_ends_the_attempt_without_being_told(
    kind, server, make_task, secrets, said
):
    task = make_task({"url": f"{server.url}/ok", "headers": {"X-Key": {"secret": "key"}}}).task
    task.secrets = secrets
    outcome = await kind.run(task)
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)
    assert said in outcome.error
    assert "Evil" not in outcome.error
    assert server.calls == []


async def test_bytes_that_are_no_text_are_replaced(call):
    assert (await call("/bytes")).result["body"] == "a␀\N{REPLACEMENT CHARACTER}"
    assert (await call("/bytes/latin-1")).result["body"] == "a␀ÿ"
    for charset in ("no-such-charset", "punycode", "idna", "utf-7", "zlib", "unicode_escape"):
        assert (await call(f"/bytes/{charset}")).result["body"] == "a␀\N{REPLACEMENT CHARACTER}"


async def test_a_server_that_is_not_there_is_a_connection_failure(kind, make_task):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken_port = taken.getsockname()[1]
        outcome = await kind.run(make_task({"url": f"http://127.0.0.1:{taken_port}/"}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.CONNECTION, True)
    assert outcome.error == f"127.0.0.1:{taken_port} cannot be reached: connection refused"
    outcome = await kind.run(make_task({"url": "http://no-such-name.invalid/"}).task)
    assert outcome.reason is Reason.CONNECTION
    assert outcome.error.startswith("no address is known for no-such-name.invalid: ")


async def test_a_server_that_does_not_speak_http_is_a_connection_failure(kind, make_task):
    async def babble(reader, writer):
        writer.write(b"220 smtp ready\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await kind.run(make_task({"url": f"http://127.0.0.1:{port}/"}).task)
    assert outcome.reason is Reason.CONNECTION


async def test_redirects_are_not_followed_unless_asked_for(call, server):
    outcome = await call("/redirect?to=/ok")
    assert outcome.error == "expected 2xx, got 302"
    assert len(server.calls) == 1


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_redirects_are_followed_as_the_web_does(call, server, status, method):
    outcome = await call(f"/redirect/{status}?to=/ok", method="POST", body="b", follow_redirects=True)
    assert outcome.result["body"] == "fine"
    assert [(call[0], call[3]) for call in server.calls] == [("POST", "b"), (method, "b" if method == "POST" else "")]


async def test_endless_redirects_end(call, server):
    outcome = await call("/loop", follow_redirects=True)
    assert (outcome.reason, outcome.error) == (Reason.TOO_MANY_REDIRECTS, "more than 5 redirects")
    assert not outcome.retryable
    assert len(server.calls) == 6


async def test_secrets_are_not_carried_to_another_server(call, server):
    other = Server()
    await other.start()
    await call(f"/redirect?to={other.url}/ok", follow_redirects=True, headers={"Authorization": "s", "X-Keep": "k"})
    await other.stop()
    [(_, _, headers, _)] = other.calls
    assert "Authorization" not in headers
    assert headers["X-Keep"] == "k"


@pytest.mark.parametrize(
    "to", ["http://169.254.169.254/", "http://2852039166/", "http://[fe80::1]/", "ftp://a/", "file:///etc/passwd"]
)
async def test_a_redirect_to_a_blocked_target_is_not_followed(call, to):
    outcome = await call(f"/redirect?to={to}", follow_redirects=True)
    assert (outcome.reason, outcome.retryable) == (Reason.REDIRECT_BLOCKED, False)
    assert "None" not in outcome.error, "an address without a server is told as that"


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]"]
)
async def test_metadata_services_are_never_called(kind, make_task, host):
    outcome = await kind.run(make_task({"url": f"http://{host}/"}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.TARGET_BLOCKED, False)


async def test_private_targets_are_not_called_where_they_are_not_allowed(open_kind, server, make_task):
    kind = await open_kind(allow_private=False)
    for host in ("127.0.0.1", "localhost", "127.1", "0", "[::1]"):
        outcome = await kind.run(make_task({"url": f"http://{host}:{server.port}/ok"}).task)
        assert outcome.reason is Reason.TARGET_BLOCKED
    assert server.calls == []


def name_resolving_to(monkeypatch, *addresses):
    async def resolve(self, host, port=0, family=socket.AF_INET):
        return [
            {"hostname": host, "host": address, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for address in addresses
        ]

    monkeypatch.setattr(ThreadedResolver, "resolve", resolve)


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["169.254.169.254"]])
async def test_a_public_name_with_a_private_address_is_blocked_when_it_is_resolved(
    open_kind, server, make_task, monkeypatch, addresses
):
    kind = await open_kind(allow_private=False)
    name_resolving_to(monkeypatch, *addresses)
    outcome = await kind.run(make_task({"url": f"http://public.example:{server.port}/ok"}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.TARGET_BLOCKED, False)
    assert server.calls == []


async def test_a_socket_is_judged_by_its_address_even_if_the_checks_before_it_were_passed(
    open_kind, server, make_task, monkeypatch
):
    kind = await open_kind(allow_private=False)
    monkeypatch.setattr("hourhand.job_kinds.http.http_faults", lambda *_: [])
    monkeypatch.setattr("hourhand.job_kinds.http_network.host_blocked_because", lambda *_: None)
    outcome = await kind.run(make_task({"url": f"{server.url}/ok"}).task)
    assert outcome.reason is Reason.TARGET_BLOCKED
    assert server.calls == []


async def test_a_cancelled_call_closes_its_connection(kind, server, make_task):
    running = asyncio.create_task(kind.run(make_task({"url": f"{server.url}/wait"}).task))
    await asyncio.wait_for(server.waiting.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(server.hung_up.wait(), 10)


async def test_a_payload_that_is_wrong_is_not_called(call, server):
    outcome = await call("/ok", method="FOO")
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)
    assert server.calls == []


def test_calls_work_on_uvloop(make_task):
    async def scenario():
        server, kind = Server(), HttpKind(HttpSettings(allow_private=True))
        await server.start()
        await kind.open()
        outcomes = await asyncio.gather(*(kind.run(make_task({"url": f"{server.url}/ok"}).task) for _ in range(20)))
        await kind.close()
        await server.stop()
        return outcomes

    assert all(isinstance(outcome, Succeeded) for outcome in uvloop.run(scenario()))
