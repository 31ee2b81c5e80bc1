"""The words of a template: each has one meaning, nothing is evaluated, and what is not ours stays as it is."""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.templates import TEMPLATE_WORDS, literally, render, template_faults, zone_or_utc

DUE = datetime(2026, 10, 24, 22, 30, tzinfo=UTC)
"""Half an hour after midnight of the 25th in Berlin, before the clocks are set back."""
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("word", "in_berlin", "in_utc"),
    [
        ("scheduled_time", "2026-10-24T22:30:00Z", "2026-10-24T22:30:00Z"),
        ("scheduled_time_local", "2026-10-25T00:30:00+02:00", "2026-10-24T22:30:00+00:00"),
        ("scheduled_date", "2026-10-25", "2026-10-24"),
        ("scheduled_year", "2026", "2026"),
        ("scheduled_month", "10", "10"),
        ("scheduled_day", "25", "24"),
        ("scheduled_hour", "00", "22"),
        ("scheduled_minute", "30", "30"),
        ("scheduled_unix", "1792881000", "1792881000"),
    ],
)
def test_each_word_stands_for_the_time_of_the_run(word: str, in_berlin: str, in_utc: str) -> None:
    assert render(f"{{{{{word}}}}}", DUE, BERLIN) == in_berlin
    assert render(f"{{{{{word}}}}}", DUE, None) == in_utc


def test_every_word_is_tested_above() -> None:
    assert len(TEMPLATE_WORDS) == 9


def test_words_are_put_into_texts_however_deep_and_keys_stay() -> None:
    payload: dict[str, Any] = {
        "argv": ["load", "--day={{ scheduled_date }}", 7, None],
        "env": {"{{scheduled_date}}": "{{scheduled_hour}}:{{scheduled_minute}}"},
    }
    assert render(payload, DUE, BERLIN) == {
        "argv": ["load", "--day=2026-10-25", 7, None],
        "env": {"{{scheduled_date}}": "00:30"},
    }


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{{{name}}}}", "{{name}}"),
        ("{{{{.State}}}} of {{scheduled_day}}", "{{.State}} of 24"),
        ("{{{{scheduled_date}}}}", "{{scheduled_date}}"),
        ('{"a":{"b":{"c":{"d":1}}}}', '{"a":{"b":{"c":{"d":1}}}}'),
        ("{{unknown}}", "{{unknown}}"),
        ("{{", "{{"),
        ("{scheduled_date}", "{scheduled_date}"),
        ("", ""),
    ],
)
def test_braces_that_are_meant_as_such_stay(text: str, rendered: str) -> None:
    assert render(text, DUE, None) == rendered


@pytest.mark.parametrize("text", ["{{''.__class__}}", "{{7*7}}", "{{scheduled_time.year}}", "{{}}", "{{a b}}"])
def test_what_is_more_than_a_name_is_forbidden(text: str) -> None:
    [fault] = template_faults({"argv": ["x", text]})
    assert (fault.pointer, fault.code) == ("/argv/1", "template-forbidden")


def test_an_unknown_word_is_refused_with_a_suggestion() -> None:
    [fault] = template_faults({"a/b": {"c": "{{scheduled_tim}}"}})
    assert (fault.pointer, fault.code) == ("/a~1b/c", "template-unknown")
    assert fault.hint is not None
    assert fault.hint.startswith("did you mean scheduled_time?")


def test_known_words_and_literal_braces_are_no_fault() -> None:
    assert template_faults({"body": "{{scheduled_time}} {{{{other}}}}", "n": 1, "l": [["{{scheduled_unix}}"]]}) == []


def test_a_thousand_wrong_words_are_told_a_few_at_a_time() -> None:
    assert len(template_faults({"argv": ["{{x}}"] * 1000})) == 20


def test_a_payload_that_is_very_deep_is_neither_searched_nor_changed_below() -> None:
    deep: Any = "{{scheduled_day}}"
    for _ in range(600):
        deep = [deep]
    assert template_faults({"deep": deep}) == []
    assert render(deep, DUE, None) == deep


def test_a_zone_that_the_tz_data_has_lost_counts_as_utc() -> None:
    assert zone_or_utc("Europe/Atlantis") is None


@given(st.text(alphabet="{}ab \"'_", max_size=60))
def test_a_text_without_one_of_the_words_loses_at_most_braces(text: str) -> None:
    rendered = render(text, DUE, None)
    assert rendered.replace("{", "").replace("}", "") == text.replace("{", "").replace("}", "")


@given(st.text(st.sampled_from("{}ab_ .$\n"), max_size=60) | st.text(max_size=30))
def test_a_text_that_is_meant_literally_stays_as_it_is(text: str) -> None:
    assert render(literally(text), DUE, BERLIN) == text
    assert template_faults({"source": literally(text)}) == []
