"""What jobs have said, on the terminal of the person who looks at it."""

import json

import pytest

from hourhand.cli.printing import json_text
from hourhand.model.log import without_steering

HOSTILE = {
    "clears": "a\x1b[2Jb",
    "title": "a\x1b]0;owned\x07b",
    "clipboard": "a\x1b]52;c;ZXZpbA==\x1b\\b",
    "one byte": "a\x9b2Jb",
    "overwrites": "a\rb",
    "turns around": "a\u202eb",
    "isolates": "a\u2066b\u2069",
    "conceals": "a\x1b[8mb",
    "conceals by zeros": "a\x1b[008mb",
    "conceals in red": "a\x1b[1;31;8mb",
    "conceals behind a colour": "a\x1b[38;5;8;8mb",
    "conceals behind three parts": "a\x1b[48;2;1;2;3;8mb",
    "conceals behind half a colour": "a\x1b[38;8mb",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_of_a_log_line_steers_the_terminal(what: str) -> None:
    told = without_steering(f"{HOSTILE[what]} \x1b[31mred\x1b[0m", colours=True)
    assert told.replace("\x1b[31m", "").replace("\x1b[0m", "").isprintable()
    assert "\x1b[31mred" in told
    assert without_steering(HOSTILE[what]).isprintable()


@pytest.mark.parametrize(
    "colour", ["", "0", "1;31", "38;5;8", "38;2;8;8;8", "48;5;8;1", "38:5:8", "58:2::8:8:8", "4:3", "28", "38;5"]
)
def test_colours_stay_also_those_that_have_the_number_of_concealed_text(colour: str) -> None:
    line = f"\x1b[{colour}mtext"
    assert without_steering(line, colours=True) == line


@pytest.mark.parametrize("what", HOSTILE)
def test_json_is_the_same_value_without_anything_that_steers_the_terminal(what: str) -> None:
    written = json_text({"é": HOSTILE[what]}, indent=None)
    assert written.isprintable()
    assert "é" in written
    assert json.loads(written) == {"é": HOSTILE[what]}
