from hourhand.job_kinds.lines import LINE_BYTES_MAX, LineSplitter, lines_of


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
    assert "".join(lines) == "x" * 1_000_000
    assert max(map(len, lines)) == LINE_BYTES_MAX


def test_a_long_line_is_not_split_in_the_middle_of_a_character():
    splitter = LineSplitter()
    text = "x" + "é" * LINE_BYTES_MAX
    assert "".join(splitter.feed(text.encode() + b"\n")) == text


def test_bytes_that_are_no_text_are_replaced_and_nul_is_dropped():
    assert LineSplitter().feed(b"a\xff\x00b\n") == ["a\N{REPLACEMENT CHARACTER}b"]


def test_continuation_bytes_without_a_beginning_do_not_stop_the_splitter():
    assert len(LineSplitter().feed(b"\x80" * 100_000 + b"\n")) >= 6


def test_a_text_is_cut_by_the_same_rules():
    assert list(lines_of("a\r\nb\x00c\n" + "y" * (LINE_BYTES_MAX + 1))) == ["a", "bc", "y" * LINE_BYTES_MAX, "y"]
