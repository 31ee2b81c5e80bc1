"""Samples of where processor time goes."""

import json
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hourhand.model import local_time
from hourhand.runtime import stages

RULE = local_time.DstRule(True, local_time.Gap.FIRE_AFTER, local_time.DstOverlap.AUTO)


@pytest.fixture
def sampler(tmp_path: Path) -> stages.StageSampler:
    return stages.StageSampler(tmp_path, "executor")


def samples(folder: Path) -> dict[str, int]:
    [file] = folder.glob("executor-*.json")
    told = json.loads(file.read_text())
    assert told["role"] == "executor"
    return told["samples"]


def test_a_sample_belongs_to_the_innermost_of_our_modules(sampler: stages.StageSampler) -> None:
    seen: list[str] = []

    def local_after(_: datetime) -> None:  # called from a module of ours, and itself none
        seen.append(sampler._stage_of(sys._getframe()))

    local_time.next_instant(datetime(2030, 1, 1, tzinfo=UTC), local_after, local_time.load_zone("UTC"), RULE)
    assert set(seen) == {"model.local_time"}
    assert sampler._stage_of(sys._getframe()) == stages.OUTSIDE


def test_busy_seconds_are_counted_and_written(
    sampler: stages.StageSampler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "WRITE_EVERY", 20)
    before = signal.getsignal(signal.SIGPROF)
    try:
        sampler.start()
        ends = time.process_time() + 5
        while not list(tmp_path.glob("executor-*.json")) and time.process_time() < ends:
            sum(range(1000))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert samples(tmp_path)[stages.OUTSIDE] >= 20
