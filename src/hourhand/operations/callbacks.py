"""What somebody outside may ask who was given the right to say how an attempt ended.

That right is a token, which is sent, or a secret, by which what is said is signed. Both were made for one attempt and
end with it. Who speaks is settled before anything that is said is looked at.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hourhand.model.callback import FAILED, RUNNING, SEALED, STATUSES, signing_purpose, token_digest
from hourhand.model.errors import (
    BadConfiguration,
    BadSignature,
    BodyTooLarge,
    Conflict,
    Fault,
    InvalidFields,
    SecretsUnavailable,
    Unauthenticated,
)
from hourhand.model.progress import Progress, tidy
from hourhand.model.webhooks import SignedCall, signed_by
from hourhand.ports.callback_stores import TOLD_IDS_MAX, CallbackAnswers, CallbackKeys, FoundCallback
from hourhand.ports.event_bus import EventBus, Topic
from hourhand.ports.progress_stores import ProgressStore, Told

RESULT_BYTES_MAX: Final = 256 * 1024
_MESSAGE_CHARS_MAX: Final = 16 * 1024
_encode: Final = msgspec.json.Encoder(order="sorted").encode
_NO_KEY: Final = (
    "the signature cannot be checked here: executor and API do not have the same key file (secrets.key_file); send the "
    "token instead"
)
_NOT_SIGNED: Final = "not signed by the secret that came with the call of this run, over exactly this id, time and body"


class CallbackProgress(msgspec.Struct, forbid_unknown_fields=True):
    percent: float | None = None
    message: str = ""


class CallbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    status: str
    result: Any = None
    error: str | None = None
    retry: bool = True
    progress: CallbackProgress | None = None


class Speaker(NamedTuple):
    """Somebody who has the right to speak of an attempt."""

    run_id: UUID
    found: FoundCallback
    word: tuple[int, bytes] | None = None
    """Of a signed call: the second in which it was signed, and the digest of its id."""


class CallbackOperations:
    def __init__(
        self,
        callbacks: CallbackAnswers,
        progress: ProgressStore,
        bus: EventBus,
        now: Callable[[], datetime],
        keys: CallbackKeys | None = None,
    ) -> None:
        """`keys`: those that executors have as well."""
        self._callbacks = callbacks
        self._progress = progress
        self._bus = bus
        self._keys = keys
        self.now = now

    async def speaker_by_token(self, run_id: UUID, token: str) -> Speaker:
        """Raises Unauthenticated for a token that is not this run's."""
        found = await self._callbacks.find_callbacks(run_id, token_digest(token))
        if not found:
            raise Unauthenticated("this token is not one for a callback of this run")
        return Speaker(run_id, found[0])

    async def speaker_by_signature(self, run_id: UUID, call: SignedCall, body: bytes) -> Speaker:
        """Raises BadSignature when it is not by the secret of an attempt of this run."""
        found = await self._callbacks.find_callbacks(run_id)
        candidates = [(each, key) for each in found if (key := self._key(run_id, each)) is not None]
        if found and not candidates:
            raise BadSignature(_NO_KEY)
        signer = signed_by(call, [key for _, key in candidates], body)
        if signer is None:
            raise BadSignature(_NOT_SIGNED)
        return Speaker(run_id, candidates[signer][0], (call.second, _digest(call.message_id.encode())))

    def _key(self, run_id: UUID, found: FoundCallback) -> bytes | None:
        """By which words of that attempt are signed; None where it has no such key, or this API does not know it."""
        if self._keys is None or found.key_id is None:
            return None
        try:
            return self._keys.derived(found.key_id, signing_purpose(run_id, found.fence))
        except BadConfiguration:  # what is wrong with the file is not for those outside
            return None

    async def say(self, speaker: Speaker, request: CallbackRequest) -> bool:
        """Takes what is said of an attempt; False when the same was said before. Raises Conflict when the attempt has
        the run no more or something else was said."""
        run_id, found, _ = speaker
        faults = faults_of_callback(request)
        if faults:
            raise InvalidFields(faults)
        said = {"status": request.status, "result": request.result, "error": request.error, "retry": request.retry}
        if len(_encode(said)) > RESULT_BYTES_MAX:
            raise BodyTooLarge(RESULT_BYTES_MAX)
        if request.status == RUNNING:
            return await self._tell(speaker, request.progress)
        said_digest = _digest(_encode(said))
        kept = self._sealed(run_id, found, said)
        if await self._callbacks.answer_callback(run_id, found.token_digest, kept, said_digest):
            self._bus.publish(Topic.CALLBACKS)
            return True
        # Somebody else may have said it just now.
        [found] = await self._callbacks.find_callbacks(run_id, found.token_digest) or [found]
        if found.said_digest == said_digest:
            return False
        if found.said_digest is not None:
            raise Conflict("callback-answered", "how this attempt ended was said already, and otherwise")
        _refuse_stale(found)
        raise Conflict("busy", "the run was just changing; say it once more")

    def _sealed(self, run_id: UUID, found: FoundCallback, said: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is kept until the executor fetches it, and for some days after. Whoever was called knows secrets of the
        job and may repeat them, and only the executor can mask those. Where it has no key, there are no secrets."""
        if self._keys is None or found.key_id is None:
            return said
        try:
            sealed = self._keys.seal_for(found.key_id, signing_purpose(run_id, found.fence), _encode(said))
        except BadConfiguration:
            raise SecretsUnavailable("the key file of this API cannot be used now; say it again later") from None
        return said if sealed is None else {SEALED: base64.b64encode(sealed).decode()}

    async def _tell(self, speaker: Speaker, progress: CallbackProgress | None) -> bool:
        run_id, found, word = speaker
        if word is not None and _was_told(found, *word):
            return False
        _refuse_stale(found)
        if progress is not None:
            await self._take_progress(run_id, found, progress)
        if word is not None:  # after it: a call that is made again because this one failed must find its word unheard
            await self._callbacks.mark_told(found.token_digest, *word)
        return True

    async def _take_progress(self, run_id: UUID, found: FoundCallback, progress: CallbackProgress) -> None:
        """By way of the executor, which masks it like all progress; at once where it has no key, and so no secrets."""
        if found.key_id is None:
            said = Progress(*tidy(progress.percent, progress.message), self.now())
            await self._progress.write_progress([Told(run_id, found.fence, said)])
            return
        # Longer than what is shown of it: a value must not be cut before it is masked.
        told = {"percent": progress.percent, "message": progress.message[:_MESSAGE_CHARS_MAX]}
        await self._callbacks.tell_callback(run_id, found.token_digest, self._sealed(run_id, found, told))


def faults_of_callback(request: CallbackRequest) -> list[Fault]:
    faults = []
    if request.status not in STATUSES:
        faults.append(Fault("/status", "unknown-value", "says how the attempt ended", None, STATUSES))
    elif request.error and request.status != FAILED:
        hint = 'say "status": "failed", or leave the error out'
        faults.append(Fault("/error", "field-not-allowed", f"goes with failed, not with {request.status}", hint))
    percent = None if request.progress is None else request.progress.percent
    if percent is not None and not 0 <= percent <= 100:
        faults.append(Fault("/progress/percent", "out-of-range", "must be a number from 0 to 100"))
    if b"\\u0000" in _encode(request):
        faults.append(Fault("/result", "invalid-unicode", "the character NUL cannot be stored"))
    return faults


def _was_told(found: FoundCallback, second: int, message_id: bytes) -> bool:
    """Whether a signed word was heard before. One that is older than the newest is passed over as well: what it says of
    progress is not true any more, and it may be a copy."""
    if found.told_second is None or found.told_second < second:
        return False
    return found.told_second > second or message_id in found.told_ids or len(found.told_ids) >= TOLD_IDS_MAX


def _refuse_stale(found: FoundCallback) -> None:
    if found.said_digest is not None:
        raise Conflict("callback-answered", "how this attempt ended was said already")
    if not found.current:
        message = "the run has ended, is being cancelled, or was given to another attempt; this one's work is in vain"
        raise Conflict("stale-lease", message)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
