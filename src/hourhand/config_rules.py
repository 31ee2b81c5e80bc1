"""Rules that join settings of several keys. Each has a reason that an operator can follow."""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hourhand.model.placement import LABEL_RULE, is_label
from hourhand.model.resources import AmountFault, parse_amount
from hourhand.runtime.signing import read_key

_DATABASES: Final = ("database.url", "database.listen_url")
SECRETS: Final = (*_DATABASES, "blobs.secret_access_key", "kinds.http_proxy")
_ORDERED: Final = (
    ("scheduler.tick_seconds", "below", "scheduler.horizon_seconds"),  # or runs are created late
    ("scheduler.tick_seconds_min", "at most", "scheduler.tick_seconds"),
    ("executor.heartbeat_seconds", "below", "executor.self_fence_seconds"),  # or runs are ended between two heartbeats
    ("kinds.worker_processes_warm", "at most", "kinds.worker_processes_max"),
)
_BLOBS_URL: Final = re.compile(
    r"file:///[^?#\x00-\x1f]*[^/?#\x00-\x1f]/?|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*/?"
)
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_SQL_WORDS: Final = frozenset({"all", "default", "do", "end", "group", "information_schema", "order", "table", "user"})
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_OWN_KINDS: Final = frozenset({"python", "command", "script", "http", "container"})


def broken_rules(v: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    """The keys that a rule joins, and what to say. Every rule has a reason that an operator can follow."""
    yield from _broken_time_rules(v)
    yield from _broken_database_rules(v)
    yield from _broken_blob_rules(v)
    if not _is_loopback(v["api.host"]) and not v["server.insecure_bind"]:
        advice = "put a proxy with TLS before a loopback address, or set server.insecure_bind"
        what = f"api.host {v['api.host']} is reachable by others over plain HTTP: {advice}"
        yield ["api.host", "server.insecure_bind"], what
    if v["api.public_url"] is not None and not re.match(r"https?://[^/\s]", v["api.public_url"]):
        yield ["api.public_url"], f"api.public_url must begin with http:// or https://, not {v['api.public_url']!r}"
    if v["kinds.http_proxy"] is not None and not re.match(r"http://[^/\s]", v["kinds.http_proxy"]):
        yield ["kinds.http_proxy"], "kinds.http_proxy must be http://host:port, perhaps with user:password@ before it"
    for name in ("name", "api.host"):
        if not v[name].strip() or len(v[name]) > 200 or not v[name].isprintable():
            yield [name], f"{name} must be 1 to 200 printable characters"
    if not v["executor.queues"]:
        yield ["executor.queues"], 'executor.queues must name at least one queue; "*" means every queue'
    for name in v["kinds.plugins"]:
        if not _KIND.fullmatch(name) or name in _OWN_KINDS:
            rule = "small letters, digits, - and _, the first a letter, at most 32; not a kind that is there already"
            yield ["kinds.plugins"], f"kinds.plugins: {name!r} cannot be the name of a kind: {rule}"
    yield from _broken_signing_rules(v)
    for label in v["executor.labels"]:
        if not is_label(label):
            yield ["executor.labels"], f"executor.labels: {label!r} is none; {LABEL_RULE}"
    yield from _broken_resources(v["executor.resources"])


def _broken_signing_rules(v: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    keys, required = "kinds.artifact_keys", "kinds.require_signed_artifacts"
    for text in v[keys]:
        if read_key(text) is None:
            yield [keys], f"{keys}: {text[:60]!r} is no public key; hourhand artifact make-key prints one"
    if v[required] and not v[keys]:
        yield [keys, required], f"{required} needs {keys}: without the keys nothing could ever be signed by one"


def _broken_resources(said: Sequence[str]) -> Iterator[tuple[Sequence[str], str]]:
    names: set[str] = set()
    for text in said:
        try:
            name, _ = parse_amount(text)
        except AmountFault as fault:
            yield ["executor.resources"], f"executor.resources: {fault}"
            continue
        if name in names:
            yield ["executor.resources"], f"executor.resources: {name} is said twice"
        names.add(name)


def _broken_time_rules(v: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    for room in ("scheduler", "executor"):
        beat, lease = f"{room}.heartbeat_seconds", f"{room}.lease_seconds"
        if v[beat] * 3 > v[lease] * (1 + 1e-9):
            rule = f"must be at most a third of {lease} ({v[lease]:g}), so that one lost renewal does no harm"
            yield [beat, lease], f"{beat} ({v[beat]:g}) {rule}"
    fence, kill, lease = (f"executor.{name}_seconds" for name in ("self_fence", "self_fence_kill", "lease"))
    if v[fence] + v[kill] >= v[lease]:
        rule = f"must together be shorter than {lease} ({v[lease]:g}), after which others may start the same runs"
        yield [fence, kill, lease], f"{fence} ({v[fence]:g}) and {kill} ({v[kill]:g}) {rule}"
    for lower, relation, upper in _ORDERED:
        if v[lower] > v[upper] or (relation == "below" and v[lower] == v[upper]):
            yield [lower, upper], f"{lower} ({v[lower]:g}) must be {relation} {upper} ({v[upper]:g})"


def _broken_database_rules(v: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    for name in _DATABASES:
        if v[name] and not re.match(r"postgres(ql)?://", v[name]):
            yield [name], f"{name} must be postgresql://user:password@host:port/database"
    schema = v["database.schema"]
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_") or schema in _SQL_WORDS:
        rule = "lower-case letters, digits and _, at most 63, no word of SQL, not beginning with pg_"
        yield ["database.schema"], f"database.schema {schema!r} is no name to use: {rule}"
    if v["database.pooler"] and not v["database.listen_url"]:
        what = "database.pooler needs database.listen_url, because nothing can be heard through a pooler"
        yield ["database.pooler", "database.listen_url"], what
    pool, own, most = "database.pool_max", "executor.transaction_connections", "embedded.connections_max"
    needed = v[pool] * 4 + v[own] + 10
    if not v["database.url"] and needed > v[most]:
        rule = f"need {most} to be at least {needed}, not {v[most]}: every node has connections of its own"
        yield [pool, own, most], f"{pool} ({v[pool]}) and {own} ({v[own]}) {rule}"


def _broken_blob_rules(v: Mapping[str, Any]) -> Iterator[tuple[Sequence[str], str]]:
    url, endpoint = v["blobs.url"], v["blobs.endpoint"]
    if url is not None and not _BLOBS_URL.fullmatch(url):
        yield ["blobs.url"], f"blobs.url must be file:///folder or s3://bucket/prefix, not {_hidden(url)!r}"
    if endpoint is not None:
        parts = re.fullmatch(r"(https?)://(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?/?", endpoint)
        if parts is None:
            yield ["blobs.endpoint"], f"blobs.endpoint must be https://host:port, not {_hidden(endpoint)!r}"
        elif parts[1] == "http" and not _is_loopback(parts[2]) and not v["blobs.insecure_http"]:
            advice = "use https, or set blobs.insecure_http"
            what = f"blobs.endpoint {endpoint} sends every blob over the network in the clear: {advice}"
            yield ["blobs.endpoint", "blobs.insecure_http"], what
    if (v["blobs.access_key_id"] is None) != (v["blobs.secret_access_key"] is None):
        rule = "belong together: set both, or none to use the machine's own"
        yield ["blobs.access_key_id", "blobs.secret_access_key"], f"blobs.access_key_id and secret_access_key {rule}"


def _hidden(url: str) -> str:
    """What stands before an @ may be credentials that somebody meant to put there."""
    return re.sub(r"//.*@", "//***@", url)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "localhost.localdomain")
