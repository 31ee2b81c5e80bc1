"""The catalogue of bad input for HTTP and Python jobs (97 to 99, 101 to 114), over the wire, with exact codes."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import pytest
from harness import Up

URL = "https://example.com/hook"
CA = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"

HTTP: list[tuple[int, dict[str, Any], int, list[tuple[str, str]]]] = [
    *((101, {"url": url}, 422, [("/payload/url", "scheme-not-allowed")])
      for url in ("example.com", "ftp://example.com/", "file:///etc/passwd", "gopher://example.com/", "data:,x")),
    *((102, {"url": f"http://{host}/"}, 422, [("/payload/url", "target-blocked")])
      for host in ("127.0.0.1", "0.0.0.0", "[::1]", "localhost", "a.localhost", "127.1", "10.0.0.1", "192.168.0.1")),
    *((103, {"url": f"http://{host}/"}, 422, [("/payload/url", "target-blocked")])
      for host in ("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "[::ffff:a9fe:a9fe]")),
    (109, {"url": URL, "headers": {"X-A": "b\r\nX-C: d"}}, 422, [("/payload/headers/X-A", "header-injection")]),
    (109, {"url": URL, "headers": {"X A": "b"}}, 422, [("/payload/headers/X A", "header-injection")]),
    *((110, {"url": URL, "headers": {name: "x"}}, 422, [(f"/payload/headers/{name}", "header-reserved")])
      for name in ("Host", "Content-Length", "Transfer-Encoding", "Webhook-Signature", "Hourhand-Run-Id")),
    *((111, {"url": URL, "method": method}, 422, [("/payload/method", "method-not-allowed")])
      for method in ("FOO BAR", "CONNECT", "TRACE", "")),
    (113, {"url": URL, "expect_status": []}, 422, [("/payload/expect_status", "invalid-status")]),
    (113, {"url": URL, "expect_status": [99, "2x"]}, 422,
     [("/payload/expect_status/0", "invalid-status"), ("/payload/expect_status/1", "invalid-status")]),
    (114, {"url": URL, "verify_tls": False}, 403, [("/payload/verify_tls", "unverified-tls-forbidden")]),
    (114, {"url": "http://10.0.0.1/", "verify_tls": False}, 422,
     [("/payload/url", "target-blocked"), ("/payload/verify_tls", "unverified-tls-forbidden")]),
    (114, {"url": URL, "proxy": "http://proxy.example.com:3128"}, 403, [("/payload/proxy", "proxy-forbidden")]),
    (101, {"url": URL, "oauth": {"token_url": "ftp://a", "client_id": "a", "client_secret": "b"}}, 422,
     [("/payload/oauth/token_url", "scheme-not-allowed")]),
    (102, {"url": URL, "oauth": {"token_url": "http://[::1]/", "client_id": "a", "client_secret": "b"}}, 422,
     [("/payload/oauth/token_url", "target-blocked")]),
]  # fmt: skip


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One whose jobs may not call private addresses, as in production."""
    settings = {"HOURHAND_KINDS_ALLOW_PRIVATE_TARGETS": "false"}
    with Up(tmp_path_factory.mktemp("strict"), environment=settings) as up:
        yield up


@pytest.mark.parametrize(("row", "payload", "status", "faults"), HTTP, ids=lambda value: str(value)[:60])
def test_bad_http_jobs_are_refused_with_their_code(
    strict: Up, row: int, payload: dict[str, Any], status: int, faults: list[tuple[str, str]]
) -> None:
    with strict.http() as http:
        answer = http.post("/api/v1/jobs", json={"name": f"row {row}", "kind": "http", "payload": payload})
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]] == faults
    code = faults[0][1] if status == 403 else "invalid-fields"
    assert answer.json()["type"] == f"urn:hourhand:problem:{code}"


def private_name() -> str:
    """A name of this machine that does not look like one, and leads to an address that is not public."""
    for name in ("ip6-localhost", "ip6-loopback", "localhost.localdomain", socket.gethostname()):
        with suppress(OSError):
            found = {ip_address(each[4][0].partition("%")[0]) for each in socket.getaddrinfo(name, None)}
            if name != "localhost" and not any(address.is_global for address in found):
                return name
    pytest.skip("this machine has no such name")


def test_a_name_that_leads_to_a_private_address_is_refused_at_submission(strict: Up) -> None:
    name = private_name()
    job = {"name": "105", "kind": "http", "payload": {"url": f"http://{name}/"}}
    with strict.http() as http:
        one, many = http.post("/api/v1/jobs", json=job), http.post("/api/v1/jobs/batch", json=[job])
        fine = http.post("/api/v1/jobs", json=job | {"payload": {"url": "http://no-such-name.invalid/"}})
    assert [(fault["pointer"], fault["code"]) for fault in one.json()["errors"]] == [("/payload/url", "target-blocked")]
    assert many.json()["errors"][0]["pointer"] == "/0/payload/url"
    assert (one.status_code, many.status_code, fine.status_code) == (422, 422, 202)


@pytest.mark.parametrize("handler", ["os:system", "builtins:eval", "..x:y", "__import__('os')"])
def test_functions_that_are_not_registered_cannot_be_named(strict: Up, handler: str) -> None:
    with strict.http() as http:
        answer = http.post("/api/v1/jobs", json={"name": "97", "payload": {"handler": handler}})
    [fault] = answer.json()["errors"]
    assert (answer.status_code, fault["pointer"], fault["code"]) == (
        422,
        "/payload/handler",
        "function-not-registered",
    )


@pytest.mark.parametrize("media_type", ["application/x-python-pickle", "application/octet-stream", "text/plain"])
def test_arguments_are_json_and_nothing_else(strict: Up, media_type: str) -> None:
    with strict.http() as http:
        answer = http.post("/api/v1/jobs", content=b"\x80\x04N.", headers={"Content-Type": media_type})
    assert (answer.status_code, answer.json()["type"]) == (415, "urn:hourhand:problem:unsupported-media-type")
