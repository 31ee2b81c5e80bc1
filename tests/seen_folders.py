"""Folders that programs of jobs see too: of /tmp and its like, where tests have theirs, each attempt sees its own."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def seen_folder(prefix: str = "hh-", mode: int = 0o755) -> Iterator[Path]:
    """A new folder with a short name that every user may pass, gone at the end."""
    system = Path("/var/lib")
    base = system if os.access(system, os.W_OK) else Path(__file__).parents[1]
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    folder.chmod(mode)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
