"""Tokens: only digests are kept, a login code works once, what has expired is refused."""

import hashlib
from uuid import uuid4

import pytest
from sample_jobs import rows

from hourhand.model.errors import NotFound, Unauthenticated
from hourhand.operations.access import Access
from hourhand.wiring import Store

OVER = -1.0


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@pytest.fixture
async def access(store: Store) -> Access:
    return Access(store.tokens, store.names)


async def test_only_the_digest_of_a_token_is_stored(store: Store, access: Access) -> None:
    token = await access.create_token("ci")
    [row] = await rows(store, "tokens")
    assert row["digest"] == digest(token)
    assert not any(token in str(value) or token[3:] in str(value) for value in row.values())


async def test_a_token_leads_to_its_caller_and_an_unknown_one_to_nobody(access: Access) -> None:
    caller = await access.authenticate(await access.create_token("ci"), None)
    assert (caller.name, caller.namespace, caller.session) == ("ci", "default", False)
    for wrong in ("hh_unknown", "", "Bearer", digest("x").hex()):
        with pytest.raises(Unauthenticated):
            await access.authenticate(wrong, None)


async def test_a_namespace_that_does_not_exist_is_refused(access: Access) -> None:
    token = await access.create_token("ci")
    with pytest.raises(NotFound):
        await access.authenticate(token, "nowhere")


async def test_an_expired_token_is_refused(store: Store, access: Access) -> None:
    with pytest.raises(Unauthenticated):
        await access.authenticate(await access.create_token("ci", OVER), None)
    await store.tokens.insert_token(uuid4(), "old code", digest("hh_code"), "login", OVER)
    assert not await store.tokens.use_login_code(digest("hh_code"))


async def test_a_revoked_token_is_refused(store: Store, access: Access) -> None:
    token = await access.create_token("ci")
    row = await store.tokens.find_token(digest(token))
    assert row is not None
    assert await access.revoke(row.token_id)
    assert not await access.revoke(row.token_id)
    with pytest.raises(Unauthenticated):
        await access.authenticate(token, None)


async def test_a_login_code_works_once_and_opens_a_session(access: Access) -> None:
    code = await access.create_login_code()
    session, seconds = await access.login(code)
    assert seconds > 0
    assert (await access.authenticate(session, None)).session
    with pytest.raises(Unauthenticated):
        await access.login(code)


async def test_a_login_code_is_no_token_and_a_token_is_no_login_code(access: Access) -> None:
    with pytest.raises(Unauthenticated):
        await access.authenticate(await access.create_login_code(), None)
    with pytest.raises(Unauthenticated):
        await access.login(await access.create_token("ci"))
