"""Where the Hourhand of a home listens, as a file beside its token: so commands find it on whatever port it is.

Only addresses of this machine are written and believed. A home may be a folder of whoever's project one is in, and a
token must not follow it to another machine.
"""

import contextlib
import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_FILE: Final = "address"
_OWN: Final = re.compile(r"http://(127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\]):[1-9]\d{0,4}")


def keep_address(home: Path, host: str, port: int) -> None:
    """Says where commands of this machine reach an API that listens there. Nothing, where they do not."""
    own = _reached_at(host)
    if own is None:
        forget_address(home)
        return
    new = home / f"{_FILE}.{os.getpid()}"
    new.write_text(f"http://{own}:{port}\n")
    new.replace(home / _FILE)


def forget_address(home: Path) -> None:
    with contextlib.suppress(OSError):
        (home / _FILE).unlink()


def address_of(home: Path) -> str | None:
    """None where nobody has said it, or what is said is no address of this machine."""
    try:
        said = (home / _FILE).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return said if _OWN.fullmatch(said) else None


def _reached_at(host: str) -> str | None:
    """How this machine calls what listens on that address."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    if not address.is_loopback:
        return None
    return host if address.version == 4 else f"[{address.compressed}]"
