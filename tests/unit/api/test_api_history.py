"""What became of due times, and pauses of many jobs, as callers ask for them."""

from datetime import timedelta
from uuid import UUID

import httpx
import pytest
from api_fakes import NOW
from operator_fakes import FakeBus, FakeLedgerStore, FakePauseStore

from hourhand.model.catchup import CatchUp
from hourhand.model.ids import scheduled_run_id
from hourhand.model.ledger import Became, LedgerFacts, RangeFact, RunFact
from hourhand.model.schedule import Every, Timing
from hourhand.model.states import RunState
from hourhand.ports.event_bus import Topic
from hourhand.ports.pause_stores import PauseTarget

JOB = UUID("01977777-0000-7000-8000-000000000001")
HOURLY = Timing((Every(timedelta(hours=1), NOW - timedelta(days=30)),))
HISTORY = f"/api/v1/jobs/{JOB}/history"


def hours_ago(count: float) -> str:
    return (NOW - timedelta(hours=count)).isoformat().replace("+00:00", "Z")


def facts() -> LedgerFacts:
    due = NOW - timedelta(hours=9)
    ran = RunFact(scheduled_run_id(due, JOB), due, RunState.FAILED, "exit_code", "the program ended with 3\nat line 7")
    hole = RangeFact(NOW - timedelta(hours=8), NOW - timedelta(hours=2), 7, Became.MISSED, "catchup_window", HOURLY)
    return LedgerFacts(NOW, NOW, NOW, NOW - timedelta(days=9), HOURLY, [ran], [hole], NOW - timedelta(hours=1))


async def test_every_due_time_is_told_with_its_reason(api: httpx.AsyncClient, ledger: FakeLedgerStore) -> None:
    ledger.facts = facts()
    answer = (await api.get(HISTORY, params={"from": hours_ago(10)})).json()
    assert (answer["from"], answer["to"], answer["next_cursor"]) == (hours_ago(10), hours_ago(0), None)
    told = [(entry["due_at"], entry["status"], entry["count"]) for entry in answer["entries"]]
    assert told == [
        (hours_ago(9), "failed", 1),
        *((hours_ago(back), "missed", 1) for back in range(8, 1, -1)),
        (hours_ago(1), "unplanned", 1),
        (hours_ago(0), "unplanned", 1),
    ]
    assert answer["entries"][0]["why"] == ("the program ended with a code that is no success: the program ended with 3")
    assert "longer ago than the job's catch-up window (1h)" in answer["entries"][1]["why"]
    assert "is one running?" in answer["entries"][-1]["why"]


async def test_a_stretch_can_be_had_as_one_entry(api: httpx.AsyncClient, ledger: FakeLedgerStore) -> None:
    ledger.facts = facts()
    answer = (await api.get(HISTORY, params={"from": hours_ago(6), "compact": "true"})).json()
    told = [(entry["due_at"], entry["last_due"], entry["status"], entry["count"]) for entry in answer["entries"]]
    assert told == [(hours_ago(6), hours_ago(2), "missed", 5), (hours_ago(1), hours_ago(0), "unplanned", 2)]


async def test_pages_follow_each_other_without_a_gap(api: httpx.AsyncClient, ledger: FakeLedgerStore) -> None:
    ledger.facts = facts()
    seen, cursor = [], None
    for _ in range(10):
        params = {"from": hours_ago(10), "limit": "4"} | ({"cursor": cursor} if cursor else {})
        answer = (await api.get(HISTORY, params=params)).json()
        seen += [entry["due_at"] for entry in answer["entries"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [hours_ago(back) for back in range(9, -1, -1)]


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"from": "yesterday"}, "from"),
        ({"to": "2025-02-30T00:00:00Z"}, "to"),
        ({"from": hours_ago(1), "to": hours_ago(2)}, "from"),
        ({"from": hours_ago(24 * 400)}, "from"),
        ({"compact": "maybe"}, "compact"),
        ({"cursor": "AAAA"}, "cursor"),
    ],
)
async def test_a_wrong_parameter_is_named(
    api: httpx.AsyncClient, ledger: FakeLedgerStore, params: dict[str, str], parameter: str
) -> None:
    ledger.facts = facts()
    answer = await api.get(HISTORY, params=params)
    assert answer.status_code == 400
    assert parameter in answer.json()["detail"] + str(answer.json().get("errors"))


async def test_the_history_of_an_unknown_job_is_not_found(api: httpx.AsyncClient) -> None:
    assert (await api.get(HISTORY)).status_code == 404


