"""Questions about what runs have left. Content is fetched piece by piece, and its digest is compared."""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote
from uuid import UUID

import msgspec

from hourhand.client.calls import BASE, Call, params, reader

_ACCEPT: Final = {"Accept": "application/octet-stream, application/json, application/problem+json"}


class RunFileView(msgspec.Struct, kw_only=True):
    name: str
    size: int = 0
    digest: str = ""
    """sha256:… of the content."""
    href: str = ""


class RunFiles(msgspec.Struct, kw_only=True):
    """What an attempt of a run has left."""

    run_id: UUID
    attempt: int
    files: list[RunFileView] = []


_files: Final[Callable[[bytes], RunFiles]] = reader(RunFiles)


def list_files(run_id: UUID | str, attempt: int | None) -> Call[RunFiles]:
    return Call("GET", f"{_path(run_id)}/files", _files, params({"attempt": attempt}))


def file(run_id: UUID | str, name: str, attempt: int | None) -> Call[bytes]:
    path = f"{_path(run_id)}/files/{quote(name)}"
    return Call("GET", path, lambda data: data, params({"attempt": attempt}), headers=_ACCEPT)


def result(run_id: UUID | str) -> Call[bytes]:
    return Call("GET", f"{_path(run_id)}/result", lambda data: data, headers=_ACCEPT)


def _path(run_id: UUID | str) -> str:
    return f"{BASE}/runs/{quote(str(run_id), safe='')}"
