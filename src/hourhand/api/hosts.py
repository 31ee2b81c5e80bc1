"""Which Host headers are answered. A foreign name that points here would let any web page talk to us as a neighbour."""

import ipaddress
from typing import Final

from hourhand.api.refusals import HostNotAllowed
from hourhand.api.settings import ApiSettings

_LOOPBACK_NAMES: Final = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "[::1]"})
_REMEMBERED_MAX: Final = 1000


class HostCheck:
    def __init__(self, settings: ApiSettings) -> None:
        self._names = set(_LOOPBACK_NAMES) | {_bracketed(name.lower()) for name in settings.allowed_hosts}
        self._names.add(_bracketed(settings.host.lower()))
        if settings.public_url is not None:
            self._names.add(_name_of(settings.public_url.partition("://")[2].partition("/")[0].lower()))
        self._names.discard("")
        # Bound to every address, we cannot know which of them callers use. An address is safe to accept: rebinding
        # needs a name.
        self._any_address = _is_unspecified(settings.host)
        self._good: set[bytes] = set()

    def check(self, host: bytes | None) -> None:
        """Raises `HostNotAllowed`."""
        if host in self._good:
            return
        text = "" if host is None else host.decode("latin-1").lower()
        name = _name_of(text)
        if name not in self._names and not (self._any_address and _is_address(name)):
            raise HostNotAllowed(text)
        if host is not None and len(self._good) < _REMEMBERED_MAX:
            self._good.add(host)


def _name_of(host: str) -> str:
    """Without the port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".")


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_unspecified(host: str) -> bool:
    return _is_address(host) and ipaddress.ip_address(host).is_unspecified
