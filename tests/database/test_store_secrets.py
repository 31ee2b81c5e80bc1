from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec import UNSET
from sample_jobs import NAMESPACE, START, at, claim, due_job, execute, insert, rows, succeeded

from hourhand.model.errors import BadConfiguration
from hourhand.model.policy import Policy
from hourhand.model.run import Claim
from hourhand.model.secrets import EVERY_JOB, Grant, SecretPlace
from hourhand.operations.secret_keys import forget_old, refuse_without_keys, rotate
from hourhand.ports.secret_stores import UsedSecret, WantedSecret
from hourhand.runtime.keyring import Keyring, make_key_file
from hourhand.store.partitions import Partitions
from hourhand.wiring import Store

VALUE = b"correct horse battery staple"


@pytest.fixture
def keyring(tmp_path: Path) -> Keyring:
    make_key_file(tmp_path / "secret.key")
    return Keyring(tmp_path / "secret.key")


async def put(
    store: Store, keyring: Keyring, name: str = "DB", value: bytes = VALUE, grant: Grant = EVERY_JOB, namespace: int = 1
) -> None:
    place = SecretPlace(namespace, name, await store.secrets.version(namespace, name) + 1)
    assert await store.secrets.put(place, keyring.seal(value, place), None, grant, "ada")


async def held(store: Store, *secrets: str, name: str = "job", **fields: object) -> tuple[int, Claim]:
    """A run in an executor's hands whose job refers to these secrets."""
    node_id = await store.nodes.register_node("executor", "e1", 60, {})
    await insert(store, due_job(START, name=name, policy=Policy(secrets=secrets), **fields))
    [claimed] = await claim(store, node_id)
    return node_id, claimed


async def use(store: Store, node_id: int, claimed: Claim, *names: str) -> list[UsedSecret]:
    wanted = [WantedSecret(claimed.run_id, claimed.fence, name) for name in names]
    return list(await store.secrets.use_secrets(node_id, wanted))


async def test_a_claim_says_which_secrets_its_job_refers_to(store: Store) -> None:
    _, claimed = await held(store, "A", "B")
    assert claimed.secrets == ("A", "B")


