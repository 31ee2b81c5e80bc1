"""What the payload of an HTTP job may say, and every fault it can have. Pure: runs in the API."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from hourhand.job_kinds.addresses import host_blocked_because
from hourhand.job_kinds.payload_checks import is_integer, pointer_to, unknown_fields, wrong_type
from hourhand.model.errors import Fault

FIELDS: Final = ("url", "method", "headers", "body", "expect_status", "follow_redirects")
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
EXPECT_DEFAULT: Final = ("2xx",)

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_STATUS_CLASS = re.compile(r"[1-5]xx")
_RESERVED: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"idempotency-key", "webhook-id", "webhook-timestamp", "webhook-signature"}
)
_RESERVED_BEGINNINGS: Final = ("hourhand-", "proxy-")


def http_faults(payload: Mapping[str, Any], allow_private: bool) -> list[Fault]:
    faults = unknown_fields(payload, FIELDS)
    faults += _url_faults(payload, allow_private)
    method = payload.get("method", "GET")
    if method not in METHODS:
        faults.append(Fault("/method", "method-not-allowed", "is not a method that can be called", None, METHODS))
    if "headers" in payload:
        faults += _header_faults(payload["headers"])
    if "expect_status" in payload:
        faults += _status_faults(payload["expect_status"])
    follow = payload.get("follow_redirects", False)
    if not isinstance(follow, bool):
        faults.append(wrong_type("/follow_redirects", "true or false", follow))
    return faults


def expects(status: int, expected: Any) -> bool:
    return status in expected or f"{status // 100}xx" in expected


def _url_faults(payload: Mapping[str, Any], allow_private: bool) -> list[Fault]:
    if "url" not in payload:
        return [Fault("/url", "url-required", "is required")]
    url = payload["url"]
    if not isinstance(url, str):
        return [wrong_type("/url", "a string", url)]
    if _BAD_IN_URL.search(url):
        return [Fault("/url", "invalid-url", "must not contain spaces, backslashes or control characters")]
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return [Fault("/url", "invalid-url", f"is not a URL: {error}")]
    if parts.scheme not in ("http", "https"):
        return [Fault("/url", "scheme-not-allowed", "must begin with http:// or https://", None, ("http", "https"))]
    if not host:
        return [Fault("/url", "invalid-url", "must name a host")]
    why = host_blocked_because(host, allow_private)
    return [Fault("/url", "target-blocked", f"{host} is {why}")] if why else []


def _header_faults(headers: Any) -> list[Fault]:
    if not isinstance(headers, Mapping):
        return [wrong_type("/headers", "an object of strings", headers)]
    faults = []
    for name, value in headers.items():
        pointer = pointer_to("headers", name)
        if not _TOKEN.fullmatch(name):
            faults.append(Fault(pointer, "header-injection", f"{name!r} cannot be the name of a header"))
        elif name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS):
            faults.append(Fault(pointer, "header-reserved", f"{name} is set by Hourhand"))
        if not isinstance(value, str):
            faults.append(wrong_type(pointer, "a string", value))
        elif _BAD_IN_VALUE.search(value):
            faults.append(Fault(pointer, "header-injection", "must not contain line ends or control characters"))
    return faults


def _status_faults(expected: Any) -> list[Fault]:
    if not isinstance(expected, list) or not expected:
        message = 'must be a list of at least one status, such as [200, "3xx"]'
        return [Fault("/expect_status", "invalid-status", message)]
    return [
        Fault(pointer_to("expect_status", index), "invalid-status", 'must be a number from 100 to 599, or like "2xx"')
        for index, status in enumerate(expected)
        if not _is_status(status)
    ]


def _is_status(status: Any) -> bool:
    if isinstance(status, str):
        return _STATUS_CLASS.fullmatch(status) is not None
    return is_integer(status) and 100 <= status <= 599
