"""Pauses that overlap: of a due time that several of them hold, no more is run than the strictest of them lets run."""

from itertools import permutations
from uuid import UUID

import pytest
from pause_stage import BEAT, CALLER, SCOPES, PauseStage
from sample_jobs import at

from hourhand.model.catchup import CatchUp
from hourhand.model.pauses import PauseScope
from hourhand.model.schedule import format_instant
from hourhand.operations.requests import PauseRequest, ResumeRequest
from hourhand.wiring import Store

FIRST_END, SECOND_END, END = 35, 65, 71
PAIRS = list(permutations(SCOPES, 2))


@pytest.fixture
async def stage(store: Store) -> PauseStage:
    return await PauseStage(store).open()


def wanted(caught_up: list[int]) -> dict[float, str]:
    """The first pause holds 10 to 30, the second 10 to 60."""
    return {due: "paused" if 5 < due < SECOND_END and due not in caught_up else "run" for due in range(0, END, BEAT)}


@pytest.mark.parametrize(("first", "second"), PAIRS)
@pytest.mark.parametrize("ends_by", ["until", "resume"])
async def test_what_a_pause_forbids_is_not_caught_up_after_another_that_lasts_longer(
    stage: PauseStage, first: PauseScope, second: PauseScope, ends_by: str
) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(first, job_id, 5, until=FIRST_END if ends_by == "until" else None)
    await stage.pause(second, job_id, 5.1)
    await stage.go(*range(6, FIRST_END))
    if ends_by == "resume":
        await stage.resume(first, job_id, FIRST_END)
    await stage.go(*range(FIRST_END, SECOND_END))  # long enough that the first is forgotten by those who keep it
    await stage.resume(second, job_id, SECOND_END, CatchUp.ALL)
    await stage.go(SECOND_END, 66, END - 1)
    assert await stage.told(job_id, END - 1) == wanted([40, 50, 60])
    assert await stage.resting() == 0


async def test_nor_after_a_pause_of_another_label(stage: PauseStage) -> None:
    job_id = await stage.job(labels={"team": "billing", "zone": "eu"})
    await stage.go(0, 5)
    await stage.pause(PauseScope.LABEL, job_id, 5, until=FIRST_END)
    await stage.pauses.pause(CALLER, PauseScope.LABEL, "zone:eu", PauseRequest())
    await stage.go(*range(6, SECOND_END))
    stage.clock.time = at(SECOND_END)
    await stage.pauses.resume(CALLER, PauseScope.LABEL, "zone:eu", ResumeRequest(catch_up="all"))
    await stage.go(SECOND_END, 66, END - 1)
    assert await stage.told(job_id, END - 1) == wanted([40, 50, 60])


@pytest.mark.parametrize(("first", "second"), PAIRS)
async def test_what_both_let_run_is_run(stage: PauseStage, first: PauseScope, second: PauseScope) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await stage.pause(first, job_id, 5)
    await stage.pause(second, job_id, 5.1)
    await stage.go(*range(6, FIRST_END))
    await stage.resume(first, job_id, FIRST_END, CatchUp.ALL)
    await stage.go(*range(FIRST_END, SECOND_END))
    await stage.resume(second, job_id, SECOND_END, CatchUp.ALL)
    await stage.go(SECOND_END, 66, END - 1)
    # Whoever resumes a job alone decides about it then: what another pause still holds is not run.
    held = [10, 20, 30] if first is PauseScope.JOB else []
    assert await stage.told(job_id, END - 1) == wanted([due for due in range(10, 61, 10) if due not in held])


async def test_the_ledger_names_the_pause_for_which_a_due_time_was_not_caught_up(stage: PauseStage) -> None:
    job_id = await stage.job()
    await stage.go(0, 5)
    await _pause_label(stage, job_id, 5, "the strict one")
    await stage.pause(PauseScope.JOB, job_id, 5.1)
    await stage.go(*range(6, SECOND_END))
    await stage.resume(PauseScope.JOB, job_id, SECOND_END, CatchUp.ALL)
    await stage.go(SECOND_END, 66)
    [entry] = [entry for entry in await stage.entries(job_id, 0, 66, compact=True) if entry.status == "paused"]
    assert (entry.due_at, entry.last_due, entry.count) == (at(10), at(30), 3)
    assert entry.why is not None
    assert entry.why.endswith("the strict one")


async def _pause_label(stage: PauseStage, job_id: UUID, second: float, reason: str) -> None:
    stage.clock.time = at(second)
    request = PauseRequest(reason=reason, until=format_instant(at(FIRST_END)))
    await stage.pauses.pause(CALLER, PauseScope.LABEL, "team:billing", request)
