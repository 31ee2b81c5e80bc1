"""Secrets: what is known of one besides its value, and which jobs may use it."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import msgspec

VALUE_BYTES_MAX: Final = 64 * 1024


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which jobs of the namespace may use a secret: those that fit every part that is given. The same rule is in the
    statement `use_secrets`, where it is asked again each time."""

    jobs: tuple[str, ...] | None = None
    """Names or ids."""
    labels: Mapping[str, str] | None = None
    """All of them."""
    kinds: tuple[str, ...] | None = None

    def allows(self, job_id: UUID, name: str, kind: str, labels: Mapping[str, str]) -> bool:
        return (
            (self.jobs is None or name in self.jobs or str(job_id) in self.jobs)
            and (self.kinds is None or kind in self.kinds)
            and (self.labels is None or all(labels.get(key) == value for key, value in self.labels.items()))
        )


EVERY_JOB: Final = Grant()


def grant_from_json(value: Any) -> Grant:
    return EVERY_JOB if value is None else msgspec.convert(value, Grant)


class SecretPlace(msgspec.Struct, frozen=True):
    """What a sealed value is bound to: opened in any other place it is refused."""

    namespace_id: int
    name: str
    version: int


class Sealed(msgspec.Struct, frozen=True):
    """A value that only the holder of the master key can read."""

    key_id: str
    wrapped_key: bytes
    sealed: bytes
