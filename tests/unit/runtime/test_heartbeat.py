"""A loop that hangs: an executor's is forgiven, since jobs may block it; that of others is not."""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from hourhand.model.node import Orders, Renewal
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.heartbeat import Heartbeat
from hourhand.runtime.membership import Membership


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


def heartbeat_of(register: Register, hang_seconds_max: float | None) -> Heartbeat:
    membership = Membership(register, "scheduler", "hangs", 60, DatabaseClock(), dict)
    return Heartbeat(membership, register, 0.02, (), hang_seconds_max)


def hang_until(condition: Callable[[], object]) -> None:
    """Blocks the loop, as a job may that should not."""
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


async def until_renewed_after(register: Register, instant: float) -> None:
    async with asyncio.timeout(5):
        while not register.since(instant):
            await asyncio.sleep(0.01)


async def test_a_node_whose_loop_hangs_renews_no_more_until_it_goes_on() -> None:
    register = Register()
    heartbeat = heartbeat_of(register, hang_seconds_max=0.2)
    await heartbeat.start()
    hang_until(lambda: heartbeat._has_told)
    renewed = len(register.renewals)
    time.sleep(0.2)  # ten of its beats
    assert len(register.renewals) == renewed
    await until_renewed_after(register, time.monotonic())
    await heartbeat.stop()


async def test_an_executor_whose_loop_hangs_renews_on_because_a_job_may_be_the_cause() -> None:
    register = Register()
    heartbeat = heartbeat_of(register, hang_seconds_max=None)
    await heartbeat.start()
    began = time.monotonic()
    hang_until(lambda: register.since(began + 0.5))
    await until_renewed_after(register, time.monotonic())
    await heartbeat.stop()
