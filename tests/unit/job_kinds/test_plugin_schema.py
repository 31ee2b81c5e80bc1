import pytest

from hourhand.job_kinds.plugin_schema import faults_by, schema_faults

SCHEMA = {
    "type": "object",
    "required": ["text", "mode"],
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 5},
        "times": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["loud", "low"]},
        "parts": {"type": "array", "items": {"required": ["a"], "properties": {"a": {"type": "number"}}}},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"text": "hi", "mode": "loud", "times": 9, "parts": [{"a": 1.5}]}, []),
        ({}, [("/text", "required"), ("/mode", "required")]),
        ({"text": "hi", "mode": "loud", "tmes": 1}, [("/tmes", "unknown-field")]),
        ({"text": 1, "mode": "loud"}, [("/text", "wrong-type")]),
        ({"text": "hi", "mode": "loud", "times": True}, [("/times", "wrong-type")]),
        ({"text": "", "mode": "loud"}, [("/text", "out-of-range")]),
        ({"text": "too long", "mode": "loud"}, [("/text", "out-of-range")]),
        ({"text": "hi", "mode": "shy", "times": 10}, [("/times", "out-of-range"), ("/mode", "unknown-value")]),
        ({"text": "hi", "mode": "low", "parts": [{}]}, [("/parts/0/a", "required")]),
        ({"text": "hi", "mode": "low", "parts": [{"a": 1}, {"a": "x"}]}, [("/parts/1/a", "wrong-type")]),
        ([], [("", "wrong-type")]),
    ],
)  # fmt: skip
def test_every_difference_is_told_with_its_place(value, expected):
    assert schema_faults(SCHEMA) == []
    assert [(fault.pointer, fault.code) for fault in faults_by(SCHEMA, value)] == expected


@pytest.mark.parametrize(
    "schema",
    [
        [], "object", {"type": "text"}, {"type": "string"}, {"pattern": "(a+)+$"}, {"properties": {"a": 1}},
        {"required": "a"}, {"properties": {"a": {"oneOf": []}}}, {"items": {"typ": 1}}, {"minimum": "1"},
    ],
)  # fmt: skip
def test_a_schema_that_is_not_understood_as_a_whole_is_refused(schema):
    assert schema_faults(schema)


def test_a_schema_that_is_nested_without_end_is_refused():
    schema: dict = {}
    for _ in range(100):
        schema = {"properties": {"a": schema}}
    assert schema_faults(schema)


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"$ref": "http://127.0.0.1/evil.json"}, "remote-ref"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "remote-ref"),
        ({"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}, "pattern-too-complex"),
        ({"patternProperties": {"(x*)*y": {}}}, "pattern-too-complex"),
        ({"type": "text"}, "schema-invalid"),
        ({"properties": {"a": {"oneOf": []}}}, "schema-invalid"),
    ],
)
def test_what_a_schema_must_not_ask_for_has_a_code_of_its_own(schema, code):
    """Row 93: nothing is fetched, and no expression of a stranger is ever run."""
    faults = schema_faults({"type": "object", **schema})
    assert {(fault.pointer, fault.code) for fault in faults} == {("", code)}
