"""Looks through the folder in which a job has left its files, trusting nothing in it.

Whoever filled it may have wished to have other files read than its own: by links, by names that lead elsewhere, by
devices that never end. So nothing is followed, everything is opened from the folder itself part by part, and only
plain files with a single name, of the folder's own user, are taken. Everything here waits for the disk and belongs into
a thread.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hourhand.model.run_blobs import NAME_PARTS_MAX, name_fault

ENTRIES_MAX: Final = 20_000
"""So many files and folders are looked at; what is more stays where it is and goes with the folder."""
_TOLD_MAX: Final = 20
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


@dataclass(slots=True)
class Listing:
    """What is to be kept, and in words what is not."""

    names: list[str] = field(default_factory=list)
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)
    left_out_count: int = 0
    entries: int = 0
    """Files and folders that were looked at."""

    def leave_out(self, name: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _TOLD_MAX:
            shown = name[:200].encode("utf-8", "backslashreplace").decode()
            self.left_out.append(f"{shown!r} is not kept: {why}")

    def told(self) -> list[str]:
        more = self.left_out_count - len(self.left_out)
        return [*self.left_out, *([f"… and {more} more"] if more else [])]


class OutputFolder:
    """Open until `close`. Raises OSError when it is no folder any more."""

    def __init__(self, path: Path) -> None:
        self._root = os.open(path, _FOLDER)
        facts = os.fstat(self._root)
        self._owner = facts.st_uid
        self._device = facts.st_dev

    def close(self) -> None:
        os.close(self._root)

    def is_empty(self) -> bool:
        with os.scandir(self._root) as entries:
            return next(entries, None) is None

    def look_through(self, files_max: int, bytes_max: int) -> Listing:
        """In the order of names, so that the same files are taken whenever there are too many."""
        found = Listing()
        for name, facts in self._walk(self._root, "", 1, found):
            fault = name_fault(name) or self._fault(facts)
            if fault is None and len(found.names) >= files_max:
                fault = f"there are more than {files_max} files"
            if fault is None and found.bytes + facts.st_size > bytes_max:
                fault = f"with its {facts.st_size} bytes all files together have more than {bytes_max}"
            if fault is not None:
                found.leave_out(name, fault)
                continue
            found.names.append(name)
            found.bytes += facts.st_size
        return found

    def _walk(self, folder: int, path: str, depth: int, found: Listing) -> Iterator[tuple[str, os.stat_result]]:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for _, entry in zip(range(ENTRIES_MAX + 1), entries, strict=False))
        for inner in names:
            name = f"{path}{inner}"
            # Folders count as well: without a file in any of them they would be looked through for ever.
            found.entries += 1
            if found.entries >= ENTRIES_MAX:
                if found.entries == ENTRIES_MAX:
                    found.leave_out("…", f"more than {ENTRIES_MAX} entries are in the folder")
                return
            try:
                facts = os.stat(inner, dir_fd=folder, follow_symlinks=False)
                if not stat.S_ISDIR(facts.st_mode):
                    yield name, facts
                    continue
                if depth > NAME_PARTS_MAX:
                    found.leave_out(name, f"it lies deeper than {NAME_PARTS_MAX} folders")
                    continue
                below = os.open(inner, _FOLDER, dir_fd=folder)
            except OSError as error:
                found.leave_out(name, (error.strerror or "it cannot be opened").lower())
                continue
            try:
                yield from self._walk(below, f"{name}/", depth + 1, found)
            finally:
                os.close(below)

    def open_file(self, name: str) -> int:
        """Opens a file of the listing, which somebody may have exchanged meanwhile. Raises OSError."""
        *folders, last = name.split("/")
        place = os.dup(self._root)
        try:
            for inner in folders:
                below = os.open(inner, _FOLDER, dir_fd=place)
                os.close(place)
                place = below
            file = os.open(last, _FILE, dir_fd=place)
        finally:
            os.close(place)
        fault = self._fault(os.fstat(file))
        if fault is not None:
            os.close(file)
            raise OSError(0, fault)
        return file

    def _fault(self, facts: os.stat_result) -> str | None:
        if stat.S_ISLNK(facts.st_mode):
            return "it is a symbolic link"
        if not stat.S_ISREG(facts.st_mode):
            return "it is no plain file"
        if facts.st_nlink != 1:  # its other name may be that of a file which the job may not read
            return "it has several names (hard links)"
        if facts.st_uid != self._owner or facts.st_dev != self._device:
            return "it belongs to somebody else"
        return None
