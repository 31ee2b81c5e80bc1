"""Refusals, silence and answers that are not Hourhand's: each has its class and one clear line."""

import json
import socket
import ssl
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from stub_api import TOKEN, Stub

from held_ports import held_port
from hourhand.client import AnswerLost, ApiProblem, AsyncClient, Client, calls, scripts
from hourhand.client.ears import EventReader, Heard
from hourhand.client.problems import unreachable
from hourhand.client.views import LogLineView, LogPage
from hourhand.model.errors import InvalidParameter, ServerUnreachable


def test_a_refusal_carries_status_code_detail_and_every_field(client: Client) -> None:
    with pytest.raises(ApiProblem) as caught:
        client.create_job(name="x", schedule={"cron": "bad"})

    problem = caught.value
    assert (problem.status, problem.code, problem.detail) == (422, "invalid-fields", "2 fields are wrong")
    assert [(fault.pointer, fault.hint) for fault in problem.errors] == [
        ("/schedule/cron", None),
        ("/zone", "Europe/Berlin?"),
    ]


def test_a_changed_version_is_a_refusal(client: Client, stub: Stub) -> None:
    job = stub.add_job("x", version=3)
    with pytest.raises(ApiProblem) as caught:
        client.update_job(job["job_id"], if_version=2, queue="q")
    assert (caught.value.status, caught.value.code) == (412, "version-mismatch")


def test_a_busy_proxy_is_a_transient_refusal(client: Client, stub: Stub) -> None:
    stub.raw = (503, "text/html", b"<h1>busy</h1>")
    with pytest.raises(ApiProblem, match="answered 503 Service Unavailable") as caught:
        client.whoami()
    assert caught.value.is_transient


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (404, "text/html", b"<h1>nginx</h1>"),
        (200, "text/html", b"<h1>hello</h1>"),
        (200, "application/json", b'{"some": "thing"}'),
        (302, "text/html", b""),
    ],
)
def test_a_server_that_is_not_hourhand_is_told_apart(
    client: Client, stub: Stub, status: int, kind: str, body: bytes
) -> None:
    stub.raw = (status, kind, body)
    with pytest.raises(ServerUnreachable, match=r"cannot read .*Is it Hourhand") as caught:
        client.whoami()
    assert "\n" not in str(caught.value)


def test_a_refused_connection_is_told_in_one_line_with_what_to_do() -> None:
    url = f"http://127.0.0.1:{held_port()}"
    with Client(url, TOKEN) as client, pytest.raises(ServerUnreachable) as caught:
        client.whoami()
    assert str(caught.value) == (f"cannot reach {url} (connection refused). Is it running? Start it with: hourhand up")


async def test_a_refused_connection_reads_the_same_from_the_asynchronous_client() -> None:
    url = f"http://127.0.0.1:{held_port()}"
    async with AsyncClient(url, TOKEN) as client:
        with pytest.raises(ServerUnreachable, match="connection refused"):
            await client.whoami()


def test_a_server_that_accepts_and_says_nothing_runs_into_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, TOKEN, timeout=0.05) as client:
            with pytest.raises(ServerUnreachable, match=r"no answer within 0.05 s\)\.$"):
                client.whoami()
            with pytest.raises(AnswerLost, match="Whether the request was carried out is not known"):
                client.create_job(name="x", idempotency_key=None)


def test_https_to_a_server_without_tls_is_told(stub: Stub) -> None:
    url = stub.url.replace("http:", "https:")
    with Client(url, TOKEN) as client, pytest.raises(ServerUnreachable, match=r"TLS failed.*Does it speak https"):
        client.whoami()


def test_a_certificate_for_another_name_is_told() -> None:
    cause = ssl.SSLCertVerificationError(1, "bad")
    cause.verify_message = "Hostname mismatch, certificate is not valid for 'a.example'."
    error = httpx.ConnectError("bad")
    error.__cause__ = cause
    said = str(unreachable(error, httpx.Request("GET", "https://a.example/api/v1/x"), 30))
    assert said.startswith("cannot reach https://a.example (its certificate is not accepted: Hostname mismatch")


@pytest.mark.parametrize("url", ["", "localhost:8420", "ftp://x", "http://", "http://u:p@host", "http://h/?a=b"])
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(InvalidParameter, match="server"):
        Client(url, TOKEN)


def test_a_token_that_cannot_stand_in_a_header_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidParameter) as caught:
        Client("http://127.0.0.1", "hh_secret\nX: y")
    assert "secret" not in str(caught.value)


def test_a_path_in_the_address_is_kept(stub: Stub) -> None:
    with Client(stub.url + "/behind/proxy", TOKEN) as client, pytest.raises(ApiProblem):
        client.whoami()
    assert stub.last.path == "/behind/proxy/api/v1/whoami"


