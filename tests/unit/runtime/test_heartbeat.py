"""A loop that hangs: an executor's is forgiven, since jobs may block it; that of others is not."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from hourhand.model.node import Orders, Renewal
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.heartbeat import Heartbeat
from hourhand.runtime.membership import Membership

HANG_SECONDS = 0.6


class Register:
    """Notes when the node was heard of; a database without a database."""

    def __init__(self) -> None:
        self.renewals: list[float] = []

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def register_node(self, *_: Any) -> int:
        return 1

    async def renew_node(self, node_id: int, lease_seconds: float, facts: Mapping[str, Any]) -> Renewal:
        self.renewals.append(time.monotonic())
        return Renewal(datetime.now(UTC), Orders.WORK)

    async def end_node(self, node_id: int) -> None: ...

    def since(self, instant: float) -> int:
        return sum(at > instant for at in self.renewals)


@pytest.mark.parametrize(("hang_seconds_max", "is_renewed"), [(0.2, False), (None, True)], ids=["others", "executor"])
async def test_a_node_whose_loop_hangs_renews_no_more_unless_a_job_may_be_the_cause(
    hang_seconds_max: float | None, is_renewed: bool
) -> None:
    register = Register()
    membership = Membership(register, "scheduler", "hangs", 60, DatabaseClock(), dict)
    heartbeat = Heartbeat(membership, register, 0.02, (), hang_seconds_max)
    await heartbeat.start()
    began = time.monotonic()
    time.sleep(HANG_SECONDS)
    assert bool(register.since(began + 0.2 + 0.1)) is is_renewed

    went_on = time.monotonic()
    async with asyncio.timeout(5):
        while not register.since(went_on):
            await asyncio.sleep(0.01)
    await heartbeat.stop()
