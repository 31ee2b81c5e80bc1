"""Attempts that use secrets: what they get, what is kept of what they say, and what becomes of them without."""

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from callback_site import Site
from crew import Executor, the_run
from msgspec import UNSET
from sample_jobs import NAMESPACE, due_job, execute, insert, rows

from hourhand.blobs.folder import FolderBlobs
from hourhand.executor.outputs import Outputs
from hourhand.executor.secrets import AttemptSecrets
from hourhand.executor.settings import ExecutorSettings
from hourhand.model.errors import DatabaseUnavailable
from hourhand.model.ids import scheduled_run_id
from hourhand.model.outcome import Failed, Outcome, Snoozed, Succeeded
from hourhand.model.policy import Policy
from hourhand.model.secrets import Grant, SecretPlace
from hourhand.model.states import Reason, RunState
from hourhand.operations.callbacks import CallbackProgress, CallbackRequest
from hourhand.ports.job_kind import Task
from hourhand.ports.secret_stores import UsedSecret, WantedSecret
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.keyring import Keyring, make_key_file
from hourhand.wiring import Store

VALUE = "correct-horse-battery/staple"


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    make_key_file(tmp_path / "secret.key")
    return Keyring(tmp_path / "secret.key")


async def put(store: Store, keyring: Keyring, name: str = "DB", value: str = VALUE, grant: Any = UNSET) -> None:
    place = SecretPlace(NAMESPACE, name, await store.secrets.version(NAMESPACE, name) + 1)
    assert await store.secrets.put(place, keyring.seal(value.encode(), place), None, grant, "ada")


async def executor(store: Store, keyring: Keyring, work: Callable[[Task], Awaitable[Outcome]]) -> Executor:
    made = Executor(store, work, clock=DatabaseClock())
    made.attempts.secrets = AttemptSecrets(store.secrets, keyring, lambda: made.membership.node_id)
    return await made.join()


async def submit(store: Store, *names: str, **fields: Any) -> UUID:
    """A job of the kind of these tests that refers to secrets; its run."""
    async with store.database.connection() as db:
        now = await db.fetchval("SELECT now()")
    fields = {"payload": {"secrets": list(names)}, "policy": Policy(secrets=names)} | fields
    job = due_job(now, created_at=now, **fields)
    await insert(store, job)
    return scheduled_run_id(job.fires[0], job.job_id)


