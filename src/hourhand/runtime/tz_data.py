"""Which edition of the tz data this machine has, and that a new one is used without a restart.

Python reads a zone once and keeps it. An update of the system's tz data would be noticed by processes started after it
and by no others; so each node looks now and then, and forgets what it has read when the edition has changed.
"""

import asyncio
import importlib
import zoneinfo
from hashlib import blake2b
from pathlib import Path
from typing import Final

from hourhand.model.local_time import forget_zones

LOOK_SECONDS: Final = 60.0
FILES_MAX: Final = 10_000
_VERSION_FILE: Final = "tzdata.zi"


def edition() -> str:
    """A word for all tz data that zones are read from: the same for the same data."""
    parts = [_of_folder(Path(folder)) for folder in zoneinfo.TZPATH if Path(folder).is_dir()]
    return " ".join([*parts, *_of_package()]) or "none"


class ZoneWatch:
    """Notices a new edition."""

    def __init__(self) -> None:
        self.edition: str | None = None
        """As last seen; None before the first look."""

    async def run_once(self) -> float | None:
        found = await asyncio.to_thread(edition)
        if self.edition is not None and found != self.edition:
            forget_zones()
        self.edition = found
        return None


def _of_folder(folder: Path) -> str:
    """The version it names and a digest of the rules it was made from; of all its files if it does not say."""
    source = folder / _VERSION_FILE
    try:
        content = source.read_bytes()
    except OSError:
        return _digest(_all_files(folder))
    version = content[:40].partition(b"\n")[0].removeprefix(b"# version ").decode("ascii", "replace")
    return f"{version}-{_digest(content)}"


def _all_files(folder: Path) -> bytes:
    files = sorted(path for path in folder.rglob("*") if path.is_file())[:FILES_MAX]
    return b"".join(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() for path in files)


def _of_package() -> list[str]:
    """Zones that the system does not have are read from it."""
    try:
        return [str(importlib.import_module("tzdata").IANA_VERSION)]
    except (ImportError, AttributeError):
        return []


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=6).hexdigest()
