"""What somebody outside may say of an attempt, and what that makes of it."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from hourhand.model.outcome import NOTHING_SAID, Failed, Succeeded, clipped
from hourhand.model.states import Reason

SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
RUNNING: Final = "running"
"""Says nothing but how far it has come."""
CALLBACK_TOKEN_PREFIX: Final = "hhc_"  # noqa: S105 - what tokens begin with
STATUSES: Final = (SUCCEEDED, FAILED, RUNNING)
SEALED: Final = "sealed"
"""Stands alone in the place of what was said, where that is not to be read in the database."""


def signing_purpose(run_id: UUID, fence: int) -> bytes:
    """What the key is for that signs what is said of an attempt: no two attempts have the same."""
    return b"callback\0" + run_id.bytes + fence.to_bytes(8, "big")


def token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def outcome_said(said: Mapping[str, Any]) -> Succeeded | Failed:
    result = said.get("result")
    if said.get("status") == SUCCEEDED:
        return NOTHING_SAID if result is None else Succeeded(result)
    error = clipped(str(said.get("error") or "whoever did the work said that it failed"))
    return Failed(Reason.CALLBACK_FAILED, error, retryable=bool(said.get("retry", True)), result=result)
