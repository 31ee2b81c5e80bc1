"""Which addresses HTTP jobs may reach.

A job's URL comes from a stranger, but the connection comes from our network. Link-local addresses, where
clouds hand out credentials, are never reached; loopback and private ones only where that is allowed.
"""

import re
import socket
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

_NUMERIC_HOST = re.compile(r"(?:0x[0-9a-f]*|\d+)(?:\.(?:0x[0-9a-f]*|\d+))*\.?", re.IGNORECASE)
_TRANSLATED: Final = (
    IPv6Network("64:ff9b::/96"),  # by NAT64
    IPv6Network("64:ff9b:1::/48"),  # by NAT64 of a network's own
    IPv6Network("::ffff:0:0:0/96"),  # by stateless translation
)
"""Where the last 32 bits are an IPv4 address, to which somebody on the way translates."""
_CLOUD_METADATA: Final = frozenset(
    ip_address(address)
    for address in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
"""Metadata services, and what else hands out credentials to a machine of a cloud, outside of the link-local range. One
of them looks like any address of the Internet."""


_WHERE_ALLOWED: Final = "where kinds.allow_private_targets is set"


class TargetBlocked(Exception):
    """The address may not be reached from here. Not an OSError: it must not pass for a network failure."""

    def __init__(self, host: str, why: str) -> None:
        super().__init__(f"{host} is {why}")


def blocked_because(address: IPv4Address | IPv6Address, allow_private: bool) -> str | None:
    """Why an address may not be reached, or None."""
    address = _innermost(address)
    if address.is_link_local or address in _CLOUD_METADATA:
        return f"a link-local or metadata address ({address}), which jobs may never reach"
    if not allow_private and (not address.is_global or address.is_multicast):
        return f"a private address ({address}), which jobs may reach only {_WHERE_ALLOWED}"
    return None


@lru_cache(maxsize=4096)  # asked several times for each call, and most calls go to few hosts
def host_blocked_because(host: str, allow_private: bool) -> str | None:
    """The same for a host as a URL names it. A name that must be resolved is judged when it is."""
    address = literal_address(host)
    if address is not None:
        return blocked_because(address, allow_private)
    name = host.rstrip(".").lower()
    if not allow_private and (name == "localhost" or name.endswith(".localhost")):
        return f"this machine itself, which jobs may reach only {_WHERE_ALLOWED}"
    return None


def literal_address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host spells out, also as one number, in octal or in hexadecimal, as resolvers read it."""
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        pass
    if not _NUMERIC_HOST.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def _innermost(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 address only wraps."""
    if isinstance(address, IPv4Address):
        return address
    wrapped = address.ipv4_mapped or address.sixtofour
    if wrapped is None and any(address in network for network in _TRANSLATED):
        wrapped = IPv4Address(int(address) & 0xFFFF_FFFF)
    if wrapped is None and int(address) >> 32 == 0 and int(address) > 1:  # the old "IPv4-compatible" form
        wrapped = IPv4Address(int(address))
    return wrapped or address
