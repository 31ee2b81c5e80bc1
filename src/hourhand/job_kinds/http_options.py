"""The rarer fields of an HTTP job's payload: TLS, proxies, OAuth, signatures, completion by callback.

Pure: runs in the API.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from hourhand.job_kinds.payload_checks import text_faults, unknown_fields, wrong_type
from hourhand.model.durations import DurationFault, format_duration, parse_duration
from hourhand.model.errors import Fault
from hourhand.model.webhooks import keys_in

TLS_FIELDS: Final = ("ca", "cert", "key")
PROXY_FIELDS: Final = ("url", "username", "password")
OAUTH_FIELDS: Final = ("token_url", "client_id", "client_secret", "scope", "client_auth")
CLIENT_AUTH: Final = ("basic", "body")
CALLBACK: Final = "callback"
COMPLETE_BY: Final = ("answer", CALLBACK)
CALLBACK_SECONDS_DEFAULT: Final = 3600.0
CALLBACK_SECONDS_MAX: Final = 7 * 86_400.0
_PEM: Final = "-----BEGIN "


def duration_faults(pointer: str, value: Any, seconds_max: float) -> list[Fault]:
    if not isinstance(value, str):
        return [wrong_type(pointer, 'a length of time such as "30s"', value)]
    try:
        seconds = parse_duration(value).total_seconds()
    except DurationFault as fault:
        return [Fault(pointer, "invalid-duration", str(fault))]
    if seconds <= seconds_max:
        return []
    most = format_duration(timedelta(seconds=seconds_max))
    return [Fault(pointer, "out-of-range", f"must be at most {most}")]


def tls_faults(tls: Any) -> list[Fault]:
    if not isinstance(tls, Mapping):
        return [wrong_type("/tls", "an object", tls)]
    faults = [fault.under("/tls") for fault in unknown_fields(tls, TLS_FIELDS)]
    for field in ("ca", "cert"):
        if field in tls and not isinstance(tls[field], str):
            faults.append(wrong_type(f"/tls/{field}", "a string", tls[field]))
    if "key" in tls:
        faults += text_faults("/tls/key", tls["key"])
    for field in TLS_FIELDS:
        if isinstance(tls.get(field), str) and _PEM not in tls[field]:
            faults.append(Fault(f"/tls/{field}", "invalid-pem", f"must be PEM text, which has a line {_PEM}...-----"))
    for field, other in (("cert", "key"), ("key", "cert")):
        if field in tls and other not in tls:
            faults.append(Fault(f"/tls/{other}", "required", f"is needed with {field}"))
    return faults


def verify_faults(payload: Mapping[str, Any], granted: bool) -> list[Fault]:
    verify = payload["verify_tls"]
    if not isinstance(verify, bool):
        return [wrong_type("/verify_tls", "true or false", verify)]
    if verify:
        return []
    if not granted:
        message = "jobs may not leave the server's certificate unchecked here"
        hint = "give the private CA as tls.ca; or an operator sets kinds.http_allow_unverified_tls"
        return [Fault("/verify_tls", "unverified-tls-forbidden", message, hint)]
    if isinstance(payload.get("tls"), Mapping) and "ca" in payload["tls"]:
        return [Fault("/verify_tls", "invalid-value", "false makes tls.ca meaningless; leave one of them out")]
    return []


def proxy_faults(proxy: Any, granted: bool) -> list[Fault]:
    """All but what is wrong with its address."""
    faults: list[Fault] = []
    if isinstance(proxy, Mapping):
        faults += [fault.under("/proxy") for fault in unknown_fields(proxy, PROXY_FIELDS)]
        if not isinstance(proxy.get("url"), str):
            faults.append(Fault("/proxy/url", "required", "is required: http://host:port"))
        if not isinstance(proxy.get("username", ""), str):
            faults.append(wrong_type("/proxy/username", "a string", proxy["username"]))
        if "password" in proxy:
            faults += text_faults("/proxy/password", proxy["password"])
    elif not isinstance(proxy, str):
        faults.append(wrong_type("/proxy", "an address, or an object", proxy))
    if not granted:
        message = "jobs may not choose a proxy here"
        faults.append(Fault("/proxy", "proxy-forbidden", message, "an operator sets kinds.http_allow_job_proxies"))
    return faults


def oauth_faults(payload: Mapping[str, Any]) -> list[Fault]:
    """All but what is wrong with the address of the token."""
    oauth = payload["oauth"]
    if not isinstance(oauth, Mapping):
        return [wrong_type("/oauth", "an object", oauth)]
    faults = [fault.under("/oauth") for fault in unknown_fields(oauth, OAUTH_FIELDS)]
    for field in ("token_url", "client_id", "client_secret"):
        if field not in oauth:
            faults.append(Fault(f"/oauth/{field}", "required", "is required"))
    for field in ("token_url", "client_id", "scope"):
        if field in oauth and not isinstance(oauth[field], str):
            faults.append(wrong_type(f"/oauth/{field}", "a string", oauth[field]))
    if "client_secret" in oauth:
        faults += text_faults("/oauth/client_secret", oauth["client_secret"])
    if oauth.get("client_auth", "basic") not in CLIENT_AUTH:
        message = "says how the client proves itself to the token's server"
        faults.append(Fault("/oauth/client_auth", "unknown-value", message, None, CLIENT_AUTH))
    headers = payload.get("headers")
    if isinstance(headers, Mapping) and any(str(name).lower() == "authorization" for name in headers):
        faults.append(Fault("/oauth", "invalid-value", "sets the header Authorization, which is in headers as well"))
    return faults


def sign_faults(sign_with: Any) -> list[Fault]:
    faults = text_faults("/sign_with", sign_with)
    if isinstance(sign_with, str):
        try:
            keys_in(sign_with)
        except ValueError as error:
            faults.append(Fault("/sign_with", "invalid-value", str(error)))
    return faults


def callback_faults(payload: Mapping[str, Any]) -> list[Fault]:
    complete_by = payload.get("complete_by", "answer")
    if complete_by not in COMPLETE_BY:
        return [Fault("/complete_by", "unknown-value", "says when the run is over", None, COMPLETE_BY)]
    if "callback_timeout" not in payload:
        return []
    faults = duration_faults("/callback_timeout", payload["callback_timeout"], CALLBACK_SECONDS_MAX)
    if complete_by != CALLBACK:
        faults.append(Fault("/callback_timeout", "invalid-value", 'means something with complete_by: "callback" only'))
    return faults


def callback_seconds(payload: Mapping[str, Any]) -> float:
    given = payload.get("callback_timeout")
    return CALLBACK_SECONDS_DEFAULT if given is None else parse_duration(given).total_seconds()
