"""What handlers wrote down is read as it is: late, early, lost and doubled are told apart."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from hourhand.bench.witness import LineCount, Witnessed, compare, low_half, misdated, read_witness
from hourhand.model.ids import microseconds_since_epoch, scheduled_run_id, time_ordered_id

NOW = datetime(2026, 11, 16, 9, 0, 0, 123_457, tzinfo=UTC)


def job_id(number: int) -> UUID:
    return time_ordered_id(NOW, random.Random(number).getrandbits(74))


def line(job: UUID, due: datetime, late: timedelta, attempt: int = 1, more: str = "") -> str:
    return f"{scheduled_run_id(due, job)} {attempt} {microseconds_since_epoch(due + late)}{more}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "witness"


def test_due_time_and_job_are_read_from_the_run_id(file: Path) -> None:
    file.write_text(line(job_id(1), NOW, timedelta(milliseconds=12, microseconds=5)))

    found = read_witness(file)

    assert list(found.dues) == [microseconds_since_epoch(NOW)]
    assert list(found.lows) == [job_id(1).int & (1 << 64) - 1] == [low_half(str(job_id(1)))]
    assert found.lateness()["max"] == 12.005
    assert found.early() == 0


def test_a_start_before_its_time_is_early(file: Path) -> None:
    late = [timedelta(microseconds=-1), timedelta(0), timedelta(seconds=-3)]
    file.write_text("".join(line(job_id(number), NOW, each) for number, each in enumerate(late)))
    assert read_witness(file).early() == 2


def test_a_run_for_another_time_than_was_asked_for_is_misdated(file: Path) -> None:
    dues = [NOW + timedelta(milliseconds=number) for number in range(4)]
    shifted = [dues[0], dues[1] + timedelta(microseconds=1), dues[2]]  # and the last one never ran
    file.write_text("".join(line(job_id(number), due, timedelta(0)) for number, due in enumerate(shifted)))
    asked = [microseconds_since_epoch(due) for due in dues]

    found = read_witness(file)

    assert misdated(asked, found, lost=1) == 1
    assert misdated(asked[:1], found, lost=0) == 0


def test_reading_begins_at_the_offset_and_leaves_out_half_a_line(file: Path) -> None:
    first, second = line(job_id(1), NOW, timedelta(0)), line(job_id(2), NOW, timedelta(0))
    file.write_text(first + second + second[:40])
    assert list(read_witness(file, len(first)).lows) == [low_half(str(job_id(2)))]


def test_ends_are_no_calls(file: Path) -> None:
    file.write_text(line(job_id(1), NOW, timedelta(0)) + line(job_id(1), NOW, timedelta(seconds=2), more=" end"))

    found = read_witness(file)

    assert len(found) == 1
    assert list(found.ends) == [microseconds_since_epoch(NOW + timedelta(seconds=2))]


def test_lines_across_chunks_are_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourhand.bench.witness._CHUNK_BYTES", 100)
    file.write_text("".join(line(job_id(number), NOW, timedelta(0), attempt=10) for number in range(50)))
    assert list(read_witness(file).lows) == [low_half(str(job_id(number))) for number in range(50)]


def test_others_jobs_are_left_out(file: Path) -> None:
    file.write_text("".join(line(job_id(number), NOW, timedelta(milliseconds=number)) for number in range(4)))
    ours = read_witness(file).only([low_half(str(job_id(number))) for number in (1, 3)])
    assert list(ours.lateness_ms()) == [1.0, 3.0]


@pytest.mark.parametrize(
    ("acknowledged", "seen", "lost", "doubled"),
    [
        ([3, 1, 2], [2, 3, 1], 0, 0),
        ([1, 2, 3], [1, 3], 1, 0),
        ([1, 2, 3], [1, 1, 2, 3, 3, 3], 0, 3),
        ([1, 2, 3], [1, 1], 2, 1),  # one that came twice does not stand for one that never came
        ([1], [1, 7, 7], 0, 0),  # somebody else's
        ([1, 1], [1], 1, 0),  # the same id for two jobs: one of them did not happen
        ([], [], 0, 0),
        ([5, 9], [], 2, 0),
    ],
)
def test_lost_and_doubled_are_told_apart(acknowledged: list[int], seen: list[int], lost: int, doubled: int) -> None:
    assert compare(acknowledged, seen) == {"lost": lost, "doubled": doubled}


def test_lines_are_counted_from_the_first_look_on(file: Path) -> None:
    file.write_text("old\n")
    count = LineCount(file)
    assert (count.offset, count.lines()) == (4, 0)
    with file.open("a") as out:
        out.write("a\nb\n")
    assert count.lines() == 2
    assert count.lines() == 2
    count.close()


def test_nothing_witnessed_is_neither_late_nor_early() -> None:
    assert (Witnessed().lateness()["max"], Witnessed().early()) == (0.0, 0)