async def test_the_holder_of_a_run_gets_the_value_and_the_audit_says_so(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")

    [used] = await use(store, node_id, claimed, "DB")

    assert used.value is not None
    assert keyring.open(used.value, used.place) == VALUE
    entry = (await store.audit.list_audit(NAMESPACE, None, 10, {"action": "secret.use"}))[0]
    assert (entry.actor, entry.subject) == ("executor e1", "secret/DB")
    assert entry.details == {
        "version": 1, "run_id": str(claimed.run_id), "job_id": str(claimed.job_id), "attempt": 1,
        "fence": claimed.fence,
    }  # fmt: skip
    row = await store.secrets.get(NAMESPACE, "DB")
    assert row is not None
    assert (row.last_used_run, row.jobs) == (claimed.run_id, 1)


async def test_nobody_else_gets_a_value(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")
    other = await store.nodes.register_node("executor", "e2", 60, {})

    assert await use(store, other, claimed, "DB") == []
    stale = [WantedSecret(claimed.run_id, claimed.fence - 1, "DB"), WantedSecret(uuid4(), claimed.fence, "DB")]
    assert await store.secrets.use_secrets(node_id, stale) == []
    assert await store.audit.list_audit(NAMESPACE, None, 10, {"action": "secret.use"}) == []


async def test_an_executor_without_a_lease_gets_no_value(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")
    await execute(store, "UPDATE hourhand.nodes SET lease_until = now() - interval '1 second'")
    assert await use(store, node_id, claimed, "DB") == []
    await execute(store, "UPDATE hourhand.nodes SET lease_until = now() + interval '1 minute', ended_at = now()")
    assert await use(store, node_id, claimed, "DB") == []


async def test_a_run_that_is_over_or_being_cancelled_gives_no_value_any_more(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")
    await execute(store, "UPDATE hourhand.live_runs SET state = 4")
    assert await use(store, node_id, claimed, "DB") == []
    await execute(store, "UPDATE hourhand.live_runs SET state = 3")
    await store.live_runs.finish_runs([succeeded(claimed)])
    assert await use(store, node_id, claimed, "DB") == []


async def test_of_a_run_in_hand_only_what_its_job_refers_to_is_given(store: Store, keyring: Keyring) -> None:
    await put(store, keyring, "DB")
    await put(store, keyring, "OTHER")
    await put(store, keyring, "FOREIGN", namespace=2)
    node_id, claimed = await held(store, "DB", "FOREIGN", "GONE")
    used = {each.place.name: each for each in await use(store, node_id, claimed, "DB", "OTHER", "FOREIGN", "GONE")}
    assert [name for name, each in used.items() if each.value is not None] == ["DB"]


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (EVERY_JOB, True),
        (Grant(jobs=("report",)), True),
        (Grant(jobs=("other",)), False),
        (Grant(jobs=()), False),
        (Grant(kinds=("number", "http")), True),
        (Grant(kinds=("http",)), False),
        (Grant(labels={"team": "a"}), True),
        (Grant(labels={"team": "b"}), False),
        (Grant(labels={"team": "a", "env": "prod"}), False),
        (Grant(jobs=("report",), kinds=("http",)), False),
    ],
)
async def test_the_grant_of_the_moment_decides_the_same_in_the_statement_and_in_the_rule(
    store: Store, keyring: Keyring, grant: Grant, allowed: bool
) -> None:
    await put(store, keyring, grant=grant)
    node_id, claimed = await held(store, "DB", name="report", labels={"team": "a"})

    [used] = await use(store, node_id, claimed, "DB")

    assert (used.value is not None) == allowed
    assert grant.allows(claimed.job_id, "report", "number", {"team": "a"}) == allowed
    assert await store.secrets.find_grants(NAMESPACE, ["DB"]) == {"DB": grant}


async def test_a_grant_by_the_id_of_a_job_counts(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")
    await store.secrets.change(NAMESPACE, "DB", None, Grant(jobs=(str(claimed.job_id),)), "ada")
    [used] = await use(store, node_id, claimed, "DB")
    assert used.value is not None


async def test_each_write_is_a_version_and_of_two_at_once_one_is_told(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    await put(store, keyring, value=b"another")
    place = SecretPlace(NAMESPACE, "DB", 2)
    assert not await store.secrets.put(place, keyring.seal(b"late", place), "late", EVERY_JOB, "bob")
    ahead = SecretPlace(NAMESPACE, "NEW", 2)
    assert not await store.secrets.put(ahead, keyring.seal(b"x", ahead), None, EVERY_JOB, "bob")
    row = await store.secrets.get(NAMESPACE, "DB")
    assert row is not None
    assert (row.version, row.description) == (2, "")
    writes = await store.audit.list_audit(NAMESPACE, None, 10, {"action": "secret.write", "subject": "secret/DB"})
    assert [entry.details["version"] for entry in writes] == [2, 1]


async def test_a_new_value_keeps_description_and_grant_unless_it_says_more(store: Store, keyring: Keyring) -> None:
    await put(store, keyring, grant=Grant(kinds=("http",)))
    assert await store.secrets.change(NAMESPACE, "DB", "words", UNSET, "ada")
    place = SecretPlace(NAMESPACE, "DB", 2)
    assert await store.secrets.put(place, keyring.seal(b"two", place), None, UNSET, "ada")
    row = await store.secrets.get(NAMESPACE, "DB")
    assert row is not None
    assert (row.description, row.grant) == ("words", Grant(kinds=("http",)))


async def test_a_secret_is_not_deleted_under_a_job_that_may_still_run_unless_forced(
    store: Store, keyring: Keyring
) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB", name="report")
    using = await store.secrets.delete(NAMESPACE, "DB", False, "ada")
    assert using == [f"report ({claimed.job_id})"]
    assert await store.secrets.delete(NAMESPACE, "DB", True, "ada") == []
    assert await store.secrets.delete(NAMESPACE, "DB", True, "ada") is None
    [used] = await use(store, node_id, claimed, "DB")
    assert used.value is None
    await put(store, keyring)
    [used] = await use(store, node_id, claimed, "DB")
    assert used.value is not None
    await store.live_runs.finish_runs([succeeded(claimed)])
    assert await store.secrets.delete(NAMESPACE, "DB", False, "ada") == []


async def test_a_changed_job_refers_to_what_it_refers_to_now(store: Store, keyring: Keyring) -> None:
    job = due_job(at(3600), policy=Policy(secrets=("A", "B")))
    await insert(store, job)
    assert [row["secret"] for row in await rows(store, "secret_jobs", "secret")] == ["A", "B"]
    changed = type(job.definition)(
        name="job", kind="number", payload={}, timing=job.definition.timing, needs="number",
        policy=Policy(secrets=("B", "C")),
    )  # fmt: skip
    await store.jobs.change_job(NAMESPACE, job.job_id, changed, 1, at(3600), START, "ada")
    assert [row["secret"] for row in await rows(store, "secret_jobs", "secret")] == ["B", "C"]


async def test_jobs_without_references_leave_no_trace_of_them(store: Store) -> None:
    await insert(store, due_job())
    assert await rows(store, "secret_jobs") == []
    assert (await rows(store, "jobs"))[0]["policy"] is None


async def test_a_new_key_seals_everything_anew_and_the_old_one_can_go(store: Store, keyring: Keyring) -> None:
    for number in range(5):
        await put(store, keyring, f"S{number}", value=f"value {number}".encode())
    old = keyring.key_ids[0]

    assert await rotate(store.secrets, store.audit, keyring, "operator") == 5
    assert keyring.key_ids[0] != old
    assert await store.secrets.key_ids() == {keyring.key_ids[0]}
    assert await forget_old(store.secrets, keyring) == 1

    assert len(keyring.key_ids) == 1
    await refuse_without_keys(store.secrets, keyring)
    node_id, claimed = await held(store, *(f"S{number}" for number in range(5)))
    for used in await use(store, node_id, claimed, *(f"S{number}" for number in range(5))):
        assert used.value is not None
        assert keyring.open(used.value, used.place) == f"value {used.place.name[1:]}".encode()


async def test_rotation_goes_on_where_it_was_stopped(store: Store, keyring: Keyring) -> None:
    for number in range(3):
        await put(store, keyring, f"S{number}")
    await rotate(store.secrets, store.audit, keyring, "operator")
    place, _ = (await store.secrets.wrapped_by_others("", 10))[0]
    sealed = keyring.seal(VALUE, SecretPlace(place.namespace_id, place.name, 2))
    assert await store.secrets.put(SecretPlace(NAMESPACE, place.name, 2), sealed, None, UNSET, "ada")
    assert await rotate(store.secrets, store.audit, keyring, "operator", new=False) == 0


async def test_without_a_key_file_there_is_nothing_to_rotate_to_unless_a_key_is_made(
    store: Store, tmp_path: Path
) -> None:
    keyring = Keyring(tmp_path / "none.key")
    with pytest.raises(BadConfiguration, match=r"none\.key does not exist"):
        await rotate(store.secrets, store.audit, keyring, "operator", new=False)
    assert await rows(store, "audit") == []
    assert await rotate(store.secrets, store.audit, keyring, "operator") == 0
    assert len(keyring.key_ids) == 1


async def test_no_value_lies_anywhere_in_the_database(store: Store, keyring: Keyring) -> None:
    await put(store, keyring)
    node_id, claimed = await held(store, "DB")
    await use(store, node_id, claimed, "DB")
    for table in ("secrets", "secret_jobs", "audit", "jobs", "live_runs"):
        for row in await rows(store, table):
            assert VALUE not in b"".join(bytes(v) if isinstance(v, bytes) else str(v).encode() for v in row.values())


async def test_the_audit_is_kept_as_long_as_it_should_be_and_told_page_by_page(store: Store) -> None:
    for number in range(4):
        await store.audit.append_audit(NAMESPACE, "ada", "secret.write", f"secret/S{number}", {"n": number})
    await execute(store, "UPDATE hourhand.audit SET at = now() - interval '30 days' WHERE subject = 'secret/S0'")
    first = await store.audit.list_audit(NAMESPACE, None, 2, {})
    rest = await store.audit.list_audit(NAMESPACE, first[-1].audit_id, 10, {"actor": "ada"})
    assert [entry.subject[-1] for entry in [*first, *rest]] == ["3", "2", "1", "0"]
    assert await store.audit.list_audit(2, None, 10, {}) == []

    now = first[0].at
    await Partitions(store.database, 7).maintain([], now)
    assert len(await store.audit.list_audit(NAMESPACE, None, 10, {})) == 3
    await Partitions(store.database).maintain([], now + timedelta(days=900))
    assert len(await store.audit.list_audit(NAMESPACE, None, 10, {})) == 3
