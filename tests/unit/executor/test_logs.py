"""Lines of an attempt: numbered without gaps, head and tail kept, and bounded while nobody takes them."""

from datetime import UTC, datetime
from uuid import uuid4

from hourhand.executor.logs import CROWDED_LINES_MAX, LogBuffer
from hourhand.ports.stores import LogChunk

NOW = datetime(2030, 1, 7, 12, tzinfo=UTC)


class Taken:
    """Takes lines as the recorder does; may be crowded."""

    def __init__(self, lines_max: int = 1000) -> None:
        self.is_crowded = False
        self.lines: list[str] = []
        self.numbers: list[int] = []
        self.buffer = LogBuffer(uuid4(), 1, lambda: NOW, self.put, lines_max, lambda: self.is_crowded)

    def put(self, chunk: LogChunk) -> None:
        self.numbers.append(chunk.first_line)
        self.lines += chunk.lines

    def say(self, *texts: object) -> None:
        for text in texts:
            self.buffer("stdout", str(text))


def test_lines_are_passed_on_as_they_come() -> None:
    taken = Taken()
    taken.say("a", "b")
    assert taken.lines == ["a", "b"]
    taken.buffer.close()
    assert taken.numbers == [1, 2]


def test_beyond_the_allowance_the_middle_is_left_out_with_a_mark() -> None:
    taken = Taken(lines_max=10)
    taken.say(*range(100))
    taken.buffer.close()
    assert taken.lines == ["0", "1", "2", "3", "4", "… 90 lines left out here …", "95", "96", "97", "98", "99"]
    assert taken.numbers == list(range(1, 12))


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
    assert taken.numbers == list(range(1, len(taken.lines) + 1))


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
