import asyncio
import os

from hourhand.job_kinds.lines import LINE_BYTES_MAX, LineReader, LineSplitter, lines_of
from hourhand.model.log import CUT


def test_lines_are_given_when_they_are_whole():
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.feed(b"o\r\nthree") == ["two"]
    assert splitter.finish() == ["three"]
    assert splitter.finish() == []


def test_an_endless_line_is_split_and_never_kept_whole():
    splitter = LineSplitter()
    lines = [line for _ in range(100) for line in splitter.feed(b"x" * 10_000)]
    lines += splitter.finish()
    assert "".join(line.strip(CUT) for line in lines) == "x" * 1_000_000
    assert max(map(len, lines)) == LINE_BYTES_MAX + 2 * len(CUT)


def test_where_a_line_was_cut_both_pieces_say_so():
    splitter = LineSplitter()
    first = splitter.feed(b"a" * (LINE_BYTES_MAX + 3))
    assert first == ["a" * LINE_BYTES_MAX + CUT]
    assert splitter.feed(b"\nnext\n") == [CUT + "aaa", "next"]
    assert splitter.feed(b"b" * LINE_BYTES_MAX + b"\n") == ["b" * LINE_BYTES_MAX]


def test_many_usual_lines_and_an_unusual_one_among_them_come_in_their_order():
    splitter = LineSplitter()
    assert splitter.feed(b"one\r\n\r\ntwo\rthree\n") == ["one", "", "two\rthree"]
    assert splitter.feed("é\n".encode() + b"\xff\n" + b"c" * (LINE_BYTES_MAX + 1) + b"\nd\r\n") == [
        "é",
        "\N{REPLACEMENT CHARACTER}",
        "c" * LINE_BYTES_MAX + CUT,
        CUT + "c",
        "d",
    ]


async def test_a_reader_that_is_asked_to_pause_reads_no_more_until_there_is_room():
    heard: list[str] = []
    room = asyncio.get_running_loop().create_future()

    def take(_stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        heard.extend(lines)
        return None if room.done() else room

    read_end, write_end = os.pipe()
    reader = LineReader(read_end, "stdout", take)
    os.write(write_end, b"one\n")
    while not heard:
        await asyncio.sleep(0)
    os.write(write_end, b"two\n")
    for _ in range(20):
        await asyncio.sleep(0)
    assert heard == ["one"]
    room.set_result(None)
    while len(heard) < 2:
        await asyncio.sleep(0)
    os.close(write_end)
    await reader.drain(5.0)
    reader.close()
    os.close(read_end)
    assert heard == ["one", "two"]


async def test_what_an_ended_program_left_in_its_pipe_is_read_although_there_is_no_room():
    heard: list[str] = []
    never = asyncio.get_running_loop().create_future()

    def take(_stream: str, lines: list[str]) -> "asyncio.Future[None] | None":
        heard.extend(lines)
        return never

    read_end, write_end = os.pipe()
    reader = LineReader(read_end, "stdout", take)
    os.write(write_end, b"one\n")
    while not heard:
        await asyncio.sleep(0)
    os.write(write_end, b"two\nthree")
    os.close(write_end)
    await reader.drain(5.0)
    reader.close()
    os.close(read_end)
    assert heard == ["one", "two", "three"]


def test_a_long_line_is_not_split_in_the_middle_of_a_character():
    splitter = LineSplitter()
    text = "x" + "é" * LINE_BYTES_MAX
    assert "".join(line.strip(CUT) for line in splitter.feed(text.encode() + b"\n")) == text


def test_bytes_that_are_no_text_are_replaced_and_nul_is_dropped():
    assert LineSplitter().feed(b"a\xff\x00b\n") == ["a\N{REPLACEMENT CHARACTER}b"]


def test_continuation_bytes_without_a_beginning_do_not_stop_the_splitter():
    assert len(LineSplitter().feed(b"\x80" * 100_000 + b"\n")) >= 6


def test_a_text_is_cut_by_the_same_rules():
    assert list(lines_of("a\r\nb\x00c\n" + "y" * (LINE_BYTES_MAX + 1))) == [
        "a",
        "bc",
        "y" * LINE_BYTES_MAX + CUT,
        CUT + "y",
    ]
