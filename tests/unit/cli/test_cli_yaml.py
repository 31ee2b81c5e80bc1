"""YAML that every reader takes for the same data."""

import json
from typing import Any

import pytest

from hourhand.cli.yaml_text import yaml_text

TRICKY: dict[str, Any] = {
    "plain": "word",
    "path": "reports/build.daily-1",
    "words": ["yes", "No", "null", "~", "true", "on", "y", ""],
    "numbers_as_text": ["1", "1.5", "1e3", "0x1f", "007", "1_000", "12:30:45", ".inf", "-"],
    "numbers": [0, -1, 1.5, 1e16, 1e-7, True, False, None],
    "signs": ["a: b", "# x", "- x", "*a", "&a", "!t", "{", "[", "%", "@", "`", "'", '"', "a\\b", " x ", "|", ">"],
    "lines": "one\ntwo\r\n\tthree",
    "unicode": "Grüße 🕰 \u2028 \x7f \x85 \x00",
    "empty": [[], {}, [[]], [{}]],
    "nested": [[1, [2, 3]], {"a": {"b": [{"c": 1, "d": [2]}]}}, {"e": [], "f": {}}],
    "123": "key of digits",
    "a: b": "key with a colon",
    "yes": "key that is a word",
    "time": "2030-01-31T09:00:00Z",
}


def test_a_document_reads_as_people_expect() -> None:
    data = {"name": "x", "at": "2030-01-31T09:00:00Z", "labels": {}, "schedule": [{"every": "15m"}], "more": [1, None]}
    assert yaml_text(data) == (
        'name: x\nat: "2030-01-31T09:00:00Z"\nlabels: {}\nschedule:\n  - every: "15m"\nmore:\n  - 1\n  - null\n'
    )


@pytest.mark.parametrize("data", [[], {}, None, "x", 1, [1], [[1], [2]], [{"a": [1], "b": 2}, {}]])
def test_a_reader_gets_back_what_was_written(data: Any) -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(yaml_text(data)) == data


def test_a_reader_gets_back_tricky_data() -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(yaml_text(TRICKY)) == TRICKY


def test_what_could_be_misread_is_quoted() -> None:
    for word in TRICKY["words"] + TRICKY["numbers_as_text"] + TRICKY["signs"]:
        assert json.loads(yaml_text(word)) == word