async def test_an_attempt_gets_the_values_that_its_payload_names(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    await put(store, keyring, "KEY", "a\nb")
    seen = {}

    async def work(task: Task) -> Outcome:
        seen.update(task.secrets)
        assert VALUE not in repr(task)
        return Succeeded()

    run_id = await submit(store, "DB", "KEY")
    await (await executor(store, keyring, work)).drain()

    assert seen == {"DB": VALUE, "KEY": "a\nb"}
    assert (await the_run(store, run_id)).state is RunState.SUCCEEDED
    uses = await store.audit.list_audit(NAMESPACE, None, 10, {"action": "secret.use", "run_id": str(run_id)})
    assert sorted(entry.subject for entry in uses) == ["secret/DB", "secret/KEY"]


async def test_nothing_that_an_attempt_says_tells_a_value(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    outcomes: list[Outcome] = [
        Succeeded({"password": VALUE, VALUE: [f"x{VALUE}y"]}),
        Failed(Reason.EXCEPTION, f"cannot log in with {VALUE}", retryable=False, result={"body": VALUE}),
        Snoozed(3600, f"later, {VALUE}"),
        Succeeded({"status": 200, "body": f"you said {VALUE[:12]}", "truncated": True}),
    ]

    async def work(task: Task) -> Outcome:
        task.log("stdout", f"password={task.secrets['DB']}")
        task.log("stderr", b64encode(f"user:{VALUE}".encode()).decode())
        return outcomes[task.payload["n"]]

    runs = [await submit(store, "DB", payload={"secrets": ["DB"], "n": n}) for n in range(4)]
    crew = await executor(store, keyring, work)
    async with asyncio.timeout(30):
        while len(await rows(store, "runs")) < 3 or not await rows(store, "attempts"):
            await crew.turn()
    await crew.recorder.run_once()

    assert (await the_run(store, runs[0])).result == {"password": "[secret DB]", "[secret DB]": ["x[secret DB]y"]}
    assert (await the_run(store, runs[1])).error == "cannot log in with [secret DB]"
    assert (await the_run(store, runs[3])).result["body"] == "you said [secret DB]"
    lines = [line for row in await rows(store, "log_chunks") for line in row["lines"]]
    assert "password=[secret DB]" in lines
    for table in ("runs", "attempts", "log_chunks", "live_runs", "audit", "secrets", "jobs"):
        for row in await rows(store, table):
            assert VALUE not in str(dict(row))
            assert "Y29ycmVjdC1ob3JzZS1" not in str(dict(row))


async def test_progress_that_is_told_by_callback_does_not_tell_a_value(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    site = Site(store, keys=keyring)
    site.executor.attempts.secrets = AttemptSecrets(store.secrets, keyring, lambda: site.executor.membership.node_id)
    await site.executor.join()
    await insert(store, due_job(site.executor.clock.now(), payload={"secrets": ["DB"]}, policy=Policy(secrets=("DB",))))
    await site.again()
    messages = {
        f"logged in with {VALUE}": "logged in with [secret DB]",
        f"{'x' * 190} {VALUE}": f"{'x' * 190} [secret …",
        "half": "half",
    }
    for message, masked in messages.items():
        assert await site.say(CallbackRequest("running", progress=CallbackProgress(50, message)))
        assert VALUE[:9] not in str([dict(row) for row in await rows(store, "run_callbacks")])
        shown = await site.shown()
        assert shown is not None
        assert (shown.percent, shown.message) == (50, masked)
        assert VALUE[:9] not in str([dict(row) for row in await rows(store, "run_progress")])
    await site.say(CallbackRequest("succeeded", {"said": VALUE}))
    await site.drain()
    assert (await the_run(store, site.run_id)).result == {"said": "[secret DB]"}


async def test_names_of_files_do_not_tell_a_value_and_stay_apart(
    store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    await put(store, keyring)
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.check()

    async def work(task: Task) -> Outcome:
        for name in (f"of {VALUE}.txt", f"of {b64encode(VALUE.encode()).decode()}.txt", "plain.txt"):
            place = tmp_path / "output" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(name)
        assert task.keep_outputs is not None
        await task.keep_outputs(tmp_path / "output")
        return Succeeded()

    run_id = await submit(store, "DB")
    made = Executor(store, work, clock=(clock := DatabaseClock()), outputs=Outputs(blobs, clock, ExecutorSettings()))
    made.attempts.secrets = AttemptSecrets(store.secrets, keyring, lambda: made.membership.node_id)
    await (await made.join()).drain()

    files = await store.run_files.run_files(run_id, 1, 10)
    assert [file.name for file in files] == ["of [secret DB].txt", "of [secret DB].txt 1", "plain.txt"]
    for file in files:
        assert await store.run_files.find_run_file(run_id, 1, file.name) == file


async def test_a_kind_that_breaks_over_a_value_does_not_tell_it(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)

    async def work(task: Task) -> Outcome:
        raise RuntimeError(f"no such user {task.secrets['DB']}")

    run_id = await submit(store, "DB", retry=_no_retry())
    await (await executor(store, keyring, work)).drain()
    run = await the_run(store, run_id)
    assert run.error is not None
    assert "no such user [secret DB]" in run.error


async def test_a_secret_that_is_gone_or_not_granted_any_more_fails_the_run_without_a_retry(
    store: Store, keyring: Keyring
) -> None:
    await put(store, keyring, grant=Grant(jobs=("other",)))
    ran: list[UUID] = []

    async def work(task: Task) -> Outcome:
        ran.append(task.run_id)
        return Succeeded()

    runs = [await submit(store, "DB"), await submit(store, "GONE")]
    await (await executor(store, keyring, work)).drain()

    assert ran == []
    found = [await the_run(store, run_id) for run_id in runs]
    assert [(run.state, run.reason, run.attempt) for run in found] == [(RunState.FAILED, "secret_unavailable", 1)] * 2
    assert [run.error for run in found] == [
        f"there is no secret {name} that this job may use" for name in ("DB", "GONE")
    ]


async def test_an_executor_without_the_key_says_which_one_it_needs(
    store: Store, keyring: Keyring, tmp_path: Path
) -> None:
    await put(store, keyring)

    async def work(task: Task) -> Outcome:
        raise AssertionError

    run_id = await submit(store, "DB", retry=_no_retry())
    await (await executor(store, Keyring(tmp_path / "none.key"), work)).drain()
    run = await the_run(store, run_id)
    assert run.reason == "secret_unavailable"
    assert run.error is not None
    assert keyring.key_ids[0] in run.error


async def test_an_executor_that_has_lost_its_lease_starts_nothing(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)

    async def work(task: Task) -> Outcome:
        raise AssertionError

    await submit(store, "DB")
    crew = await executor(store, keyring, work)
    await crew.receiver.run_once()
    await execute(store, "UPDATE hourhand.nodes SET lease_until = now() - interval '1 second'")
    await crew.attempts.all_ended()
    await crew.recorder.run_once()

    [attempt] = await rows(store, "attempts")
    assert attempt["reason"] == "lease_unsure"
    assert await store.audit.list_audit(NAMESPACE, None, 10, {"action": "secret.use"}) == []


async def test_attempts_that_start_together_ask_once(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    asked: list[int] = []

    class Counting:
        async def use_secrets(self, executor_id: int, wanted: list[WantedSecret]) -> list[UsedSecret]:
            asked.append(len(wanted))
            return list(await store.secrets.use_secrets(executor_id, wanted))

    async def work(task: Task) -> Outcome:
        return Succeeded({"right": task.secrets["DB"] == VALUE})

    for _ in range(20):
        await submit(store, "DB")
    crew = await executor(store, keyring, work)
    crew.attempts.secrets = AttemptSecrets(Counting(), keyring, lambda: crew.membership.node_id)  # type: ignore[arg-type]
    await crew.drain()
    assert sum(asked) == 20
    assert len(asked) <= 3
    assert {row["result"] for row in await rows(store, "runs")} == {'{"right": true}'}


async def test_an_attempt_waits_for_a_database_that_is_away_and_can_be_stopped_meanwhile(
    store: Store, keyring: Keyring
) -> None:
    await put(store, keyring)

    class Away:
        is_away = True

        async def use_secrets(self, executor_id: int, wanted: list[WantedSecret]) -> list[UsedSecret]:
            if self.is_away:
                raise DatabaseUnavailable("away")
            return list(await store.secrets.use_secrets(executor_id, wanted))

    async def work(task: Task) -> Outcome:
        return Succeeded({"right": task.secrets["DB"] == VALUE})

    stays, goes = await submit(store, "DB"), await submit(store, "DB")
    away = Away()
    crew = await executor(store, keyring, work)
    crew.attempts.secrets = AttemptSecrets(away, keyring, lambda: crew.membership.node_id)  # type: ignore[arg-type]
    await crew.receiver.run_once()
    await asyncio.sleep(0.06)
    await execute(store, "UPDATE hourhand.live_runs SET state = 4 WHERE run_id = $1", goes)
    await crew.stop_cancelled()
    away.is_away = False
    await crew.drain()
    assert (await the_run(store, stays)).result == {"right": True}
    assert (await the_run(store, goes)).state is RunState.CANCELLED


async def test_a_run_without_references_asks_for_nothing(store: Store, keyring: Keyring) -> None:
    async def work(task: Task) -> Outcome:
        assert not task.secrets
        return Succeeded()

    await insert(store, due_job())
    crew = await executor(store, keyring, work)
    crew.attempts.secrets = None
    async with store.database.connection() as db:
        now = await db.fetchval("SELECT now()")
    await insert(store, due_job(now, created_at=now))
    async with asyncio.timeout(30):
        while not await rows(store, "runs"):
            await crew.turn()


def _no_retry() -> Any:
    from hourhand.model.retry import RetryPolicy

    return RetryPolicy(max_retries=0)
