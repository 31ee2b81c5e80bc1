"""Jobs that are created while a pause is in force, on a real store."""

import pytest
from pause_stage import CALLER, LABEL, QUEUE, PauseStage
from sample_jobs import at, rows

from hourhand.model.ids import time_ordered_id
from hourhand.model.pauses import PauseScope
from hourhand.operations.requests import JobRequest
from hourhand.wiring import Store


@pytest.mark.parametrize("scope", [scope for scope in PauseScope if scope is not PauseScope.JOB])
async def test_a_recurring_job_created_in_a_pause_makes_no_run_before_it_is_over(
    store: Store, scope: PauseScope
) -> None:
    stage = await PauseStage(store).open()
    nobody = time_ordered_id(at(0), 1)
    await stage.pause(scope, nobody, 0)
    stage.clock.time = at(1)
    name, value = LABEL.split(":")
    request = JobRequest(name="beat", kind="number", schedule={"every": "1s"}, queue=QUEUE, labels={name: value})
    job = (await stage.jobs.create(CALLER, request)).job
    assert await rows(store, "live_runs") == []
    await stage.go(2, 3, 4)
    assert await rows(store, "live_runs") == []
    assert set((await stage.told(job.job_id, 4)).values()) == {"paused"}
    await stage.resume(scope, nobody, 4.5)
    await stage.go(5)
    assert {row["scheduled_for"] for row in await rows(store, "live_runs")} == {at(5), at(6), at(7)}
