"""From what a caller wrote to a definition: every fault at once, and nothing lost in a change."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest
from fake_kinds import KINDS, NumberKind
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.catchup import CatchUp, CatchUpPolicy
from hourhand.model.errors import Fault, InvalidFields
from hourhand.model.ids import time_ordered_id
from hourhand.model.job import JobDefinition
from hourhand.model.local_time import DstOverlap, Gap
from hourhand.model.retry import RetryPolicy
from hourhand.model.schedule import At, CronSchedule, Every, Now, Timing
from hourhand.operations.definition import changes_timing, define_change, define_job, has_null
from hourhand.operations.requests import CatchUpRequest, JobPatch, JobRequest, RetryRequest

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)
JOB_ID = time_ordered_id(NOW, 12345)


def defined(job_id: UUID = JOB_ID, **fields: Any) -> JobDefinition:
    fields = {"name": "nightly", "kind": "number", "payload": {"n": 1}} | fields
    return define_job(JobRequest(**fields), job_id, NOW, "ada", KINDS)


def faults_of(**fields: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as refused:
        defined(**fields)
    return {fault.pointer: fault.code for fault in refused.value.faults}


# --- faults -----------------------------------------------------------------------------------------------


def test_every_fault_of_a_body_is_found_at_once() -> None:
    found = faults_of(
        name=" ",
        payload={"n": "one"},
        schedule=[{"cron": "61 * * * *"}, {"every": "soon"}],
        zone="Europe/Berlim",
        start_at="yesterday",
        dst_gap="jump",
        queue="no spaces",
        priority=11,
        max_retries=-1,
        retry=RetryRequest(base="1h", factor=0.5, max="1m", jitter=2.0, on=["sometimes"], never_on=["exit:999"]),
        catchup=CatchUpRequest(mode="some", window="long", max_runs=0),
        timeout="8d",
        labels={"bad key": "x", "fine": "\x07"},
        description="x" * 5000,
        owner="\x00",
    )
    assert set(found) == {
        "/name", "/payload/n", "/schedule/0/cron", "/schedule/1/every", "/zone", "/start_at", "/dst_gap", "/queue",
        "/priority", "/max_retries", "/retry/factor", "/retry/jitter", "/retry/max", "/retry/on/0", "/retry/never_on/0",
        "/catchup/mode", "/catchup/window", "/catchup/max_runs", "/timeout",
        "/labels/bad key", "/labels/fine", "/description", "/owner",
    }  # fmt: skip


def test_an_unknown_kind_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidFields) as refused:
        defined(kind="numbr")
    [fault] = refused.value.faults
    assert (fault.pointer, fault.code, fault.allowed) == ("/kind", "unknown-kind", ["number"])
    assert fault.hint is not None
    assert "'number'" in fault.hint


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"name": "a\x00b"}, "/name"),
        ({"payload": {"n": 1, "text": "a\x00b"}}, "/payload"),
        ({"payload": {"n": 1, "a\x00b": 1}}, "/payload"),
        ({"payload": {"n": 1, "deep": [{"x": "\\\x00"}]}}, "/payload"),
        ({"labels": {"team": "a\x00b"}}, "/labels/team"),
        ({"description": "a\x00b"}, "/description"),
        ({"owner": "a\x00b"}, "/owner"),
    ],
)
def test_the_character_nul_is_refused_wherever_it_stands(fields: dict[str, Any], pointer: str) -> None:
    assert pointer in faults_of(**fields)


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert defined(payload={"n": 1, "text": "\\u0000"}).payload["text"] == "\\u0000"


@given(st.recursive(st.text(max_size=8), lambda inner: st.lists(inner, max_size=3), max_leaves=6))
def test_a_nul_is_seen_in_json_exactly_when_there_is_one(value: Any) -> None:
    def holds(item: Any) -> bool:
        return "\x00" in item if isinstance(item, str) else any(holds(part) for part in item)

    assert has_null(msgspec.json.encode(value)) == holds(value)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb", "safe\u202egnp.exe", "a\u200bb", "\ufeffname"])
def test_a_name_that_cannot_be_seen_as_it_is_is_refused(name: str) -> None:
    assert faults_of(name=name) == {"/name": "invalid-name"}


@pytest.mark.parametrize("queue", ["", "a b", "-a", "x" * 64, "default\n", "dé"])
def test_a_queue_has_letters_digits_dots_dashes_and_underscores_only(queue: str) -> None:
    assert faults_of(queue=queue) == {"/queue": "invalid-queue"}


@pytest.mark.parametrize("label", ["", "a b", "team\n", "a/b"])
def test_a_label_is_named_like_a_queue_and_its_fault_points_at_it(label: str) -> None:
    assert faults_of(labels={label: "x"}) == {"/labels/" + label.replace("/", "~1"): "invalid-labels"}


def test_a_payload_above_the_limit_is_refused() -> None:
    assert faults_of(payload={"n": 1, "text": "x" * 300_000}) == {"/payload": "payload-too-large"}


# --- what fields mean -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_priority", "stored"), [("low", 2), ("medium", 5), ("high", 8), (0, 0), (9, 9), (None, 5)]
)
def test_a_priority_is_a_number_or_a_word(given_priority: int | str | None, stored: int) -> None:
    assert defined(priority=given_priority).priority == stored


@pytest.mark.parametrize("given_priority", [-1, 10, "urgent", "LOW", "5", ""])
def test_other_priorities_are_refused_with_what_is_allowed(given_priority: int | str) -> None:
    assert faults_of(priority=given_priority) == {"/priority": "invalid-priority"}


def test_a_body_with_a_name_only_runs_now_with_the_defaults() -> None:
    job = defined()
    assert job.timing == Timing((Now(NOW),))
    assert (job.queue, job.priority, job.owner) == ("default", 5, "ada")
    assert (job.retry, job.catchup, job.timeout_seconds) == (RetryPolicy(), CatchUpPolicy(), None)


def test_delays_and_a_curve_exclude_each_other() -> None:
    assert faults_of(retry=RetryRequest(delays=["1s"], base="2s")) == {"/retry": "invalid-backoff"}
    assert faults_of(retry=RetryRequest(delays=[])) == {"/retry/delays": "invalid-backoff"}
    assert faults_of(retry=RetryRequest(delays=[], base="x", factor=0, jitter=2)) == {
        "/retry": "invalid-backoff",
        "/retry/delays": "invalid-backoff",
        "/retry/base": "invalid-duration",
        "/retry/factor": "invalid-backoff",
        "/retry/jitter": "invalid-backoff",
    }


def test_each_bad_delay_is_named_by_its_place() -> None:
    assert set(faults_of(retry=RetryRequest(delays=["1s", "x", "3"]))) == {"/retry/delays/1", "/retry/delays/2"}


def test_the_failures_to_retry_are_read_in_all_their_forms() -> None:
    retry = RetryRequest(on=[3, "exit:3", "http:5XX", "timeout"], never_on=["pkg.Error", "signal:sigkill"])
    assert defined(retry=retry).retry == RetryPolicy(
        on=("exit:3", "http:5xx", "timeout"), never_on=("pkg.Error", "signal:SIGKILL")
    )


def test_each_failure_that_does_not_exist_is_named_by_its_place() -> None:
    found = faults_of(retry=RetryRequest(delays=["1s"], on=["timeout", 999, "conection"], never_on=[]))
    assert found == dict.fromkeys(["/retry/on/1", "/retry/on/2", "/retry/never_on"], "invalid-retry-entry")


def test_what_runs_at_most_once_has_no_retries() -> None:
    assert defined(at_most_once=True).retry.max_retries == 0
    assert defined(at_most_once=True, max_retries=0).retry.max_retries == 0
    assert faults_of(at_most_once=True, max_retries=1) == {"/max_retries": "conflicting-fields"}


# --- changes ----------------------------------------------------------------------------------------------

FULL = JobDefinition(
    name="report",
    kind="number",
    payload={"n": 7, "deep": {"a": [1, None]}},
    timing=Timing(
        (CronSchedule("0 9 * * MON-FRI"),),
        "Europe/Berlin",
        start_at=NOW + timedelta(days=1),
        end_at=NOW + timedelta(days=90),
        gap=Gap.SKIP,
        overlap=DstOverlap.LAST,
    ),
    needs="number",
    queue="reports",
    priority=8,
    retry=RetryPolicy(5, 2.5, 3.0, 600.0, 0.1),
    catchup=CatchUpPolicy(CatchUp.ALL, timedelta(hours=3), 7),
    timeout_seconds=90.5,
    labels={"team": "data"},
    description="what it is for",
    owner="grace",
)

FIELDS = [
    "name", "kind", "payload", "timing", "needs", "queue", "priority", "retry", "catchup", "timeout_seconds", "labels",
    "description", "owner",
]  # fmt: skip


def changed(old: JobDefinition, patch: JobPatch, now: datetime = NOW) -> JobDefinition:
    return define_change(old, patch, JOB_ID, now, KINDS)


def test_a_change_of_nothing_changes_nothing() -> None:
    assert changed(FULL, JobPatch()) == FULL


def test_a_change_keeps_the_failures_to_retry() -> None:
    choice: dict[str, Any] = {"on": ["http:5xx"], "never_on": ["timeout"]}
    for old in (defined(retry=RetryRequest(**choice)), defined(retry=RetryRequest(delays=["3s"], **choice))):
        assert changed(old, JobPatch(description="new")).retry == old.retry


def test_a_job_can_be_made_to_run_at_most_once_and_no_change_trips_over_it() -> None:
    once = changed(defined(), JobPatch(at_most_once=True))
    assert (once.policy.at_most_once, once.retry.max_retries) == (True, 0)
    assert changed(once, JobPatch(description="new")).policy.at_most_once
    with pytest.raises(InvalidFields):
        changed(once, JobPatch(max_retries=2))


@pytest.mark.parametrize(
    ("patch", "field", "value"),
    [
        (JobPatch(name="other"), "name", "other"),
        (JobPatch(payload={"n": 0}), "payload", {"n": 0}),
        (JobPatch(queue="slow"), "queue", "slow"),
        (JobPatch(priority="low"), "priority", 2),
        (JobPatch(priority=0), "priority", 0),
        (JobPatch(timeout=None), "timeout_seconds", None),
        (JobPatch(labels={}), "labels", {}),
        (JobPatch(description=""), "description", ""),
        (JobPatch(owner="lin"), "owner", "lin"),
        (JobPatch(catchup=None), "catchup", CatchUpPolicy()),
        (JobPatch(retry=None), "retry", RetryPolicy(5)),
        (JobPatch(max_retries=0), "retry", RetryPolicy(0, 2.5, 3.0, 600.0, 0.1)),
        (JobPatch(end_at=None), "timing", Timing(FULL.timing.schedules, "Europe/Berlin", FULL.timing.start_at, None,
                                                 Gap.SKIP, DstOverlap.LAST)),
    ],
)  # fmt: skip
def test_a_change_keeps_what_is_not_given(patch: JobPatch, field: str, value: Any) -> None:
    new = changed(FULL, patch)
    assert getattr(new, field) == value
    for other in FIELDS:
        if other != field:
            assert getattr(new, other) == getattr(FULL, other), other


@given(
    st.lists(st.integers(1, 10_000_000_000), min_size=1, max_size=5),
    st.integers(1, 10_000_000_000),
    st.integers(1, 604_800_000_000),
)
def test_lengths_of_time_survive_a_change_to_the_microsecond(delays: list[int], window: int, timeout: int) -> None:
    old = defined(timeout=f"{timeout}us", catchup=CatchUpRequest(window=f"{window}us"))
    listed = defined(retry=RetryRequest(delays=[f"{delay}us" for delay in delays]))
    assert changed(old, JobPatch(description="new")).timeout_seconds == old.timeout_seconds
    assert changed(old, JobPatch(description="new")).catchup == old.catchup
    assert changed(listed, JobPatch(description="new")).retry == listed.retry


def test_a_new_end_leaves_the_beat_of_an_interval_alone() -> None:
    old = defined(schedule={"every": "1h"})
    anchor = NOW + timedelta(hours=1)
    assert old.timing.schedules == (Every(timedelta(hours=1), anchor),)
    later = NOW + timedelta(minutes=20)
    new = changed(old, JobPatch(end_at="2031-01-01T00:00:00Z"), later)
    assert new.timing.next_after(later) == anchor


def test_a_schedule_that_has_just_passed_is_kept_as_it_was_asked_for() -> None:
    old = defined(schedule={"at": "2030-01-07T11:59:00Z"})
    assert old.timing.schedules == (At(NOW, asked=NOW - timedelta(minutes=1)),)
    assert changed(old, JobPatch(name="other"), NOW + timedelta(days=1)).timing == old.timing


@pytest.mark.parametrize("field", ["schedule", "zone", "start_at", "end_at", "dst_gap", "dst_overlap"])
def test_the_fields_that_say_when_are_known(field: str) -> None:
    assert changes_timing(JobPatch(**{field: "x"}))
    assert not changes_timing(JobPatch(name="x", payload={}, queue="y"))


def test_a_success_cannot_be_named_as_a_failure_to_try_again() -> None:
    found = faults_of(retry=RetryRequest(on=["exit:0", "http:200", "signal:SIGFOO", "exit:3"], never_on=[0]))
    assert found == {f"/retry/{place}": "invalid-retry-entry" for place in ("on/0", "on/1", "on/2", "never_on/0")}


# --- the time of the run in the payload -------------------------------------------------------------------


def test_a_payload_that_names_the_time_of_its_run_keeps_the_zone_in_which_that_is_meant() -> None:
    fields: dict[str, Any] = {"payload": {"n": 1, "day": "{{scheduled_date}}"}, "schedule": {"cron": "0 9 * * *"}}
    made = defined(**fields, zone="Europe/Berlin")
    assert made.policy.template_zone == "Europe/Berlin"
    assert defined(**fields).policy.template_zone == "UTC"
    assert defined().policy is defined().policy  # an ordinary one has nothing of it

    moved = define_change(made, JobPatch(zone="Asia/Tokyo"), JOB_ID, NOW, KINDS)
    assert moved.policy.template_zone == "Asia/Tokyo"
    renamed = define_change(made, JobPatch(name="other"), JOB_ID, NOW, KINDS)
    assert renamed.policy.template_zone == "Europe/Berlin"
    plain = define_change(made, JobPatch(payload={"n": 1}), JOB_ID, NOW, KINDS)
    assert plain.policy.template_zone is None


def test_wrong_words_of_a_payload_are_refused_with_all_other_faults() -> None:
    found = faults_of(payload={"n": 1, "a": "{{scheduled_tim}}", "b": ["{{''.__class__}}"]}, queue="no spaces")
    assert found == {
        "/payload/a": "template-unknown",
        "/payload/b/0": "template-forbidden",
        "/queue": "invalid-queue",
    }


def test_a_kind_judges_a_payload_as_a_run_might_have_it() -> None:
    judged: list[Any] = []

    class Noting(NumberKind):
        def check(self, payload: Mapping[str, Any]) -> list[Fault]:
            judged.append(payload)
            return []

    request = JobRequest(name="x", kind="number", payload={"url": "https://example.com/{{scheduled_year}}"})
    made = define_job(request, JOB_ID, NOW, "ada", {"number": Noting()})
    assert judged == [{"url": "https://example.com/2030"}]
    assert made.payload == {"url": "https://example.com/{{scheduled_year}}"}
