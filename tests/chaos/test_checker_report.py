"""The report: what was injected, what was checked, the figures, and a verdict that is earned."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.chaos.figures import figures, rescue_times, term_times, tree_times
from tests.chaos.history import Fault, WitnessLine, read_history, read_lines, write_history, write_lines
from tests.chaos.pickups import quantile
from tests.chaos.report import judge
from tests.chaos.sample_episodes import cancelled, rescued
from tests.chaos.sample_history import BEGINNING, Story


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def good_story() -> Story:
    story = Story()
    story.life(story.job(schedule="at", at=30.0), 30.0)
    story.fault("kill", 100.0, 105.0, "executor-2")
    return story


def demanding(story: Story, **demands: Any) -> Story:
    story.settings = msgspec.structs.replace(story.settings, **demands)
    return story


def test_a_run_without_violations_that_did_all_that_was_demanded_passes() -> None:
    story = demanding(good_story(), injections_min={"kill_executor": 1}, invariants_demanded=(1, 3, 6))
    assert judge(story.history()).verdict == "pass"


def test_a_violation_fails_the_run() -> None:
    story = good_story()
    story.witness.clear()
    report = judge(story.history())
    assert report.verdict == "fail"
    _, _, end = report.text().partition("violated: 6")
    case = report.findings[6].violations[0]
    assert f"{case.subject}: {case.message}" in end, "what was violated is said again where the report ends"


def test_a_figure_with_a_bound_that_nobody_measured_makes_the_verdict_unknown() -> None:
    report = judge(demanding(good_story(), figures_demanded=True).history())
    assert report.verdict == "unknown"
    assert "missing: figure not measured: rescue after executor kill, p99" in report.text()
    assert judge(demanding(good_story(), figures_demanded=False).history()).verdict == "pass"


def test_runs_that_never_began_leave_the_verdict_open() -> None:
    """A workload whose programs cannot be started breaks no promise, and shows nothing either."""
    story = good_story()
    run = story.born(story.job(schedule="at", at=40.0), 40.0)
    story.claim(run, 40.0)
    story.finish(run, "failed", 40.1, "exec_not_found")
    report = judge(story.history())
    assert report.verdict == "unknown"
    assert "missing: 1 runs did not even begin: exec_not_found" in report.text()


def test_too_few_injections_make_the_verdict_unknown() -> None:
    report = judge(demanding(good_story(), injections_min={"kill_executor": 2, "stop_api": 1}).history())
    assert report.verdict == "unknown"
    assert "missing: kill_executor: injected 1 of 2 times" in report.text()
    assert "missing: stop_api: injected 0 of 1 times" in report.text()


def test_a_promise_that_was_demanded_and_not_exercised_makes_the_verdict_unknown() -> None:
    report = judge(demanding(good_story(), invariants_demanded=(1, 19)).history())
    assert report.verdict == "unknown"
    assert "missing: invariant 19 was not exercised" in report.text()


def test_a_violation_counts_more_than_what_is_missing() -> None:
    story = demanding(good_story(), invariants_demanded=(19,))
    story.witness.clear()
    assert judge(story.history()).verdict == "fail"


def test_a_run_in_which_nothing_happened_passes_nothing() -> None:
    assert judge(Story().history()).verdict == "unknown"


def test_the_report_tells_faults_facts_figures_and_seed() -> None:
    text = judge(demanding(good_story(), seed=4711).history()).text()
    assert "seed 4711" in text
    assert "kill_executor" in text
    assert "durable submission                   ok                    1 facts" in text
    assert "rescue after executor kill, p99" in text
    assert text.endswith("verdict: pass")


# --- figures -----------------------------------------------------------------------------------------------------


def killed_at_40(again: float, **asked: Any) -> Story:
    story = Story()
    run = story.born(story.job(schedule="at", at=30.0, **asked), 30.0)
    story.begin(run, 30.02)
    story.fault("kill", 40.0, 45.0, "executor-1")
    story.requeue(run, again - 0.2, again - 0.2, "lost", "executor_lost")
    story.begin(run, again, "executor-2")
    story.end(run, again + 1.0)
    return story


def test_rescue_is_measured_from_the_kill_to_the_next_start() -> None:
    assert rescue_times(killed_at_40(again=54.5).history()) == pytest.approx([14.5])


def test_a_rescue_that_took_too_long_fails_the_run() -> None:
    report = judge(killed_at_40(again=57.0).history())
    assert [figure.name for figure in report.broken_figures] == ["rescue after executor kill, p99"]
    assert report.verdict == "fail"


def test_a_rescue_that_another_fault_held_up_is_not_measured() -> None:
    story = killed_at_40(again=70.0)
    story.fault("postgres_kill", 50.0, 60.0)
    assert rescue_times(story.history()) == []


def test_a_rescue_that_has_to_wait_for_its_limit_is_not_measured() -> None:
    assert rescue_times(killed_at_40(again=70.0, gates={"key:a": 1}).history()) == []


def shard_kill(before: float | None) -> Story:
    """A scheduler is killed at 40 s and replaced at 50.5 s; another may have been stopped until `before`."""
    story = Story()
    story.shard(1, "scheduler-1", 1.0, 1)
    story.fault("kill", 40.0, 45.0, "scheduler-1")
    story.shard(1, "scheduler-2", 50.5, 2)
    if before is not None:
        story.fault("stop", before - 3.0, before, "scheduler-2")
    return story


@pytest.mark.parametrize(("before", "broken"), [(None, 1), (20.0, 1), (38.0, 0)])
def test_a_hand_over_is_measured_where_it_was_the_only_trouble(before: float | None, broken: int) -> None:
    assert len(judge(shard_kill(before).history()).broken_figures) == broken


def test_cancel_is_measured_from_its_acknowledgement() -> None:
    story = Story()
    cancelled(story, 0.0, middle)
    acknowledged = next(call.ended_at for call in story.calls if call.op == "cancel")
    assert acknowledged is not None
    heard = {line.phase: line.at - acknowledged for line in story.witness}
    assert term_times(story.history()) == pytest.approx([heard["term"]])
    assert tree_times(story.history()) == pytest.approx([heard["beat"]])


def test_attempts_side_by_side_and_surplus_ones_are_counted() -> None:
    story = Story()
    rescued(story, 0.0, lambda low, high: low if (low, high) == (0.0, 1.0) else (low + high) / 2)
    values = {figure.name: figure.value for figure in figures(story.history())}
    assert values["attempts side by side"] == 1
    assert values["surplus attempts per 10,000 runs"] == 10_000


def test_a_quantile_is_a_value_that_was_seen() -> None:
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([], 0.99) == 0.0


# --- files -------------------------------------------------------------------------------------------------------


def test_a_line_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    line = WitnessLine(at=1.0, run_id="r", attempt=1, fence=2, phase="start")
    write_lines(tmp_path / "witness.jsonl", [line, line])
    (tmp_path / "witness.jsonl").write_bytes((tmp_path / "witness.jsonl").read_bytes()[:-10])
    assert read_lines(tmp_path / "witness.jsonl", WitnessLine) == [line]


def test_fields_that_nobody_judges_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "faults.jsonl").write_text('{"action":"kill","started":1,"ended":2,"role":"api","weather":"fine"}\n')
    [fault] = read_lines(tmp_path / "faults.jsonl", Fault)
    assert fault.kind == "kill_api"


def test_a_folder_is_judged_by_one_command(tmp_path: Path) -> None:
    story = good_story()
    story.witness.clear()
    write_history(story.history(), tmp_path)
    assert read_history(tmp_path).settings.started_at == BEGINNING
    command = [sys.executable, "-m", "tests.chaos.check", str(tmp_path)]
    checked = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stderr
    assert checked.stdout.endswith("verdict: fail\n")
