import pytest

from hourhand.job_kinds.http_payload import Allowed, expects, http_faults

URL = "https://example.com/hook"


def found(payload, allow_private=False):
    return [(fault.pointer, fault.code) for fault in http_faults(payload, Allowed(private=allow_private))]


def test_a_right_payload_has_no_faults():
    payload = {
        "url": "https://user:pass@example.com:8443/a?b=c#d",
        "method": "POST",
        "headers": {"X-Token": "é\tx", "Content-Type": "text/xml", "User-Agent": "me"},
        "body": {"a": [1]},
        "expect_status": [200, "3xx"],
        "follow_redirects": True,
    }
    assert found(payload) == []


@pytest.mark.parametrize("url", ["example.com", "ftp://a", "file:///etc/passwd", "gopher://a", "data:,x", "//a/b", ""])
def test_only_http_can_be_called(url):
    assert found({"url": url}) == [("/url", "scheme-not-allowed")]


@pytest.mark.parametrize(
    "url", ["http://", "http://a b/", "http://a\r\nX: y/", "http://a:99999/", "http://[::1/", "http:\\\\a"]
)
def test_what_is_no_url_is_refused(url):
    assert found({"url": url}) == [("/url", "invalid-url")]


def test_a_url_is_required_and_is_a_string():
    assert found({}) == [("/url", "url-required")]
    assert found({"url": 3}) == [("/url", "wrong-type")]


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xA9FEA9FE", "[::ffff:a9fe:a9fe]"])
def test_metadata_services_are_refused_at_submission_even_where_private_targets_are_allowed(host):
    assert found({"url": f"http://{host}/latest"}, allow_private=True) == [("/url", "target-blocked")]


def test_private_targets_are_refused_where_they_are_not_allowed():
    assert found({"url": "http://localhost:8000/"}) == [("/url", "target-blocked")]
    assert found({"url": "http://localhost:8000/"}, allow_private=True) == []


@pytest.mark.parametrize(
    "headers", [{"A": "x\r\nB: y"}, {"A": "\0"}, {"A B": "x"}, {"": "x"}, {"A:": "x"}, {"A\n": "x"}]
)
def test_headers_cannot_smuggle_others(headers):
    assert [code for _, code in found({"url": URL, "headers": headers})] == ["header-injection"]


@pytest.mark.parametrize(
    "name", ["Host", "content-length", "Transfer-Encoding", "Idempotency-Key", "Hourhand-Run-Id", "Webhook-Signature"]
)
def test_headers_that_are_not_the_jobs_to_set_are_refused(name):
    assert found({"url": URL, "headers": {name: "x"}}) == [(f"/headers/{name}", "header-reserved")]


def test_headers_are_an_object_of_strings():
    assert found({"url": URL, "headers": ["a"]}) == [("/headers", "wrong-type")]
    assert found({"url": URL, "headers": {"A": 1}}) == [("/headers/A", "wrong-type")]


@pytest.mark.parametrize("method", ["FOO BAR", "CONNECT", "TRACE", "get", "", 3, None, ["GET"]])
def test_methods_are_the_known_ones(method):
    assert found({"url": URL, "method": method}) == [("/method", "method-not-allowed")]


@pytest.mark.parametrize("expected", [[], 200, "2xx", None])
def test_expected_statuses_are_a_list(expected):
    assert found({"url": URL, "expect_status": expected}) == [("/expect_status", "invalid-status")]


@pytest.mark.parametrize("status", [99, 600, "2x", "6xx", "200", True, 200.0, None])
def test_an_expected_status_is_a_status_or_a_class(status):
    assert found({"url": URL, "expect_status": [200, status]}) == [("/expect_status/1", "invalid-status")]


def test_unknown_fields_come_with_a_suggestion():
    [fault] = http_faults({"url": URL, "expected_status": [200]}, Allowed())
    assert (fault.code, fault.hint) == ("unknown-field", "did you mean 'expect_status'?")
    assert found({"url": URL, "follow_redirects": "yes"}) == [("/follow_redirects", "wrong-type")]


def test_statuses_are_expected_by_number_or_class():
    assert expects(204, ["2xx"])
    assert expects(404, [200, 404])
    assert not expects(301, ["2xx", 302])


PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"
OAUTH = {"token_url": "https://login.example/token", "client_id": "me", "client_secret": {"secret": "s"}}


def test_every_option_can_be_right():
    payload = {
        "url": URL,
        "headers": {"Authorization": {"secret": "token", "prefix": "Bearer "}},
        "tls": {"ca": PEM, "cert": PEM, "key": {"secret": "key"}},
        "verify_tls": True,
        "idle_timeout": "30s",
        "sign_with": {"secret": "hook-key"},
        "complete_by": "callback",
        "callback_timeout": "2h",
    }
    assert found(payload) == []
    assert found({"url": URL, "oauth": {**OAUTH, "scope": "a b", "client_auth": "body"}}) == []


