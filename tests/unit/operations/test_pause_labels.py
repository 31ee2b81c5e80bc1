"""How a label is written where jobs are paused by it."""

import pytest

from hourhand.model.errors import InvalidParameter
from hourhand.operations.pauses import read_label


@pytest.mark.parametrize("text", ["team:data", "team=data"])
def test_both_ways_to_write_a_label_are_read(text: str) -> None:
    assert read_label(text) == {"team": "data"}


@pytest.mark.parametrize("text", ["team", ":data", "=data", ""])
def test_who_writes_it_otherwise_is_told_both(text: str) -> None:
    with pytest.raises(InvalidParameter, match="key:value or key=value"):
        read_label(text)
