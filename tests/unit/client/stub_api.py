"""A small Hourhand on a real socket: as much of the REST contract as client and command line need.

A run goes one step further each time somebody looks at it: queued, running, final. Names of jobs choose how it
ends: "fails" fails, everything else succeeds. Nothing here judges a schedule.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID, uuid4

from stub_planning import answer_planning

TOKEN = "hh_stub"
DUE = "2030-01-31T09:00:00Z"
FINAL = ("succeeded", "failed", "timed_out", "lost", "cancelled", "skipped", "missed")


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str, errors: list[dict[str, Any]] | None = None) -> None:
        self.status, self.code, self.detail, self.errors = status, code, detail, errors or []


@dataclass
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    params: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Stub:
    url: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=lambda: ["one", "two", "three"])
    nodes: dict[int, dict[str, Any]] = field(default_factory=dict)
    queues: dict[str, dict[str, Any]] = field(default_factory=dict)
    backfills: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    patience_asked: int = 0
    """So many looks at a queued run do not move it on."""
    raw: tuple[int, str, bytes] | None = None
    """When set, every request gets this status, content type and body."""

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def asked(self, method: str, path_end: str) -> Seen:
        return next(s for s in reversed(self.seen) if s.method == method and s.path.endswith(path_end))

    def add_job(self, name: str, **fields: Any) -> dict[str, Any]:
        job = {
            "job_id": str(uuid4()),
            "namespace": "default",
            "name": name,
            "kind": "command",
            "payload": {},
            "schedule": [{"now": True}],
            "zone": "UTC",
            "status": "scheduled",
            "next_due": DUE,
            "labels": {},
            "priority": 5,
            "version": 1,
            "created_at": DUE,
            "created_by": "stub",
            "field_of_the_future": [1, 2],
            **fields,
        }
        if isinstance(job["schedule"], dict):
            job["schedule"] = [job["schedule"]]
        self.jobs[job["job_id"]] = job
        return job

    def add_run(self, job: dict[str, Any], **fields: Any) -> dict[str, Any]:
        run = {
            "run_id": str(uuid4()),
            "job_id": job["job_id"],
            "job_name": job["name"],
            "namespace": "default",
            "status": "queued",
            "cause": "manual",
            "scheduled_for": DUE,
            "attempt": 1,
            "attempts": [],
            **fields,
        }
        self.runs[run["run_id"]] = run
        return run

    # --- answers ------------------------------------------------------------------------------------------

    def answer(self, seen: Seen) -> tuple[int, Any]:
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refused(401, "unauthenticated", "a valid token is needed")
        parts = seen.path.removeprefix("/api/v1/").split("/")
        planned = answer_planning(self, seen, parts)
        if planned is not None:
            return planned
        match seen.method, parts:
            case "GET", ["whoami"]:
                return 200, {"name": "stub", "namespace": None}
            case "GET", ["cluster"]:
                return 200, self._cluster()
            case "POST", ["jobs"]:
                return 202, self._create(seen.json)
            case "POST", ["jobs", "batch"]:
                return 202, self._batch(seen)
            case "GET", ["jobs"]:
                return 200, self._page("jobs", self._matching(seen), seen)
            case _, ["jobs", identity, *rest]:
                return self._job(seen, identity, rest)
            case "GET", ["runs"]:
                return 200, self._page("runs", self._runs(seen, seen.params.get("job_id", [None])[0]), seen)
            case "POST", ["runs", "retry"]:
                chosen = [run for run in self.runs.values() if run["status"] in seen.json.get("status", FINAL)]
                new = [self._repeat(run)["run_id"] for run in chosen]
                return 202, {"retried": len(new), "run_ids": new, "more": True}
            case "POST", ["runs", "cancel"]:
                return 202, {"cancelled": 7, "cancelling": 2, "run_ids": [], "more": False}
            case _, ["runs", identity, *rest]:
                return self._run(seen, identity, rest)
            case _, ["nodes" | "shards" | "queues" | "namespaces" | "labels" | "cluster" | "pauses" as noun, *rest]:
                return 200, self._operate(seen, noun, rest)
        raise Refused(404, "not-found", f"{seen.path} does not exist")

    def _cluster(self) -> dict[str, Any]:
        node = {"node_id": 1, "role": "scheduler", "name": "alpha", "started_at": DUE, "lease_seconds_left": 12.5}
        return {
            "now": DUE,
            "leader": "alpha",
            "nodes": [{**node, "facts": {}}],
            "shards_owned": 1024,
            "live": {"queued": 3, "running": 1},
            "last_hour": {"succeeded": 7},
            "next_due": DUE,
        }

    def _operate(self, seen: Seen, noun: str, rest: list[str]) -> Any:
        match noun, rest:
            case "nodes", []:
                return {"nodes": list(self.nodes.values())}
            case "nodes", [identity, *verb]:
                if int(identity) not in self.nodes:
                    raise Refused(404, "not-found", f"node {identity} does not exist")
                return self._order(self.nodes[int(identity)], verb)
            case "shards", []:
                shards = [{"shard": 0, "node_id": 1, "name": "alpha", "epoch": 3}] if "each" in seen.params else []
                owner = {"node_id": 1, "name": "alpha", "count": 1024, "ranges": ["0-1023"], "epoch": 3}
                return {"count": 1024, "epoch": 3, "owners": [owner], "shards": shards}
            case "queues", []:
                return {"queues": list(self.queues.values())}
            case "queues", [name, *verb]:
                queue = self.queues.setdefault(name, {"name": name, "waiting": 2, "running": 1})
                if verb == ["pause"]:
                    queue.update(paused=True, paused_at=DUE, paused_by="stub", pause_reason=seen.json.get("reason"))
                elif verb == ["resume"]:
                    queue.update(paused=False, pause_reason=None)
                elif seen.method == "PUT":
                    queue.update(seen.json)
                return queue
            case "labels" | "namespaces" | "cluster", [*name, "pause"]:
                until = (seen.json if seen.body else {}).get("until")
                return {"scope": noun, "name": "".join(name), "until": until, "jobs": 4, "too_late": []}
            case "labels" | "namespaces" | "cluster", [*name, "resume"]:
                return {"scope": noun, "name": "".join(name), "was_paused": True}
            case "pauses", []:
                pause = {"scope": "label", "name": "team=x", "paused_at": DUE, "paused_by": "stub", "reason": "holiday"}
                return {"pauses": [pause], "next_cursor": None}
            case "namespaces", [name]:
                return {"name": name, "weight": 1, "running": 0, **(seen.json if seen.method == "PUT" else {})}
        raise Refused(404, "not-found", f"{seen.path} does not exist")

    def _order(self, node: dict[str, Any], verb: list[str]) -> dict[str, Any]:
        match verb:
            case ["cordon"]:
                node.update(orders="cordon", state="cordoned")
            case ["drain"]:
                node.update(orders="drain", state="draining")
            case ["resume"]:
                node.update(orders="work", state="working")
            case ["mark-lost"]:
                node.update(state="dead", ended_at=DUE)
            case _ if node["state"] == "draining":
                answer = dict(node)
                node["state"] = "drained"
                return answer
        return node

    def add_node(self, node_id: int, name: str, **fields: Any) -> dict[str, Any]:
        self.nodes[node_id] = {
            "node_id": node_id,
            "role": "executor",
            "name": name,
            "state": "working",
            "orders": "work",
            "started_at": DUE,
            "ended_at": None,
            "heard_seconds_ago": 2.51,
            "lease_seconds_left": 12.5,
            "slots_used": 3,
            "slots_total": 96,
            "facts": {"version": "0.1.0"},
            **fields,
        }
        return self.nodes[node_id]

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("schedule", {}) == {"cron": "bad"}:
            errors = [
                {"pointer": "/schedule/cron", "code": "invalid-cron", "message": "five fields are needed"},
                {"pointer": "/zone", "code": "unknown-timezone", "message": "no such zone", "hint": "Europe/Berlin?"},
            ]
            raise Refused(422, "invalid-fields", "2 fields are wrong", errors)
        job = self.add_job(**body)
        if job["schedule"] == [{"now": True}]:
            self.add_run(job)
        return job

    def _batch(self, seen: Seen) -> dict[str, Any]:
        lines = seen.headers["content-type"] == "application/x-ndjson"
        bodies = [json.loads(line) for line in seen.body.splitlines()] if lines else seen.json
        ids = [self.add_job(**body)["job_id"] for body in bodies]
        return {"job_ids": ids, "count": len(ids)}

    def _matching(self, seen: Seen) -> list[dict[str, Any]]:
        jobs = list(self.jobs.values())
        for name in ("name", "status"):
            if name in seen.params:
                jobs = [job for job in jobs if job[name] == seen.params[name][0]]
        return jobs

    def _runs(self, seen: Seen, job_id: str | None) -> list[dict[str, Any]]:
        words = ",".join(seen.params.get("status", [])).split(",")
        return [
            run
            for run in self.runs.values()
            if job_id in (None, run["job_id"]) and (words == [""] or run["status"] in words)
        ]

    def _page(self, word: str, items: list[Any], seen: Seen) -> dict[str, Any]:
        start, limit = int(seen.params.get("cursor", ["0"])[0]), int(seen.params.get("limit", ["50"])[0])
        end = start + limit
        return {word: items[start:end], "next_cursor": str(end) if end < len(items) else None}

    def _job(self, seen: Seen, identity: str, rest: list[str]) -> tuple[int, Any]:
        job = self.jobs.get(identity)
        if job is None:
            raise Refused(404, "not-found", f"job {identity} does not exist")
        match seen.method, rest:
            case "GET", []:
                return 200, job
            case "PATCH", []:
                if seen.headers.get("if-match", f'"{job["version"]}"') != f'"{job["version"]}"':
                    raise Refused(412, "version-mismatch", f"the job has version {job['version']} by now")
                job.update(seen.json, version=job["version"] + 1)
                return 200, {"job": job, "too_late": [str(uuid4())]}
            case "DELETE", []:
                job["status"] = "cancelled"
            case "POST", ["pause"]:
                job.update(status="paused", pause_reason=(seen.json if seen.body else {}).get("reason"))
            case "POST", ["resume"]:
                if job["status"] == "cancelled":
                    raise Refused(409, "job-final", "the job is cancelled")
                job["status"] = "scheduled"
            case "POST", ["run"]:
                return 202, {"run_id": self.add_run(job, note=seen.json.get("note"))["run_id"]}
            case "GET", ["status"]:
                latest = next((run for run in self.runs.values() if run["job_id"] == identity), None)
                return 200, {"job_id": identity, "status": job["status"], "next_due": DUE, "latest_run": latest}
            case "GET", ["runs"]:
                return 200, self._page("runs", self._runs(seen, identity), seen)
            case "GET", ["history"]:
                entry = {"due_at": DUE, "last_due": DUE, "status": "missed", "why": "no scheduler was at work"}
                counted = {**entry, "count": 240} if "compact" in seen.params else entry
                return 200, {"entries": [counted], "from": DUE, "to": DUE, "next_cursor": None}
            case "GET", ["next"]:
                return 200, {"times": [DUE] * int(seen.params["count"][0])}
            case "GET", ["versions"]:
                version = {"version": 1, "changed_at": DUE, "changed_by": "stub", "definition": {"name": job["name"]}}
                return 200, {"versions": [version]}
        return 200, {"job": job, "too_late": []}

    def _run(self, seen: Seen, identity: str, rest: list[str]) -> tuple[int, Any]:
        run = self.runs.get(identity)
        if run is None:
            raise Refused(404, "not-found", f"run {identity} does not exist")
        if rest == ["logs"]:
            return 200, self._logs(seen, run)
        if rest == ["retry"]:
            if run["status"] not in FINAL:
                raise Refused(409, "run-not-final", f"the run is {run['status']}")
            return 202, {"run_id": self._repeat(run)["run_id"]}
        if rest == ["explain"]:
            return 200, self._explanation(run)
        if rest == ["cancel"]:
            if run["status"] in FINAL:
                raise Refused(409, "run-already-final", f"the run is {run['status']}")
            run["status"] = "cancelling"
            return 202, run
        answer = dict(run)
        self._advance(run)
        return 200, answer

    def _repeat(self, run: dict[str, Any]) -> dict[str, Any]:
        return self.add_run(self.jobs[run["job_id"]], retry_of=run["run_id"])

    def _explanation(self, run: dict[str, Any]) -> dict[str, Any]:
        gates = [
            {"gate": "due", "passed": True, "detail": "was due"},
            {"gate": "executor", "passed": False, "detail": "needs python:x: no live executor offers it"},
        ]
        summary = "waits for an executor that offers python:x"
        keys = {"run_id": run["run_id"], "job_id": run["job_id"], "job_name": run["job_name"], "status": run["status"]}
        return {**keys, "summary": summary, "advice": "start one", "gates": gates, "expires_at": DUE}

    def _logs(self, seen: Seen, run: dict[str, Any]) -> dict[str, Any]:
        """One line per request, as if each were written just now."""
        start = int(seen.params.get("after", ["1:0"])[0].partition(":")[2])
        lines = [
            {"attempt": 1, "number": start + 1, "at": DUE, "stream": "stdout", "text": text}
            for text in self.lines[start : start + 1]
        ]
        return {"lines": lines, "next": f"1:{start + len(lines)}", "ended": start + 1 >= len(self.lines)}

    def _advance(self, run: dict[str, Any]) -> None:
        if self.patience_asked and run["status"] == "queued":
            self.patience_asked -= 1
            return
        match run["status"]:
            case "queued":
                run["status"] = "running"
            case "cancelling":
                run["status"] = "cancelled"
            case "running" if run["job_name"] == "fails":
                run.update(status="failed", reason="exit_code", error="exit code 3\nand more", ended_at=DUE)
            case "running":
                run.update(status="succeeded", result={"answer": 42}, duration_ms=1234, ended_at=DUE)


@contextmanager
def serving() -> Iterator[Stub]:
    stub = Stub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(stub))
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length", 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, parts.path, parse_qs(parts.query), headers, self.rfile.read(length))
            stub.seen.append(seen)
            if stub.raw is not None:
                self.reply(*stub.raw)
                return
            try:
                status, answer = stub.answer(seen)
            except Refused as no:
                kind, title = f"urn:hourhand:problem:{no.code}", no.code
                body = {"type": kind, "title": title, "status": no.status, "detail": no.detail, "errors": no.errors}
                self.reply(no.status, "application/problem+json", json.dumps(body).encode())
            else:
                self.reply(status, "application/json", json.dumps(answer).encode())

        def reply(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


def is_uuid(text: str) -> bool:
    try:
        return bool(UUID(text))
    except ValueError:
        return False
