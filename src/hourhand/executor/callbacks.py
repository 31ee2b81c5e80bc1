"""Attempts that wait for somebody outside to say how they ended. They hold a place and nothing else.

What was said is in the database, under the attempt's fence. The API knocks when something was said; all attempts that
wait here are asked for at once, then and every few seconds. What is said of progress comes the same way: only here are
the secrets known that have to be masked in it. If this executor dies meanwhile, the run is tried again
like any other, and whoever still has the old token is told that it is stale.
"""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from hourhand.model.callback import (
    CALLBACK_TOKEN_PREFIX,
    FAILED,
    SEALED,
    outcome_said,
    signing_purpose,
    token_digest,
)
from hourhand.model.errors import BadConfiguration, SecretsUnavailable
from hourhand.model.outcome import Outcome, TimedOut
from hourhand.model.run import Claim
from hourhand.model.webhooks import key_text
from hourhand.ports.callback_stores import CallbackKeys, CallbackStore
from hourhand.ports.job_kind import PendingCallback

LOOK_SECONDS: Final = 2.0
_BATCH_MAX: Final = 1000
_decode: Final = msgspec.json.Decoder().decode
_Key = tuple[UUID, int]
_Said = Mapping[str, Any]


@dataclass(slots=True)
class _Waiting:
    last: asyncio.Future[_Said]
    """How the attempt ended."""
    tell: Callable[[float | None, str], None]
    """Takes what is said of progress, and masks it."""
    opened: Callable[[_Said], _Said]
    heard: _Said | None = None
    """The newest word of progress."""


class Callbacks:
    def __init__(self, store: CallbackStore, api_url: str) -> None:
        self._store = store
        self._api_url = api_url.rstrip("/")
        self.keys: CallbackKeys | None = None
        """Those that the API has as well."""
        self._waiting: dict[_Key, _Waiting] = {}
        self.wake: Callable[[], None] = lambda: None
        """Asks for a call of `run_once`; set by whoever runs the loop."""

    def of(
        self, claim: Claim, tell: Callable[[float | None, str], None]
    ) -> Callable[[float], AbstractAsyncContextManager[PendingCallback]]:
        """`tell`: takes what is said of progress."""
        return partial(self._open, claim, tell)

    async def run_once(self) -> float | None:
        waiting = list(self._waiting)
        for begin in range(0, len(waiting), _BATCH_MAX):
            for key, newest in (await self._store.said_callbacks(waiting[begin : begin + _BATCH_MAX])).items():
                attempt = self._waiting.get(key)
                if attempt is None or attempt.last.done():
                    continue
                if newest.is_last:
                    attempt.last.set_result(newest.said)
                elif newest.said != attempt.heard:
                    attempt.heard = newest.said
                    _tell(attempt)
        return None

    @asynccontextmanager
    async def _open(
        self, claim: Claim, tell: Callable[[float | None, str], None], seconds: float
    ) -> AsyncIterator[PendingCallback]:
        key = (claim.run_id, claim.fence)
        token = CALLBACK_TOKEN_PREFIX + secrets.token_urlsafe(32)
        key_id, signing_key = self._signing_key(signing_purpose(*key))
        await self._store.open_callback(*key, token_digest(token), seconds, key_id)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Said] = loop.create_future()
        url = f"{self._api_url}/api/v1/runs/{claim.run_id}/callback"
        secret = None if signing_key is None else key_text(signing_key)
        opened = partial(self._opened, key_id, signing_purpose(*key))
        self._waiting[key] = _Waiting(future, tell, opened)
        try:
            yield _Pending(url, token, secret, future, loop.time() + seconds, seconds, self, opened)
        finally:
            del self._waiting[key]
            future.cancel()

    def _signing_key(self, purpose: bytes) -> tuple[str | None, bytes | None]:
        """The id of the master key, and what follows from it. There may be none; then there is still the token."""
        try:
            if self.keys is None or not self.keys.key_ids:
                return None, None
            key_id = self.keys.key_ids[0]
            return key_id, self.keys.derived(key_id, purpose)
        except BadConfiguration:  # whoever opens secrets tells of it
            return None, None

    def _opened(self, key_id: str | None, purpose: bytes, said: Mapping[str, Any]) -> Mapping[str, Any]:
        if SEALED not in said:
            return said
        assert self.keys is not None, "nothing is sealed for an executor that has no keys"
        assert key_id is not None, "nothing is sealed for an executor that has no keys"
        try:
            opened = self.keys.open_for(key_id, purpose, base64.b64decode(said[SEALED]))
        except (SecretsUnavailable, BadConfiguration) as fault:
            return {"status": FAILED, "error": f"what the callback said cannot be opened: {fault}"}
        read: Mapping[str, Any] = _decode(opened)
        return read


def _tell(attempt: _Waiting) -> None:
    assert attempt.heard is not None, "it was just heard"
    said = attempt.opened(attempt.heard)
    if "message" in said:  # else it cannot be opened, which the last word will tell
        attempt.tell(said["percent"], said["message"])


class _Pending:
    def __init__(
        self,
        url: str,
        token: str,
        secret: str | None,
        said: "asyncio.Future[Mapping[str, Any]]",
        ends_at: float,
        seconds: float,
        callbacks: Callbacks,
        opened: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    ) -> None:
        self.url = url
        self.token = token
        self.secret = secret
        self._said = said
        self._ends_at = ends_at
        self._seconds = seconds
        self._callbacks = callbacks
        self._opened = opened

    async def outcome(self) -> Outcome:
        self._callbacks.wake()  # it may have been said before the call was answered
        rest = max(self._ends_at - asyncio.get_running_loop().time(), 0.0)
        await asyncio.wait({self._said}, timeout=rest)
        if not self._said.done():
            await self._callbacks.run_once()  # said in the last moment, and accepted as in time
        if not self._said.done():
            return TimedOut(self._seconds, callback=True)
        return outcome_said(self._opened(self._said.result()))

    async def said_already(self) -> Outcome | None:
        await self._callbacks.run_once()
        return outcome_said(self._opened(self._said.result())) if self._said.done() else None
