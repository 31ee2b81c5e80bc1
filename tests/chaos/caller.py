"""Asks the API over HTTP, any node of it, and writes down each call and what came of it.

`ok` is a 2xx that was received whole; `fail` is a refusal (4xx), or a connection that was never made, so that nothing
was sent; everything else is `info`: nobody knows whether it was carried out. What is asked again then is a further call
with the same words.
"""

import asyncio
import hashlib
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from tests.chaos.cluster import Cluster
from tests.chaos.history import Answer, ClientCall, Op
from tests.chaos.truth import LogFile

CALL_SECONDS_MAX = 10.0
TRIES_MAX = 8


@dataclass(frozen=True, slots=True)
class Answered:
    outcome: Answer
    status: int | None
    body: Any
    """What JSON there was; an empty mapping when there was none."""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


@dataclass(slots=True)
class _Exchange:
    """One request and what came back, as far as anything did."""

    sent: bool = False
    """Something of it went out, at least once: a DELETE is sent anew, by the driver itself, when its connection ends
    without an answer. That nobody takes the second one says nothing of the first."""
    status: int | None = None
    text: bytes = b""
    content_type: str | None = None
    note: str = ""

    @property
    def outcome(self) -> Answer:
        if self.status is None:
            return "fail" if self.note.startswith("ClientConnector") and not self.sent else "info"
        if self.status < 300:
            return "ok"
        return "fail" if 400 <= self.status < 500 else "info"


async def _note_sent(_session: aiohttp.ClientSession, context: Any, _what: object) -> None:
    context.trace_request_ctx.sent = True


class Caller:
    def __init__(self, cluster: Cluster, log: LogFile, seed: int) -> None:
        self._cluster = cluster
        self._log = log
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._http: aiohttp.ClientSession | None = None
        self.counts: dict[tuple[str, str], int] = {}
        """Calls by what was asked and what came of it."""

    async def open(self) -> None:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        self._http = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._cluster.token}"},
            timeout=aiohttp.ClientTimeout(total=CALL_SECONDS_MAX, connect=2.0),
            connector=aiohttp.TCPConnector(limit=0),
            trace_configs=[trace],
        )

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def call(
        self,
        op: Op,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        job_id: str | None = None,
        run_id: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        not_at: str | None = None,
    ) -> Answered:
        """One request to a random API node, other than `not_at`."""
        names = [name for name in self._cluster.api_names if name != not_at]
        name = self._chance.choice(names)
        content = None if body is None else msgspec.json.encode(body)
        sent = dict(headers or {})
        if content is not None:
            sent["Content-Type"] = "application/json"
        if key is not None:
            sent["Idempotency-Key"] = key
        invoked = self._cluster.clock.now()
        done = await self._exchange(method, f"{self._cluster.nodes[name].url}/api/v1{path}", content, sent)
        ended = self._cluster.clock.now()
        answered = Answered(done.outcome, done.status, _json(done.text))
        facts = _facts(op, answered) if answered.ok else _refusal(done, answered.body)
        call = ClientCall(
            op=op,
            outcome=done.outcome,
            invoked_at=invoked,
            ended_at=ended if done.status is not None else None,
            call_id=next(self._numbers),
            node=name,
            status=done.status,
            **{"job_id": job_id, "run_id": run_id, **facts},
            idempotency_key=key,
            body_digest=hashlib.sha256(content or b"").hexdigest()[:16] if op == "submit" else None,
            note=done.note,
        )
        self._log.write(call)
        self.counts[op, done.outcome] = self.counts.get((op, done.outcome), 0) + 1
        return answered

    async def insist(
        self, op: Op, method: str, path: str, body: Mapping[str, Any] | None = None, **more: Any
    ) -> Answered:
        """The same request again until somebody answers it for certain: only for what may be repeated."""
        for tried in range(TRIES_MAX):
            answered = await self.call(op, method, path, body, **more)
            if answered.status is not None and answered.outcome != "info":
                break
            await asyncio.sleep(min(0.1 * 2**tried, 2.0) * self._chance.uniform(0.5, 1.0))
        return answered

    async def _exchange(self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]) -> _Exchange:
        assert self._http is not None, "open() comes first"
        done = _Exchange()
        try:
            async with self._http.request(method, url, data=content, headers=headers, trace_request_ctx=done) as answer:
                done.text = await answer.read()
                done.status, done.content_type = answer.status, answer.content_type
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            done.note = f"{type(fault).__name__}: {fault}"[:200]
        return done


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return {}


def _facts(op: Op, answered: Answered) -> dict[str, Any]:
    """What an ok answer says about the job or run that was asked for."""
    body = answered.body if isinstance(answered.body, dict) else {}
    found: dict[str, Any] = {}
    job = body.get("job", body)
    if op in {"submit", "get_job", "pause", "resume", "update", "delete"}:
        found = {"job_id": job.get("job_id"), "version": job.get("version"), "state": job.get("status")}
        found["too_late"] = tuple(body.get("too_late", ()))
    elif op in {"cancel", "get_run"}:
        found = {"run_id": body.get("run_id"), "job_id": body.get("job_id"), "state": body.get("status")}
    elif op in {"run_now", "retry"}:
        found = {"run_id": body.get("run_id")}
    return {name: value for name, value in found.items() if value is not None}


def _refusal(done: _Exchange, body: Any) -> dict[str, Any]:
    if done.status is None:
        return {}
    return {
        "content_type": done.content_type,
        "problem_type": body.get("type") if isinstance(body, dict) else None,
        "body_excerpt": done.text[:2000].decode(errors="replace"),
    }
