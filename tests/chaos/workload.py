"""What clients do to the cluster while it is being broken: real HTTP calls, jobs of every sort, all of it written down.

Each sort of work (W1 to W8 and the readers) arrives by chance at a rate of its own. Nothing here judges: what was asked
goes to the log of calls and the list of specifications, and the checker compares. What the API of this version does
not offer yet is left out and named in `missing`.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.chaos.caller import Caller
from tests.chaos.cluster import Cluster
from tests.chaos.database_recording import KEY_LABEL
from tests.chaos.history import JobSpec, RetrySpec
from tests.chaos.truth import LogFile

UNDER_WAY_MAX = 400
"""Pieces of work at once; what comes on top is left out, so that an outage does not become a storm."""
FAR_FUTURE: Final = 4102444800.0  # the year 2100: jobs that only ever run when somebody asks
KEYS = 12
"""Concurrency keys in use."""

CAPABILITIES: Final = {
    "idempotency key": ("answer", "Idempotency-Key"),
    "max_concurrency": ("field", "max_concurrency"),
    "concurrency_key": ("field", "concurrency_key"),
    "overlap": ("field", "overlap"),
    "queue_timeout": ("field", "queue_timeout"),
    "deadline": ("field", "deadline"),
    "at_most_once": ("field", "at_most_once"),
    "on_disconnect": ("field", "on_disconnect"),
    "retry of a finished run": ("path", "/api/v1/runs/{run_id}/retry"),
}
"""What newer versions of the API offer, and where their OpenAPI document says so. A header shows by its answer only."""


SHARES: Final = {
    "quick": 0.60, "ahead": 0.08, "long": 0.03, "failing": 0.03, "limited": 0.06, "command": 0.02, "sync": 0.02,
    "run_now": 0.02, "cancel_running": 0.04, "cancel_at_the_finish": 0.03, "cancel_waiting": 0.03, "change": 0.02,
    "read": 0.02,
}  # fmt: skip
"""How much of the rate each sort of work gets. The quick ones are most of it, as in life."""


class Workload:
    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        seed: int,
        rate: float = 100.0,
        long_seconds: float = 20.0,
        shares: Mapping[str, float] = SHARES,
        recurring: int | None = None,
    ) -> None:
        """`rate`: pieces of work per second, all sorts together; `long_seconds`: how long long jobs are at most;
        `recurring`: so many jobs of every second instead of the usual mixture."""
        self._shares = shares
        self._recurring = recurring
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._seed = seed
        self._rate = rate
        self._long_seconds = long_seconds
        self._specs = LogFile(folder / "specs.jsonl")
        self.caller = Caller(cluster, LogFile(folder / "client.jsonl"), seed + 2)
        self.offered: set[str] = set()
        self._numbers = 0
        self._under_way: set[asyncio.Task[None]] = set()
        self._drivers: list[asyncio.Task[None]] = []
        self._templates: dict[str, str] = {}
        self._changing: list[str] = []
        self._versions: dict[str, int] = {}
        self._final_runs: list[str] = []
        self.left_out = 0
        self.broken: list[str] = []
        """What went wrong in the workload itself: an answer that nobody could read."""

    @property
    def missing(self) -> list[str]:
        return [name for name in CAPABILITIES if name not in self.offered]

    # --- from start to end --------------------------------------------------------------------------------

    async def start(self) -> None:
        await self.caller.open()
        await self._learn_capabilities()
        await self._make_recurring()
        await self._make_templates()
        sorts: dict[str, Callable[[], Awaitable[None]]] = {
            "quick": self._submit_quick,
            "ahead": self._submit_ahead,
            "long": self._submit_long,
            "failing": self._submit_failing,
            "limited": self._submit_limited,
            "command": self._submit_command,
            "sync": self._submit_sync,
            "run_now": self._run_now,
            "cancel_running": self._cancel_running,
            "cancel_at_the_finish": self._cancel_at_the_finish,
            "cancel_waiting": self._cancel_waiting,
            "change": self._change_something,
            "read": self._read,
        }
        self._drivers = [
            asyncio.create_task(self._drive(share * self._rate, sorts[name])) for name, share in self._shares.items()
        ]

    async def stop(self) -> None:
        """Nothing new; what is under way may end. Recurring jobs go on."""
        for driver in self._drivers:
            driver.cancel()
        await asyncio.gather(*self._drivers, return_exceptions=True)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=60)
        await self.caller.close()

    async def _drive(self, per_second: float, work: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._chance.expovariate(per_second), loop.time() - 1.0)
            await asyncio.sleep(due - loop.time())
            if len(self._under_way) >= UNDER_WAY_MAX:
                self.left_out += 1
                continue
            task = asyncio.ensure_future(work())
            self._under_way.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self.broken.append(f"{type(fault).__name__}: {fault}")

    async def _learn_capabilities(self) -> None:
        from aiohttp import ClientSession

        node = self._cluster.nodes[self._cluster.api_names[0]]
        headers = {"Authorization": f"Bearer {self._cluster.token}"}
        async with ClientSession(headers=headers) as http, http.get(f"{node.url}/openapi.json") as answer:
            document = await answer.json()
        fields = document["components"]["schemas"]["JobRequest"]["properties"]
        where: dict[str, Callable[[str], bool]] = {
            "field": lambda name: name in fields,
            "answer": lambda name: False,
            "path": lambda name: name in document["paths"],
        }
        self.offered = {name for name, (place, word) in CAPABILITIES.items() if where[place](word)}
        headers = {"Idempotency-Key": f"chaos-{self._seed}-0"}
        asked = [
            await self.caller.call("submit", "POST", "/jobs", self._job("quick", "chaos.quick"), headers=headers)
            for _ in range(2)
        ]
        if asked[0].ok and asked[1].ok and asked[0].body["job_id"] == asked[1].body["job_id"]:
            self.offered.add("idempotency key")

    # --- submitting ---------------------------------------------------------------------------------------

    async def _submit(self, body: Mapping[str, Any], **spec: Any) -> str | None:
        """Submits with an Idempotency-Key and insists; without keys there is one try, and an `info` stays one."""
        self._numbers += 1
        key = f"chaos-{self._seed}-{self._numbers}"
        body = {**body, "labels": {KEY_LABEL: key}}
        if "idempotency key" in self.offered:
            answered = await self.caller.insist("submit", "POST", "/jobs", body, key=key)
        else:
            answered = await self.caller.call("submit", "POST", "/jobs", body)
        if not answered.ok:
            return None
        if "idempotency key" in self.offered and self._chance.random() < 0.01:
            await self.caller.call("submit", "POST", "/jobs", {**body, "name": "other"}, key=key)  # must be refused
        job_id = str(answered.body["job_id"])
        if "job_limit" in spec:
            spec["gates"] = {f"job:{job_id}": spec.pop("job_limit")}
        self._specs.write(JobSpec(job_id=job_id, **spec))
        if self._chance.random() < 0.05:
            await self.caller.call("get_job", "GET", f"/jobs/{job_id}", job_id=job_id)
        return job_id

    def _job(self, name: str, handler: str, **more: Any) -> dict[str, Any]:
        arguments = more.pop("arguments", {})
        return {"name": name, "payload": {"handler": handler, **arguments}, **more}

    async def _submit_quick(self) -> None:
        await self._submit(self._job("quick", "chaos.quick"))

    async def _submit_ahead(self) -> None:
        at = round(self._cluster.clock.now() + self._chance.uniform(0.2, 5.0), 3)
        await self._submit(self._job("ahead", "chaos.quick", schedule={"at": _instant(at)}), schedule="at", at=at)

    async def _submit_long(self) -> None:
        seconds = self._chance.uniform(self._long_seconds / 4, self._long_seconds)
        handler = self._chance.choice(("chaos.long", "chaos.long", "chaos.sync"))
        body = self._job("long", handler, arguments={"seconds": seconds, "beat": 0.5})
        spec: dict[str, Any] = {}
        # One in ten must not be begun twice, one in ten must not outlive its executor's lease.
        choice = self._chance.random()
        if choice < 0.1 and "at_most_once" in self.offered:
            body["at_most_once"] = spec["at_most_once"] = True
        elif choice < 0.2 and "on_disconnect" in self.offered:
            body["on_disconnect"] = spec["on_disconnect"] = "kill"
        await self._submit(body, **spec)

    async def _submit_failing(self) -> None:
        failures = self._chance.choice((1, 2, 99))
        delays = self._chance.choice(((1.0, 2.0), (0.5, 1.5)))
        body = self._job("failing", "chaos.failing", arguments={"failures": failures}, max_retries=2)
        body["retry"] = {"delays": [_length(delay) for delay in delays]}
        spec: dict[str, Any] = {"max_retries": 2, "retry": RetrySpec(delays_seconds=delays)}
        if self._chance.random() < 0.2 and "deadline" in self.offered:  # over before the last try
            body["deadline"], spec["deadline_seconds"] = _length(1.75), 1.75
        await self._submit(body, **spec)

    async def _submit_sync(self) -> None:
        await self._submit(
            self._job("sync", "chaos.sync", arguments={"seconds": self._chance.uniform(0, 1), "beat": 0.25})
        )

    async def _submit_command(self) -> None:
        """Plain ones end by themselves; stubborn ones and every fourth tree are ended by their timeout."""
        mode = self._chance.choice(("plain", "tree", "tree", "stubborn"))
        seconds = self._chance.uniform(0.2, 1.5)
        timeout = None
        if mode == "stubborn" or self._chance.random() < 0.25:
            seconds, timeout = 30.0, 1.5
        body = self._command(mode, seconds)
        spec: dict[str, Any] = {"max_retries": 0}
        if timeout is not None:
            body["timeout"] = _length(timeout)
            spec["timeout_seconds"] = timeout
        await self._submit({**body, "max_retries": 0}, **spec)

    def _command(self, mode: str, seconds: float) -> dict[str, Any]:
        argv = [*self._cluster.witness_command, mode, f"{seconds:.3f}", "0.25"]
        return {"name": mode, "kind": "command", "payload": {"argv": argv}}

    async def _submit_limited(self) -> None:
        """Keys with limits from 1 to 3: the number of a key decides its limit, so that all its jobs agree."""
        number = self._chance.randrange(KEYS)
        limit = 1 + number % 3
        body = self._job("limited", "chaos.long", arguments={"seconds": self._chance.uniform(0.05, 0.6), "beat": 0.2})
        if "concurrency_key" not in self.offered:
            await self._submit(body)
            return
        key = f"customer-{number}"
        body |= {"concurrency_key": key, "concurrency_limit": limit}
        spec: dict[str, Any] = {"gates": {f"key:{key}": limit}}
        if self._chance.random() < 0.1 and "queue_timeout" in self.offered:
            body["queue_timeout"], spec["queue_timeout_seconds"] = _length(0.5), 0.5
        await self._submit(body, **spec)

    # --- recurring jobs -----------------------------------------------------------------------------------

    async def _make_recurring(self) -> None:
        if self._recurring is not None:
            for _ in range(self._recurring):
                await self._make_every(1.0)
            return
        for number in range(20):
            await self._make_every(1.0 if number % 2 else 2.0, changing=number >= 10)
        for seconds in (1, 2, 3, 5, 10):
            expression = f"*/{seconds} * * * * *"
            body = self._job("cron", "chaos.quick", schedule={"cron": expression})
            await self._submit(body, schedule="cron", cron=expression)
        for mode in ("all", "none"):
            await self._make_every(1.0, catchup=mode)
        # Long enough to meet the next one now and then, short enough never to fall behind for good.
        if "overlap" in self.offered:
            for policy in ("skip", "queue_one", "queue_all", "cancel_running", "allow"):
                await self._make_every(2.0, overlap=policy, seconds=(0.2, 3.0))
        if "max_concurrency" in self.offered:
            for limit in (1, 2):
                overlap = "allow" if "overlap" in self.offered else None
                await self._make_every(2.0, overlap=overlap, limit=limit, seconds=(0.2, 3.0 * limit))

    async def _make_every(
        self,
        every: float,
        *,
        changing: bool = False,
        overlap: str | None = None,
        limit: int | None = None,
        seconds: tuple[float, float] | None = None,
        catchup: str | None = None,
    ) -> None:
        """`seconds`: the shortest and the longest that a run of it takes; nothing when it is not given."""
        anchor = math.ceil(self._cluster.clock.now()) + 1 + self._chance.randrange(1000) / 1000
        body = self._job(
            "every",
            "chaos.quick" if seconds is None else "chaos.long",
            arguments={} if seconds is None else {"seconds": seconds[0], "seconds_max": seconds[1], "beat": 0.4},
            schedule={"every": f"{every:g}s"},
            start_at=_instant(anchor),
        )
        spec: dict[str, Any] = {"schedule": "every", "every_seconds": every, "anchor": anchor}
        if overlap is not None:
            body["overlap"] = spec["overlap"] = overlap
        if catchup is not None:
            body["catchup"] = {"mode": catchup}
            spec["catchup"] = catchup
        if limit is not None:
            body["max_concurrency"] = limit
            spec["job_limit"] = limit
        job_id = await self._submit(body, **spec)
        if job_id is not None and changing:
            self._changing.append(job_id)
            self._versions[job_id] = 1

    async def _change_something(self) -> None:
        """One change of one recurring job that nobody else is changing just now."""
        if not self._changing:
            await self._make_every(1.0, changing=True)
            return
        job_id = self._changing.pop(self._chance.randrange(len(self._changing)))
        change = self._chance.choice((self._pause_and_resume, self._pause_and_resume, self._update, self._delete))
        if await change(job_id):
            self._changing.append(job_id)

    async def _pause_and_resume(self, job_id: str) -> bool:
        paused = await self.caller.insist("pause", "POST", f"/jobs/{job_id}/pause", {}, job_id=job_id)
        if not paused.ok:
            return False
        await asyncio.sleep(self._chance.uniform(0.5, 5.0))
        return (await self.caller.insist("resume", "POST", f"/jobs/{job_id}/resume", job_id=job_id)).ok

    async def _update(self, job_id: str) -> bool:
        """Another rhythm. Asked for one version, so that asking again after `info` cannot change it twice."""
        version = self._versions[job_id]
        every = self._chance.choice((1.0, 2.0, 3.0))
        anchor = math.ceil(self._cluster.clock.now()) + 2 + self._chance.randrange(1000) / 1000
        spec = JobSpec(job_id=job_id, version=version + 1, schedule="every", every_seconds=every, anchor=anchor)
        self._specs.write(spec)
        body = {"schedule": {"every": f"{every:g}s"}, "start_at": _instant(anchor)}
        headers = {"If-Match": f'"{version}"'}
        answered = await self.caller.insist("update", "PATCH", f"/jobs/{job_id}", body, job_id=job_id, headers=headers)
        self._versions[job_id] = version + 1
        return answered.ok or answered.status == 412  # the first try got through after all

    async def _delete(self, job_id: str) -> bool:
        await self.caller.insist("delete", "DELETE", f"/jobs/{job_id}", job_id=job_id)
        await self._make_every(1.0, changing=True)
        return False

    # --- cancelling ---------------------------------------------------------------------------------------

    async def _make_templates(self) -> None:
        """Jobs that do not fall due in our time but are run by hand: the answer names the run to cancel."""
        bodies = {
            "long": self._job("long", "chaos.long", arguments={"seconds": 8.0, "beat": 0.2}),
            "second": self._job("second", "chaos.long", arguments={"seconds": 1.0, "beat": 0.2}),
            "quick": self._job("quick", "chaos.quick"),
            "sync": self._job("sync", "chaos.sync", arguments={"seconds": 8.0, "beat": 0.2}),
            "failing": {
                **self._job("failing", "chaos.failing", max_retries=3),
                "retry": {"delays": ["3s"]},
            },
            "tree": self._command("tree", 8.0),
            "stubborn": self._command("stubborn", 60.0),
        }
        for name, body in bodies.items():
            spec: dict[str, Any] = {"schedule": "at", "at": FAR_FUTURE, "max_retries": 3}
            if name == "failing":
                spec["retry"] = RetrySpec(delays_seconds=(3.0,))
            job_id = await self._submit({**body, "schedule": {"at": _instant(FAR_FUTURE)}}, **spec)
            assert job_id is not None, "nothing is broken yet"
            self._templates[name] = job_id

    async def _start_by_hand(self, template: str) -> str | None:
        job_id = self._templates[template]
        answered = await self.caller.call("run_now", "POST", f"/jobs/{job_id}/run", {}, job_id=job_id)
        return str(answered.body["run_id"]) if answered.ok else None

    async def _cancel(self, run_id: str) -> None:
        await self.caller.insist("cancel", "POST", f"/runs/{run_id}/cancel", run_id=run_id)

    async def _run_now(self) -> None:
        if (run_id := await self._start_by_hand("quick")) is not None:
            self._final_runs = [*self._final_runs[-20:], run_id]

    async def _cancel_running(self) -> None:
        template = self._chance.choice(("long", "long", "long", "sync", "tree", "tree", "stubborn"))
        if (run_id := await self._start_by_hand(template)) is not None:
            await asyncio.sleep(self._chance.choice((0.0, self._chance.uniform(0.0, 3.0))))
            await self._cancel(run_id)

    async def _cancel_at_the_finish(self) -> None:
        if (run_id := await self._start_by_hand("second")) is not None:
            await asyncio.sleep(max(0.0, self._chance.gauss(1.0, 0.02)))
            await self._cancel(run_id)

    async def _cancel_waiting(self) -> None:
        """While it waits for its retry, or for its time."""
        if self._chance.random() < 0.5:
            if (run_id := await self._start_by_hand("failing")) is not None:
                await asyncio.sleep(self._chance.uniform(0.5, 2.5))
                await self._cancel(run_id)
            return
        at = round(self._cluster.clock.now() + 2.0, 3)
        body = self._job("withdrawn", "chaos.quick", schedule={"at": _instant(at)})
        if (job_id := await self._submit(body, schedule="at", at=at)) is not None:
            await asyncio.sleep(self._chance.choice((0.0, 1.0, self._chance.gauss(2.0, 0.05))))
            await self.caller.insist("delete", "DELETE", f"/jobs/{job_id}", job_id=job_id)

    # --- reading ------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        path = self._chance.choice(("/jobs?limit=20", "/runs?limit=50", "/runs?status=running", "/cluster"))
        await self.caller.call("list", "GET", path)
        if self._final_runs:
            run_id = self._chance.choice(self._final_runs)
            await self.caller.call("get_run", "GET", f"/runs/{run_id}", run_id=run_id)
            if "retry of a finished run" in self.offered and self._chance.random() < 0.3:
                job_id = self._templates["quick"]
                await self.caller.call("retry", "POST", f"/runs/{run_id}/retry", {}, run_id=run_id, job_id=job_id)


def _length(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _instant(at: float) -> str:
    return datetime.fromtimestamp(round(at, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
