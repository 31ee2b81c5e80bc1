import math

import pytest

from hourhand.model.progress import MESSAGE_CHARS_MAX, tidy


@pytest.mark.parametrize(
    ("said", "kept"),
    [(0, 0), (33.333, 33.3), (100, 100), (-5, 0), (1e300, 100), (None, None), (math.nan, None), (math.inf, None),
     ("half", None), ("50", 50), ([], None), (10**400, None)],
)  # fmt: skip
def test_a_percentage_is_brought_into_its_bounds_or_is_none(said, kept):
    assert tidy(said, "")[0] == kept


def test_a_message_is_one_short_line_of_visible_characters():
    assert tidy(1, "  a\nb\x00\x1b[31mc\ud800 ")[1] == "a b [31mc"
    assert tidy(1, 42)[1] == "42"
    long = tidy(1, "x" * 10_000)[1]
    assert len(long) == MESSAGE_CHARS_MAX
    assert long.endswith("x…")