# --- patience, played without a server --------------------------------------------------------------------


def play(script: Generator[Any, Any, Any], *answers: Any) -> list[Any]:
    """Answers each call in turn; gives what was handed out."""
    items, pending, step = [], list(answers), next(script)
    try:
        while True:
            if isinstance(step, scripts.Give):
                items.append(step.item)
                step = next(script)
            elif isinstance(step, scripts.Wait):
                step = next(script)
            elif isinstance(step, scripts.Listen):
                step = script.throw(ApiProblem(404, "not-found", "there is nothing at this address"))
            else:
                assert isinstance(step, calls.Call)
                answer = pending.pop(0)
                step = script.throw(answer) if isinstance(answer, Exception) else script.send(answer)
    except StopIteration:
        assert not pending
        return items


def test_following_bears_a_server_that_is_away_for_a_moment() -> None:
    line = LogLineView(text="x", number=1)
    away, busy = ServerUnreachable("away"), ApiProblem(503, "overloaded", "busy")
    answers = [
        LogPage(lines=[line], next="1:1"),
        away,
        busy,
        LogPage(lines=[line], next="1:2"),
        LogPage(lines=[], ended=True),
    ]
    assert play(scripts.follow_logs("r", None), *answers) == [line, line]


def hear(script: Generator[Any, Any, Any], *told: Any) -> list[Any]:
    """Plays a server with streams; None ends one. Gives what was handed out, and where each stream began."""
    items, pending, step = [], list(told), next(script)
    try:
        while True:
            if isinstance(step, scripts.Give):
                items.append(step.item.text)
                step = next(script)
            elif isinstance(step, scripts.Wait):
                step = next(script)
            elif isinstance(step, scripts.Listen):
                items.append(f"after {step.call.headers.get('Last-Event-ID')}")
                step = script.send(None)
            else:
                answer = pending.pop(0)
                step = script.throw(answer) if isinstance(answer, Exception) else script.send(answer)
    except StopIteration:
        assert not pending
        return items


def lines_event(number: int) -> Heard:
    page = {"lines": [{"text": f"line {number}", "number": number}], "next": f"1:{number}"}
    return Heard("lines", f"1:{number}", json.dumps(page))


def test_following_goes_on_behind_the_last_line_when_a_stream_breaks_off_or_ends() -> None:
    nothing_new = LogPage(lines=[], next="1:2")
    told = [
        lines_event(1), lines_event(2), ServerUnreachable("cut"), ServerUnreachable("away"), nothing_new,
        lines_event(3), None, LogPage(lines=[LogLineView(text="line 4", number=4)], next="1:4"),
        lines_event(5), Heard("end", "1:5", "{}"),
    ]  # fmt: skip
    assert hear(scripts.follow_logs("r", None), *told) == [
        "after None", "line 1", "line 2", "after 1:2", "line 3", "line 4", "after 1:4", "line 5",
    ]  # fmt: skip


def test_following_asks_for_pages_where_streams_say_nothing() -> None:
    told = [
        ServerUnreachable("silence"), LogPage(lines=[], next="1:0"),
        None, LogPage(lines=[], next="1:0"),
        LogPage(lines=[LogLineView(text="line 1", number=1)], next="1:1"), LogPage(lines=[], next="1:1", ended=True),
    ]  # fmt: skip
    assert hear(scripts.follow_logs("r", None), *told) == ["after None", "after 1:0", "line 1"]


def test_events_are_read_from_pieces_of_any_size() -> None:
    wire = b': hello\nretry: 1000\n\nevent: lines\nid: 1:7\ndata: {"a":"\xc3\xa9"}\n\n: still here\n\n'
    wire += b"event: end\ndata: {}\n\n"
    for size in (1, 2, 7, 1000):
        reader = EventReader()
        found = [event for at in range(0, len(wire), size) for event in reader.feed(wire[at : at + size])]
        assert found == [Heard("lines", "1:7", '{"a":"é"}'), Heard("end", "1:7", "{}")]


def test_following_does_not_begin_with_a_server_that_is_not_there() -> None:
    with pytest.raises(ServerUnreachable):
        play(scripts.follow_logs("r", None), ServerUnreachable("away"))


def test_following_ends_when_the_server_stays_away() -> None:
    away = [ServerUnreachable("away")] * 1000
    with pytest.raises(ServerUnreachable):
        play(scripts.follow_logs("r", None), LogPage(lines=[]), *away)


def test_following_ends_at_once_when_the_run_is_gone() -> None:
    with pytest.raises(ApiProblem):
        play(scripts.follow_logs("r", None), LogPage(lines=[]), ApiProblem(404, "not-found", "gone"))
