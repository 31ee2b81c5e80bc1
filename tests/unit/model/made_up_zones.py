"""A folder of tz data made by a test: zones with the rules that it wants, in the format that all tz data has."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zoneinfo import TZPATH, reset_tzpath

from hourhand.model.local_time import forget_zones


def write_zone(folder: Path, name: str, rule: str) -> None:
    """`rule` is as in the variable TZ of POSIX: "MAD-2" is two hours ahead of UTC, the whole year through."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two parts as the format wants them, each with one local time type and no transitions; then the rule.
    part = struct.pack(">lbb", 0, 0, 0) + b"MAD\0"
    header = b"TZif2" + bytes(15) + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    path.write_bytes(header + part + header + part + f"\n{rule}\n".encode())


def write_edition(folder: Path, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tzdata.zi").write_text(f"# version {version}\n# made up\n")


@contextmanager
def tz_data_in(folder: Path) -> Iterator[None]:
    """Zones are looked for in the folder first, until the end."""
    before = TZPATH
    reset_tzpath([str(folder)])
    forget_zones()
    try:
        yield
    finally:
        reset_tzpath(before)
        forget_zones()
