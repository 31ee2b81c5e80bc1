"""What happens when people, planners and broken connections meet."""

import asyncio
import time
from typing import Any, cast

from crew import FunctionKind, NotedBus, Scheduler, SetClock
from sample_jobs import NAMESPACE, at, due_job, every, insert, new_job, rows

from hourhand.executor.lost_claims import SECOND_LOOK_SECONDS, LostClaims
from hourhand.model.errors import Conflict
from hourhand.model.policy import Overlap, Policy
from hourhand.model.states import JobState, RunState
from hourhand.operations.jobs import JobOperations, SubmitSettings
from hourhand.operations.requests import Caller, JobPatch, RunNowRequest
from hourhand.ports.event_bus import EventBus
from hourhand.ports.stores import EPOCH, Wish
from hourhand.runtime.ids import IdSource
from hourhand.scheduler.planner import BUDGET_SECONDS
from hourhand.scheduler.writes import Writes
from hourhand.wiring import Store

CALLER = Caller("ada", NAMESPACE, "default")


def operations(store: Store) -> JobOperations:
    bus = cast("EventBus", NotedBus())
    kinds = cast("Any", {"number": FunctionKind(cast("Any", None))})
    return JobOperations(
        store.jobs, store.submissions, store.runs, kinds, SetClock(), IdSource(1), bus, SubmitSettings()
    )


async def test_a_cancelled_job_stays_cancelled_whatever_is_asked_of_it_at_the_same_time(store: Store) -> None:
    verbs = operations(store)
    for job_id in await insert(store, *(new_job(every(10), next_due=at(10)) for _ in range(10))):
        asked: list[Any] = [verbs.pause(CALLER, job_id, None) for _ in range(4)]
        asked += [verbs.resume(CALLER, job_id) for _ in range(4)]
        asked += [verbs.run_now(CALLER, job_id, RunNowRequest()) for _ in range(4)]
        asked += [verbs.update(CALLER, job_id, JobPatch(priority=7)) for _ in range(2)]
        asked.insert(5, verbs.cancel(CALLER, job_id))
        answers = await asyncio.gather(*asked, return_exceptions=True)

        assert all(not isinstance(answer, Exception) or isinstance(answer, Conflict) for answer in answers), answers
        assert (await verbs.get(CALLER, job_id)).state is JobState.CANCELLED
    assert await rows(store, "timetable") == []
    assert await rows(store, "live_runs") == [], "no run of a cancelled job waits"


async def test_jobs_on_time_do_not_wait_for_those_that_missed_a_day(store: Store) -> None:
    day = 86_400
    scheduler = Scheduler(store, SetClock(at(day)))
    await scheduler.join("alone")
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    await insert(store, *(new_job(every(1), next_due=at(1)) for _ in range(5)))
    [on_time] = await insert(store, new_job(every(1), next_due=at(day + 1)))
    begun = time.monotonic()

    async with Writes(scheduler.planner._write) as writes:
        await scheduler.planner._plan_batch(EPOCH, 0, at(day + 2), writes)  # one batch, not all of them

    fired = {row["job_id"] for row in await rows(store, "live_runs")}
    assert on_time in fired
    assert time.monotonic() - begun < BUDGET_SECONDS * 50, "it did not walk through five days of seconds"


class HandsThatHold:
    claims_begun = claims_ended = 3

    def __init__(self, *keys: Any) -> None:
        self.keys = set(keys)

    def holds(self, *key: Any) -> bool:
        return key in self.keys

    def unwritten(self) -> set[Any]:
        return set()


async def test_a_claim_whose_answer_was_lost_goes_back_to_the_queue(store: Store) -> None:
    beside = Policy(overlap=Overlap.ALLOW)
    await insert(store, new_job(every(10), fires=[at(0), at(10)], next_due=at(20), policy=beside))
    await store.names.lanes()
    heads = await store.live_runs.peek_ready([1])
    wishes = [Wish(head, 1, 10) for head in heads]
    known, lost = (await store.live_runs.claim_runs(7, wishes, at(10), at(10))).claims
    hands = HandsThatHold((known.run_id, known.fence))
    watch = LostClaims(store.live_runs, cast("Any", hands), cast("Any", hands), lambda: 7, SetClock(), hands)

    assert await watch.run_once() == SECOND_LOOK_SECONDS
    assert {row["state"] for row in await rows(store, "live_runs")} == {RunState.CLAIMED}, "one look is not enough"
    await watch.run_once()

    states = {row["run_id"]: row["state"] for row in await rows(store, "live_runs")}
    assert states == {known.run_id: RunState.CLAIMED, lost.run_id: RunState.QUEUED}
    assert await watch.run_once() is None, "nothing is left to be looked at soon"


async def test_a_claim_is_not_lost_as_long_as_its_answer_may_still_come(store: Store) -> None:
    await insert(store, due_job())
    await store.names.lanes()
    wishes = [Wish(head, 1, 10) for head in await store.live_runs.peek_ready([1])]
    assert len((await store.live_runs.claim_runs(7, wishes, at(10), at(10))).claims) == 1
    hands = HandsThatHold()
    hands.claims_begun = 4  # and not ended: the answer is on its way
    watch = LostClaims(store.live_runs, cast("Any", hands), cast("Any", hands), lambda: 7, SetClock(), hands)

    for _ in range(3):
        await watch.run_once()
    assert {row["state"] for row in await rows(store, "live_runs")} == {RunState.CLAIMED}

    hands.claims_begun, hands.claims_ended = 9, 4  # it was given up; later ones cannot have brought this one
    await watch.run_once()
    assert {row["state"] for row in await rows(store, "live_runs")} == {RunState.QUEUED}
