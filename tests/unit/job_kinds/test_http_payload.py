import pytest

from hourhand.job_kinds.http_payload import expects, http_faults

URL = "https://example.com/hook"


def found(payload, allow_private=False):
    return [(fault.pointer, fault.code) for fault in http_faults(payload, allow_private)]


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
    [fault] = http_faults({"url": URL, "expected_status": [200]}, allow_private=False)
    assert (fault.code, fault.hint) == ("unknown-field", "did you mean 'expect_status'?")
    assert found({"url": URL, "follow_redirects": "yes"}) == [("/follow_redirects", "wrong-type")]


def test_statuses_are_expected_by_number_or_class():
    assert expects(204, ["2xx"])
    assert expects(404, [200, 404])
    assert not expects(301, ["2xx", 302])
