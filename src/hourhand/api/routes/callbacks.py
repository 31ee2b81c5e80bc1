"""/api/v1/runs/{run_id}/callback: where work that an HTTP job began says how it ended."""

import re
from typing import Final
from uuid import UUID

import msgspec

from hourhand.api.answers import Answer, json_answer
from hourhand.api.decoding import read_body
from hourhand.api.endpoints import Call, Endpoint
from hourhand.api.faults import all_faults
from hourhand.api.parameters import Parameter
from hourhand.model.callback import CALLBACK_TOKEN_PREFIX
from hourhand.model.errors import Unauthenticated
from hourhand.model.webhooks import HEADERS, ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, read_signed
from hourhand.operations.callbacks import RESULT_BYTES_MAX, CallbackOperations, CallbackRequest, faults_of_callback

_TOKEN: Final = re.compile(rf"{CALLBACK_TOKEN_PREFIX}[\w-]{{20,100}}", re.ASCII)
"""Anything else is none, which can be said without asking the database."""
_DESCRIPTION: Final = (
    "Needs the token that came with the call, as `Authorization: Bearer`; no other token will do. Or it is signed by "
    "the secret that came with the call, by the scheme of Standard Webhooks. The same said twice changes nothing."
)
_SIGNED: Final = (
    Parameter(ID_HEADER, "Of a signed callback: its id, which stays the same when it is sent again."),
    Parameter(TIMESTAMP_HEADER, "Of a signed callback: when it was signed, in seconds since 1970."),
    Parameter(SIGNATURE_HEADER, "Of a signed callback: `v1,` and HMAC-SHA256 of `id.timestamp.body` in base64."),
)


class CallbackView(msgspec.Struct):
    run_id: UUID
    changed: bool
    """False when the same was said before."""


class CallbackRoutes:
    def __init__(self, callbacks: CallbackOperations) -> None:
        self._callbacks = callbacks

    def endpoints(self) -> list[Endpoint]:
        return [
            Endpoint(
                "POST",
                "/api/v1/runs/{run_id}/callback",
                self.callback,
                "runs",
                "Say how the work that a run began has ended",
                CallbackView,
                body=CallbackRequest,
                body_bytes_max=RESULT_BYTES_MAX + 16 * 1024,
                public=True,
                description=_DESCRIPTION,
                headers=_SIGNED,
            )
        ]

    async def callback(self, call: Call) -> Answer:
        run_id = call.id("run_id")
        signed = {name: call.header(name.encode()) for name in HEADERS}
        if any(value is not None for value in signed.values()):
            claimed = read_signed(signed, self._callbacks.now().timestamp())
            speaker = await self._callbacks.speaker_by_signature(run_id, claimed, call.body)
        else:
            token = _token(call)
            speaker = await self._callbacks.speaker_by_token(run_id, token)
        request, form = read_body(call.body, CallbackRequest)
        if form:
            raise all_faults(form, faults_of_callback(request))
        return json_answer(CallbackView(run_id, await self._callbacks.say(speaker, request)))


def _token(call: Call) -> str:
    scheme, _, token = (call.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token.strip()):
        raise Unauthenticated("a callback needs its token: send 'Authorization: Bearer <token>', or sign it")
    return token.strip()
