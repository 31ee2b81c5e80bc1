"""Numbers of lanes and namespaces: asked for once, and again when the database may have become another."""

import pytest
from sample_jobs import NAMESPACE, planning

from hourhand.model.errors import Conflict
from hourhand.wiring import Store


async def test_numbers_are_asked_for_anew_after_the_database_was_away(store: Store) -> None:
    """A standby that took over may lack the newest lane, and has given its number to another since."""
    key = (NAMESPACE, "newest", "python", False)
    number = (await store.names.lane_ids([key]))[key]
    async with store.database.connection() as db:
        await db.execute(f"UPDATE {store.database.schema}.lanes SET queue = 'another' WHERE lane_id = $1", number)
    assert (await store.names.lane_ids([key]))[key] == number, "it is known"

    store.names.forget()
    assert (await store.names.lane_ids([key]))[key] != number


async def test_what_somebody_has_in_hand_is_not_forgotten_under_it(store: Store) -> None:
    key = (NAMESPACE, "held", "python", False)
    held = await store.names.lane_ids([key])
    store.names.forget()
    assert key in held


async def test_a_lane_that_another_node_makes_at_the_same_moment_is_found(store: Store) -> None:
    """Whoever comes second waits for the first, and sees no lane with the eyes it had before it waited."""
    key = (NAMESPACE, "contested", "python", False)
    made = f"INSERT INTO {store.database.schema}.lanes (namespace_id, queue, needs, gated) VALUES ($1, $2, $3, $4)"
    async with planning(store) as other:
        await other.execute(made, *key)
        await other.then(store.names.lane_ids([key]))
        assert other.waiting is not None
    assert key in await other.waiting


async def test_demands_beyond_a_bound_are_refused_and_known_ones_are_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourhand.store.names.LANES_MAX", 3)
    keys = [(NAMESPACE, "default", f'command {{"memory":{place}000000}}', False) for place in range(1, 5)]
    known = await store.names.lane_ids(keys[:3])
    with pytest.raises(Conflict) as refused:
        await store.names.lane_ids(keys[3:])
    assert refused.value.code == "too-many-demands"
    store.names.forget()
    assert await store.names.lane_ids(keys[:3]) == known
    assert len(await store.names.lane_ids([(NAMESPACE, "default", "python:another", False)])) == 4, "no demands at all"
