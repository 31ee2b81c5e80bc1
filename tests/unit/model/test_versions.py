"""What differs between two versions of a job, field by field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.versions import FieldChange, differences

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, [FieldChange("/a", 1, 2)]),
        ({"a": 1}, {}, [FieldChange("/a", 1, None)]),
        ({}, {"a": [1]}, [FieldChange("/a", None, [1])]),
        (
            {"p": {"x": 1, "y": 2}},
            {"p": {"x": 1, "y": 3, "z": 4}},
            [FieldChange("/p/y", 2, 3), FieldChange("/p/z", None, 4)],
        ),
        ({"p": {"x": [1, 2]}}, {"p": {"x": [1]}}, [FieldChange("/p/x", [1, 2], [1])]),
        ({"a": 1}, {"a": True}, [FieldChange("/a", 1, True)]),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, [FieldChange("/a~1b/~0", 1, 2)]),
    ],
)
def test_each_difference_is_named_by_its_place(
    before: dict[str, Any], after: dict[str, Any], changes: list[FieldChange]
) -> None:
    assert differences(before, after) == changes


@given(OBJECTS)
def test_nothing_differs_from_itself(value: dict[str, Any]) -> None:
    assert differences(value, value) == []


@given(OBJECTS, OBJECTS)
def test_the_way_back_has_the_same_differences_turned_round(before: dict[str, Any], after: dict[str, Any]) -> None:
    there = {(change.field, repr(change.before), repr(change.after)) for change in differences(before, after)}
    back = {(change.field, repr(change.after), repr(change.before)) for change in differences(after, before)}
    assert there == back