# --- pauses of many ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("labels/team:billing", PauseTarget(1, labels={"team": "billing"})),
        ("labels/team=a:b", PauseTarget(1, labels={"team": "a:b"})),
        ("namespaces/team-a", PauseTarget(2)),
        ("cluster", PauseTarget()),
    ],
)
async def test_many_are_paused_and_resumed_by_one_call(
    api: httpx.AsyncClient, pauses: FakePauseStore, bus: FakeBus, path: str, target: PauseTarget
) -> None:
    until = hours_ago(-5)
    paused = (await api.post(f"/api/v1/{path}/pause", json={"reason": "moving", "until": until})).json()
    assert (paused["jobs"], paused["until"], len(paused["too_late"])) == (3, until, 1)
    resumed = (await api.post(f"/api/v1/{path}/resume", json={"catch_up": "last"})).json()
    assert resumed["was_paused"] is True
    assert pauses.asked == [("pause", target, NOW + timedelta(hours=5)), ("resume", target, CatchUp.LAST)]
    assert bus.told == [Topic.PAUSES, Topic.PAUSES]


async def test_a_queue_and_a_job_have_an_until_and_a_catch_up_too(
    api: httpx.AsyncClient, pauses: FakePauseStore
) -> None:
    queue = (await api.post("/api/v1/queues/reports/pause", json={"until": hours_ago(-5)})).json()
    assert (queue["paused"], queue["pause_until"]) == (True, hours_ago(-5))
    await api.post("/api/v1/queues/reports/resume", json={"catch_up": "all"})
    assert pauses.asked[-1] == ("resume", PauseTarget(1, "reports"), CatchUp.ALL)
    job = (await api.post("/api/v1/jobs", json={"name": "x", "kind": "command", "payload": {"argv": ["true"]}})).json()
    changed = (await api.post(f"/api/v1/jobs/{job['job_id']}/pause", json={"until": hours_ago(-5)})).json()["job"]
    [pause] = changed["pauses"]
    assert (pause["scope"], pause["until"], pause["paused_by"]) == ("job", hours_ago(-5), "tester")


@pytest.mark.parametrize(
    ("verb", "body", "pointer", "code"),
    [
        ("pause", {"until": hours_ago(1)}, "/until", "out-of-range"),
        ("pause", {"until": "2030-01-01T00:00:00"}, "/until", "offset-required"),
        ("pause", {"reason": "x" * 1001}, "/reason", "invalid-text"),
        ("pause", {"untill": hours_ago(-1)}, "/untill", "unknown-field"),
        ("resume", {"catch_up": "some"}, "/catch_up", "unknown-value"),
        ("resume", {"catchup": "last"}, "/catchup", "unknown-field"),
    ],
)
@pytest.mark.parametrize("path", ["cluster", "labels/team:x", "queues/reports"])
async def test_what_is_wrong_with_a_pause_is_pointed_at(
    api: httpx.AsyncClient, path: str, verb: str, body: dict[str, str], pointer: str, code: str
) -> None:
    await api.post("/api/v1/queues/reports/pause")
    answer = await api.post(f"/api/v1/{path}/{verb}", json=body)
    assert answer.status_code == 422
    assert [(fault["pointer"], fault["code"]) for fault in answer.json()["errors"]] == [(pointer, code)]


async def test_a_label_without_a_value_is_refused(api: httpx.AsyncClient) -> None:
    answer = await api.post("/api/v1/labels/team/pause")
    assert (answer.status_code, "key:value" in answer.json()["detail"]) == (400, True)


async def test_a_token_of_one_namespace_pauses_nothing_beyond_it(bound: httpx.AsyncClient) -> None:
    assert (await bound.post("/api/v1/cluster/pause")).status_code == 403
    assert (await bound.post("/api/v1/namespaces/default/pause")).status_code == 403
    assert (await bound.post("/api/v1/namespaces/team-a/pause")).status_code == 200


async def test_pauses_are_listed_page_by_page(api: httpx.AsyncClient) -> None:
    first = (await api.get("/api/v1/pauses", params={"limit": "3"})).json()
    second = (await api.get("/api/v1/pauses", params={"limit": "3", "cursor": first["next_cursor"]})).json()
    told = [pause["paused_by"] for pause in first["pauses"] + second["pauses"]]
    assert (told, second["next_cursor"]) == ([f"ada {number}" for number in range(5, 0, -1)], None)
