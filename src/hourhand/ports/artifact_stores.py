"""Uploaded code, as operations and executors need it kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

from hourhand.model.artifacts import Reference


@dataclass(frozen=True, slots=True)
class ArtifactRow:
    artifact_id: UUID
    name: str
    digest: str
    """SHA-256, in hexadecimal."""
    size: int
    form: str
    entries: int | None
    """Of an archive."""
    unpacked_bytes: int | None
    uploaded_at: datetime
    uploaded_by: str
    signature: bytes | None = None
    """Of its name and digest, when somebody vouches for it."""
    signed_by: str | None = None
    """The id of the key, by which the API checked it."""

    @property
    def blob_key(self) -> str:
        return blob_key(self.artifact_id)


def blob_key(artifact_id: UUID) -> str:
    """Where the content is. A new upload has a new key, so that what is under a key never changes."""
    return f"artifacts/{artifact_id}"


class JobUsing(NamedTuple):
    job_id: UUID
    name: str


class ArtifactStore(Protocol):
    async def put(self, namespace_id: int, row: ArtifactRow) -> UUID | None:
        """Keeps it as the newest of its name. Where the same content was there under the same name, it takes its place:
        the id of that one is given back, whose blob nobody needs any more."""

    async def list(self, namespace_id: int, name: str | None, before: UUID | None, limit: int) -> Sequence[ArtifactRow]:
        """The newest first, those older than `before`."""

    async def find(self, namespace_id: int, reference: Reference) -> ArtifactRow | None:
        """What is meant; of several the one uploaded last."""

    async def delete(self, namespace_id: int, artifact_id: UUID) -> Sequence[JobUsing] | None:
        """Empty when it is gone, else some of the jobs that use it; None when there is none."""


class ArtifactLookup(Protocol):
    """What executors ask."""

    async def find_in(self, namespace: str, reference: Reference) -> ArtifactRow | None: ...
