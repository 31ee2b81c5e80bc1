"""Lines of an attempt: numbered without gaps, head and tail kept, and bounded while nobody takes them."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from hourhand.executor import logs
from hourhand.executor.logs import CROWDED_LINES_MAX, LogBuffer
from hourhand.ports.log_stores import LogChunk

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)


class Taken:
    """Takes lines as the recorder does; may be crowded. Every number must follow the one before, or be declared."""

    def __init__(self, lines_max: int = 1000, bytes_max: int = 8_000_000) -> None:
        self.is_crowded = False
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.next = 1
        self.last: LogChunk | None = None
        self.buffer = LogBuffer(uuid4(), 1, lambda: NOW, self.put, lines_max, lambda: self.is_crowded, bytes_max)

    def put(self, chunk: LogChunk) -> None:
        assert chunk.first_line == self.next
        assert self.last is None, "something follows what was said to be the last"
        assert len(chunk.at) == len(chunk.stream) == (1 if chunk.lines else 0)
        self.next += max(chunk.left_out, len(chunk.lines))
        self.numbers += [chunk.first_line + at for at in range(len(chunk.lines))]
        self.lines += chunk.lines
        self.last = chunk if chunk.is_last else None

    def say(self, *texts: object) -> None:
        for text in texts:
            self.buffer("stdout", str(text))


def test_lines_are_passed_on_as_they_come() -> None:
    taken = Taken()
    taken.say("a", "b")
    assert taken.lines == ["a", "b"]
    taken.buffer.close()
    assert taken.numbers == [1, 2]
    assert taken.last is not None
    assert taken.last.total_bytes == 2


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_beyond_the_allowance_the_middle_is_left_out_with_a_mark(at_once: int) -> None:
    taken = Taken(lines_max=10)
    texts = [str(number) for number in range(100)]
    for begin in range(0, 100, at_once):
        taken.buffer.many("stdout", texts[begin : begin + at_once])
    taken.buffer.close()
    assert taken.lines == ["0", "1", "2", "3", "4", "… 90 lines left out here …", "95", "96", "97", "98", "99"]
    assert taken.numbers == [1, 2, 3, 4, 5, 6, 96, 97, 98, 99, 100]


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_the_allowance_in_bytes_is_kept_on_both_ends(at_once: int) -> None:
    taken = Taken(lines_max=100_000, bytes_max=1000)
    texts = ["é" * 10] * 1000  # 20 bytes each
    for begin in range(0, 1000, at_once):
        taken.buffer.many("stdout", texts[begin : begin + at_once])
    taken.buffer.close()
    assert sum(line.startswith("é") for line in taken.lines) == 50
    assert taken.lines[25] == "… 950 lines left out here …"
    assert taken.next == 1001


def test_of_a_large_allowance_only_a_bounded_end_is_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "TAIL_LINES_MAX", 10)
    taken = Taken(lines_max=1000)
    taken.buffer.many("stdout", ["x"] * 990)
    assert len(taken.lines) == 990
    taken.buffer.many("stdout", ["y"] * 10)
    assert len(taken.lines) == 990
    taken.buffer.close()
    assert taken.lines == ["x"] * 990 + ["y"] * 10


def test_what_is_said_after_the_end_is_not_taken() -> None:
    taken = Taken()
    taken.say("a")
    taken.buffer.close()
    taken.say("left behind")
    assert taken.lines == ["a"]


def test_every_line_passes_the_mask_before_anything_else_sees_it() -> None:
    taken = Taken(lines_max=2)
    taken.buffer.mask = lambda texts: [text.replace("secret", "***") for text in texts]
    taken.say("a secret", "no", "secret again")
    taken.buffer.many("stderr", ["one secret", "two"])
    taken.buffer.close()
    assert taken.lines == ["a ***", "… 3 lines left out here …", "two"]


def test_lines_that_the_database_would_refuse_are_made_storable() -> None:
    taken = Taken()
    taken.buffer.many("stdout", ["a\x00b", "half \udcff", "two\nlines", "y" * 20_000])
    assert taken.lines[:3] == ["ab", "half ?", "two lines"]
    assert taken.lines[3].endswith("y…")
    assert len(taken.lines[3]) == logs.LINE_CHARS_MAX


def test_lines_whose_numbers_could_not_be_stored_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "NUMBER_MAX", 10)
    taken = Taken()
    for _ in range(5):
        taken.buffer.many("stdout", ["x"] * 4)
    taken.buffer.close()
    assert taken.lines == ["x"] * 8 + ["… 12 lines left out here …"]
    assert taken.next == 21


def test_while_it_is_crowded_only_the_newest_lines_are_kept() -> None:
    taken = Taken()
    taken.say("before")
    taken.is_crowded = True
    taken.say(*range(CROWDED_LINES_MAX + 50))
    assert taken.lines == ["before"]
    taken.is_crowded = False
    taken.say("after")
    assert taken.lines[:3] == ["before", "… 50 lines left out here …", "50"]
    assert taken.lines[-2:] == [str(CROWDED_LINES_MAX + 49), "after"]
    assert taken.next == CROWDED_LINES_MAX + 53


def test_what_was_kept_while_it_was_crowded_is_passed_on_at_the_end() -> None:
    taken = Taken()
    taken.is_crowded = True
    taken.say("a", "b")
    taken.buffer.close()
    assert taken.lines == ["a", "b"]


def test_a_crowd_in_the_middle_does_not_use_up_the_allowance() -> None:
    taken = Taken(lines_max=20)
    taken.is_crowded = True
    taken.say("x")
    taken.is_crowded = False
    taken.say(*range(10))
    assert taken.lines == ["x", *map(str, range(10))]
