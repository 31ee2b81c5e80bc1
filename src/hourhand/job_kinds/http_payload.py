"""What the payload of an HTTP job may say, and every fault it can have. Pure: runs in the API."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from hourhand.job_kinds.addresses import host_blocked_because
from hourhand.job_kinds.http_options import (
    callback_faults,
    duration_faults,
    oauth_faults,
    proxy_faults,
    sign_faults,
    tls_faults,
    verify_faults,
)
from hourhand.job_kinds.payload_checks import is_integer, pointer_to, text_faults, unknown_fields, wrong_type
from hourhand.model.errors import Fault
from hourhand.model.webhooks import HEADERS as SIGNATURE_HEADERS

FIELDS: Final = (
    "url",
    "method",
    "headers",
    "body",
    "expect_status",
    "follow_redirects",
    "idle_timeout",
    "tls",
    "verify_tls",
    "proxy",
    "oauth",
    "sign_with",
    "complete_by",
    "callback_timeout",
)
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
EXPECT_DEFAULT: Final = ("2xx",)
HEADERS_MAX: Final = 100
URL_CHARS_MAX: Final = 8000
_REMEMBERED_CHARS_MAX: Final = 500

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BAD_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_BAD_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_STATUS_CLASS = re.compile(r"[1-5]xx")
_RESERVED: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"}
    | {"idempotency-key", *SIGNATURE_HEADERS}
)
_RESERVED_BEGINNINGS: Final = ("hourhand-", "proxy-")


@dataclass(frozen=True, slots=True)
class Allowed:
    """What the configuration grants to HTTP jobs."""

    private: bool = False
    """Loopback and private addresses."""
    unverified_tls: bool = False
    proxies: bool = False
    """Proxies of their own choice."""


def http_faults(payload: Mapping[str, Any], allowed: Allowed) -> list[Fault]:
    if len(payload) == 1 and "url" in payload:  # most say little more than where to call
        return _target_faults(payload, allowed)
    faults = unknown_fields(payload, FIELDS)
    faults += _target_faults(payload, allowed)
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
    return faults + _option_faults(payload, allowed)


def expects(status: int, expected: Any) -> bool:
    return status in expected or f"{status // 100}xx" in expected


def header_value_is_bad(value: str) -> bool:
    """Whether it would end its line, and so could begin another header."""
    return _BAD_IN_VALUE.search(value) is not None


def _option_faults(payload: Mapping[str, Any], allowed: Allowed) -> list[Fault]:
    faults: list[Fault] = []
    if "idle_timeout" in payload:
        faults += duration_faults("/idle_timeout", payload["idle_timeout"], 86_400)
    if "tls" in payload:
        faults += tls_faults(payload["tls"])
    if "verify_tls" in payload:
        faults += verify_faults(payload, allowed.unverified_tls)
    if "proxy" in payload:
        faults += proxy_faults(payload["proxy"], allowed.proxies)
        proxy = payload["proxy"]
        url = proxy.get("url") if isinstance(proxy, Mapping) else proxy
        if isinstance(url, str):
            pointer = "/proxy/url" if isinstance(proxy, Mapping) else "/proxy"
            faults += url_faults(pointer, url, allowed.private, ("http",))
    if "oauth" in payload:
        faults += oauth_faults(payload)
        token_url = payload["oauth"].get("token_url") if isinstance(payload["oauth"], Mapping) else None
        if isinstance(token_url, str):
            faults += url_faults("/oauth/token_url", token_url, allowed.private)
    if "sign_with" in payload:
        faults += sign_faults(payload["sign_with"])
    if "complete_by" in payload or "callback_timeout" in payload:
        faults += callback_faults(payload)
    return faults


def _target_faults(payload: Mapping[str, Any], allowed: Allowed) -> list[Fault]:
    if "url" not in payload:
        return [Fault("/url", "url-required", "is required")]
    url = payload["url"]
    return url_faults("/url", url, allowed.private) if isinstance(url, str) else [wrong_type("/url", "a string", url)]


def url_faults(
    pointer: str, url: str, allow_private: bool, schemes: tuple[str, ...] = ("http", "https")
) -> list[Fault]:
    """What is wrong with an address that is to be called."""
    if len(url) > _REMEMBERED_CHARS_MAX:
        return _find_url_faults(pointer, url, allow_private, schemes)
    return list(_remembered_url_faults(pointer, url, allow_private, schemes))


@lru_cache(maxsize=1024)  # most jobs call few addresses again and again
def _remembered_url_faults(pointer: str, url: str, allow_private: bool, schemes: tuple[str, ...]) -> tuple[Fault, ...]:
    return tuple(_find_url_faults(pointer, url, allow_private, schemes))


def _find_url_faults(pointer: str, url: str, allow_private: bool, schemes: tuple[str, ...]) -> list[Fault]:
    if len(url) > URL_CHARS_MAX:
        return [Fault(pointer, "invalid-url", f"has more than {URL_CHARS_MAX} characters")]
    if _BAD_IN_URL.search(url):
        return [Fault(pointer, "invalid-url", "must not contain spaces, backslashes or control characters")]
    try:
        parts: SplitResult = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return [Fault(pointer, "invalid-url", f"is not a URL: {error}")]
    if parts.scheme not in schemes:
        wanted = " or ".join(f"{scheme}://" for scheme in schemes)
        return [Fault(pointer, "scheme-not-allowed", f"must begin with {wanted}", None, schemes)]
    if not host:
        return [Fault(pointer, "invalid-url", "must name a host")]
    why = host_blocked_because(host, allow_private)
    return [Fault(pointer, "target-blocked", f"{host} is {why}")] if why else []


def _header_faults(headers: Any) -> list[Fault]:
    if not isinstance(headers, Mapping):
        return [wrong_type("/headers", "an object of strings", headers)]
    if len(headers) > HEADERS_MAX:
        return [Fault("/headers", "out-of-range", f"at most {HEADERS_MAX} headers can be sent")]
    faults = []
    for name, value in headers.items():
        pointer = pointer_to("headers", name)
        if not _TOKEN.fullmatch(name):
            faults.append(Fault(pointer, "header-injection", f"{name!r} cannot be the name of a header"))
        elif name.lower() in _RESERVED or name.lower().startswith(_RESERVED_BEGINNINGS):
            hint = "sign_with has calls signed" if name.lower() in SIGNATURE_HEADERS else None
            faults.append(Fault(pointer, "header-reserved", f"{name} is set by Hourhand and not by jobs", hint))
        faults += text_faults(pointer, value)
        texts = [value.get("prefix"), value.get("suffix")] if isinstance(value, Mapping) else [value]
        if any(isinstance(text, str) and header_value_is_bad(text) for text in texts):
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
