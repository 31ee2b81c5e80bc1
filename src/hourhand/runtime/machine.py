"""How much of a machine this process may use: what the kernel and the control groups around it allow."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")


def usable_cores(groups: Path = _GROUPS, own: Path = _OWN) -> float:
    """Cores that it is let run on, or the part of them that a group around it gets."""
    return min([float(len(os.sched_getaffinity(0))), *_quotas(groups, own)])


def usable_memory(groups: Path = _GROUPS, own: Path = _OWN) -> int:
    """Bytes of the machine, or of the smallest group around it."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([whole, *_memory_limits(groups, own)])


def _quotas(groups: Path, own: Path) -> Iterator[float]:
    for folder in _folders(groups, own, ""):
        words = _read(folder / "cpu.max").split()
        if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
            yield int(words[0]) / int(words[1])
    for folder in _folders(groups, own, "cpu"):
        quota, period = _read(folder / "cpu.cfs_quota_us").strip(), _read(folder / "cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):
            yield int(quota) / int(period)


def _memory_limits(groups: Path, own: Path) -> Iterator[int]:
    for controller, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        for folder in _folders(groups, own, controller):
            text = _read(folder / file).strip()
            if text.isdecimal() and int(text):
                yield int(text)


def _folders(groups: Path, own: Path, controller: str) -> Iterator[Path]:
    """Those of the groups around this process, from its own outwards. The first version has a tree per controller."""
    for line in _read(own).splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if (controller in controllers.split(",")) if controller else not controllers:
            root = groups / controller if controller else groups
            inner = root / path.lstrip("/")
            yield from (folder for folder in (inner, *inner.parents) if folder.is_relative_to(root))


def _read(file: Path) -> str:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return file.read_text()
    return ""
