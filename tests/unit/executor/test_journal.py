"""Outcomes that wait in a file: on disk when told so, read by the next executor only, and never half."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from hourhand.executor.journal import SUFFIX, Journal, JournalFull
from hourhand.model.states import RunState
from hourhand.ports.stores import Finish, Requeue

NOW = datetime(2030, 1, 7, 12, 0, 0, 123456, tzinfo=UTC)
MEGABYTE = 1024 * 1024


def finish(fence: int = 1, result: object = None, error: str | None = None) -> Finish:
    return Finish(uuid4(), fence, RunState.SUCCEEDED, NOW, NOW + timedelta(seconds=1), None, error, result)


def requeue() -> Requeue:
    ready_at = NOW + timedelta(minutes=1)
    return Requeue(
        uuid4(), 2, RunState.FAILED, NOW, NOW, ready_at, "exception", "no", failed=True, lost=False
    )  # fmt: skip


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def left_by_a_dead_executor(folder: Path, *entries: Finish | Requeue) -> Path:
    journal = Journal(folder, "dead", MEGABYTE)
    journal.append(entries)
    journal.close()
    [path] = files_in(folder)
    return path


def test_what_was_appended_is_read_back_as_it_was(tmp_path: Path) -> None:
    said = [finish(result={"rows": [1, None, "ä\n"]}), requeue(), finish(error="it failed\nbadly")]
    left_by_a_dead_executor(tmp_path, *said)
    [orphan] = Journal(tmp_path, "next", MEGABYTE).orphans()
    assert orphan.entries == said
    assert orphan.unreadable == 0


def test_nothing_is_made_until_something_has_to_be_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "a", MEGABYTE)
    assert journal.fault() is None
    assert list(journal.orphans()) == []
    assert not (tmp_path / "journal").exists()
    journal.append([finish()])
    [path] = files_in(tmp_path / "journal")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_file_goes_when_everything_was_delivered_and_comes_again_when_needed(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a", MEGABYTE)
    for _ in range(3):
        journal.append([finish()])
        assert len(files_in(tmp_path)) == 1
        journal.clear()
        assert files_in(tmp_path) == []


def test_the_journal_of_a_living_executor_is_left_alone(tmp_path: Path) -> None:
    alive = Journal(tmp_path, "alive", MEGABYTE)
    alive.append([finish()])
    other = Journal(tmp_path, "other", MEGABYTE)
    other.append([finish()])
    assert list(other.orphans()) == []
    alive.close()
    [orphan] = other.orphans()
    assert len(orphan.entries) == 1


def test_two_that_start_at_the_same_time_do_not_both_adopt(tmp_path: Path) -> None:
    path = left_by_a_dead_executor(tmp_path, finish())
    [first] = Journal(tmp_path, "a", MEGABYTE).orphans()
    assert list(Journal(tmp_path, "b", MEGABYTE).orphans()) == []
    first.remove()
    assert not path.exists()


def test_an_orphan_that_could_not_be_delivered_stays_for_the_next(tmp_path: Path) -> None:
    left_by_a_dead_executor(tmp_path, finish())
    [first] = Journal(tmp_path, "a", MEGABYTE).orphans()
    first.release()
    [second] = Journal(tmp_path, "b", MEGABYTE).orphans()
    assert len(second.entries) == 1


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_line_that_was_cut_off_by_a_crash_does_not_hide_the_others(tmp_path: Path, cut: int) -> None:
    said = [finish(1), finish(2), finish(3)]
    path = left_by_a_dead_executor(tmp_path, *said)
    os.truncate(path, path.stat().st_size - cut - 1)
    [orphan] = Journal(tmp_path, "next", MEGABYTE).orphans()
    assert orphan.entries == said[:2]
    assert orphan.unreadable == 1


def test_what_does_not_fit_is_refused_and_what_was_there_stays(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a", 2000)
    kept = [finish(1), finish(2)]
    journal.append(kept)
    with pytest.raises(JournalFull):
        journal.append([finish(3, result="x" * 2000)])
    journal.append([finish(4)])
    journal.close()
    [orphan] = Journal(tmp_path, "next", 2000).orphans()
    assert [entry.fence for entry in orphan.entries] == [1, 2, 4]


@pytest.mark.parametrize(
    "entry",
    [finish(result="\udcff"), finish(error="report-\udcff.csv"), finish(result=object())],
    ids=["half a pair in a result", "half a pair in an error", "a result that is no JSON"],
)
def test_an_outcome_that_cannot_be_written_as_it_is_is_kept_all_the_same(tmp_path: Path, entry: Finish) -> None:
    left_by_a_dead_executor(tmp_path, entry)
    [orphan] = Journal(tmp_path, "next", MEGABYTE).orphans()
    [kept] = orphan.entries
    assert (kept.run_id, kept.fence, kept.state) == (entry.run_id, entry.fence, entry.state)


def test_a_name_from_outside_does_not_leave_the_folder(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal", "../../etc/host name", MEGABYTE)
    journal.append([finish()])
    assert [path.parent for path in files_in(tmp_path / "journal")] == [tmp_path / "journal"]


def test_a_folder_that_is_a_file_is_told_before_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("")
    journal = Journal(tmp_path / "journal", "a", MEGABYTE)
    assert journal.fault() == f"{tmp_path / 'journal'} is not a folder"
    with pytest.raises(OSError, match="exists"):
        journal.append([finish()])