@pytest.mark.parametrize(
    ("options", "faults"),
    [
        ({"headers": {"A": {"secret": ""}}}, [("/headers/A/secret", "invalid-reference")]),
        ({"headers": {"A": {"secret": 3}}}, [("/headers/A/secret", "invalid-reference")]),
        ({"headers": {"A": {"secret": "s", "prefix": 4}}}, [("/headers/A/prefix", "invalid-reference")]),
        ({"headers": {"A": {"secret": "s", "postfix": "x"}}}, [("/headers/A/postfix", "unknown-field")]),
        ({"headers": {"A": {"secret": "s", "prefix": "x\r\nB: "}}}, [("/headers/A", "header-injection")]),
        ({"headers": {f"A{number}": "x" for number in range(101)}}, [("/headers", "out-of-range")]),
        ({"idle_timeout": 3}, [("/idle_timeout", "wrong-type")]),
        ({"idle_timeout": "3"}, [("/idle_timeout", "invalid-duration")]),
        ({"idle_timeout": "2d"}, [("/idle_timeout", "out-of-range")]),
        ({"tls": "x"}, [("/tls", "wrong-type")]),
        ({"tls": {"ca": "x", "CA": PEM}}, [("/tls/CA", "unknown-field"), ("/tls/ca", "invalid-pem")]),
        ({"tls": {"cert": PEM}}, [("/tls/key", "required")]),
        ({"tls": {"key": PEM}}, [("/tls/cert", "required")]),
        ({"verify_tls": "no"}, [("/verify_tls", "wrong-type")]),
        ({"verify_tls": False}, [("/verify_tls", "unverified-tls-forbidden")]),
        ({"proxy": "http://proxy.example:3128"}, [("/proxy", "proxy-forbidden")]),
        ({"proxy": 3}, [("/proxy", "wrong-type"), ("/proxy", "proxy-forbidden")]),
        ({"oauth": "x"}, [("/oauth", "wrong-type")]),
        ({"oauth": {}}, [(f"/oauth/{name}", "required") for name in ("token_url", "client_id", "client_secret")]),
        ({"oauth": {**OAUTH, "token_url": "http://169.254.169.254/"}}, [("/oauth/token_url", "target-blocked")]),
        ({"oauth": {**OAUTH, "token_url": "file:///etc/passwd"}}, [("/oauth/token_url", "scheme-not-allowed")]),
        ({"oauth": {**OAUTH, "client_auth": "jwt"}}, [("/oauth/client_auth", "unknown-value")]),
        ({"oauth": OAUTH, "headers": {"authorization": "x"}}, [("/oauth", "invalid-value")]),
        ({"complete_by": "pigeon"}, [("/complete_by", "unknown-value")]),
        ({"callback_timeout": "1h"}, [("/callback_timeout", "invalid-value")]),
        ({"sign_with": 3}, [("/sign_with", "wrong-type")]),
        ({"sign_with": {"secret": ""}}, [("/sign_with/secret", "invalid-reference")]),
        ({"sign_with": "a-passphrase"}, [("/sign_with", "invalid-value")]),
        ({"sign_with": "whsec_AAAA"}, [("/sign_with", "invalid-value")]),
        ({"complete_by": "callback", "callback_timeout": "8d"}, [("/callback_timeout", "out-of-range")]),
        ({"url": "http://a/" + "x" * 8000}, [("/url", "invalid-url")]),
    ],
)  # fmt: skip
def test_every_fault_of_an_option_is_told_with_its_place(options, faults):
    assert found({"url": URL, **options}) == faults


def test_what_is_granted_is_not_refused_but_still_judged():
    granted = Allowed(unverified_tls=True, proxies=True)

    def found_with(payload):
        return [(fault.pointer, fault.code) for fault in http_faults({"url": URL, **payload}, granted)]

    assert found_with({"verify_tls": False}) == []
    assert found_with({"verify_tls": False, "tls": {"ca": PEM}}) == [("/verify_tls", "invalid-value")]
    assert (
        found_with({"proxy": {"url": "http://proxy.example:3128", "username": "u", "password": {"secret": "p"}}}) == []
    )
    assert found_with({"proxy": "http://127.0.0.1:3128"}) == [("/proxy", "target-blocked")]
    assert found_with({"proxy": {"url": "http://169.254.1.1:3128"}}) == [("/proxy/url", "target-blocked")]
    assert found_with({"proxy": "socks5://proxy.example"}) == [("/proxy", "scheme-not-allowed")]
    assert found_with({"proxy": {"username": 3}}) == [("/proxy/url", "required"), ("/proxy/username", "wrong-type")]
