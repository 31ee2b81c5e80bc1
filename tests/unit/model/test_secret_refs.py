import copy
import pickle

import pytest

from hourhand.model.secret_refs import (
    SecretValues,
    file_variables,
    filled,
    reference_faults,
    references,
    secret_bytes,
    secret_file_faults,
    secret_files,
    secret_list_faults,
    secret_names,
)

VALUES = SecretValues({"TOKEN": "t0ken", "KEY": "-----BEGIN\nkey"})


@pytest.mark.parametrize(
    "path", ["output", "output/x", "artifact/main.py", ".hourhand-progress", ".hourhand-tmp", ".hourhand-tmp/x"]
)
def test_no_secret_file_lies_where_it_is_published_or_in_the_way(path: str) -> None:
    [fault] = secret_file_faults({path: {"secret": "KEY"}, "tls/output": {"secret": "TOKEN"}})
    assert (fault.pointer, fault.code) == ("/secret_files/" + path.replace("/", "~1"), "path-reserved")


def test_all_that_is_wrong_with_secret_files_is_told_at_once() -> None:
    faults = secret_file_faults({"output/x": {"secret": "no name"}, "../a": 1, "artifact": {"secret": "KEY"}})
    assert [(fault.pointer, fault.code) for fault in faults] == [
        ("/secret_files/output~1x", "path-reserved"),
        ("/secret_files/output~1x/secret", "invalid-reference"),
        ("/secret_files/..~1a", "path-outside-workdir"),
        ("/secret_files/..~1a", "wrong-type"),
        ("/secret_files/artifact", "path-reserved"),
    ]


def test_references_are_found_where_texts_may_be_secrets_and_nowhere_else() -> None:
    payload = {
        "argv": ["env", {"secret": "NOT_HERE"}],
        "env": {"A": {"secret": "TOKEN"}, "B": "plain"},
        "headers": {"Authorization": {"secret": "TOKEN", "prefix": "Bearer "}},
        "body": {"secret": "of the user's own"},
        "oauth": {"client_id": "me", "client_secret": {"secret": "OAUTH"}},
        "secret_files": {"conf/a~b.pem": {"secret": "KEY"}},
    }
    assert sorted(references("command", payload)) == [
        ("/env/A", "TOKEN"),
        ("/headers/Authorization", "TOKEN"),
        ("/oauth/client_secret", "OAUTH"),
        ("/secret_files/conf~1a~0b.pem", "KEY"),
    ]
    assert secret_names("command", payload) == ("KEY", "OAUTH", "TOKEN")


def test_of_a_python_payload_only_the_list_of_names_is_ours() -> None:
    payload = {"handler": "a", "secrets": ["KEY", "TOKEN"], "env": {"x": {"secret": "MINE"}}, "headers": 3}
    assert secret_names("python", payload) == ("KEY", "TOKEN")
    assert secret_names("python", {"secrets": "mine"}) == ()


def test_values_are_put_in_the_places_of_references_and_the_payload_stays_as_it_is() -> None:
    payload = {
        "env": {"A": {"secret": "TOKEN", "prefix": "x-", "suffix": "-y"}, "B": "plain"},
        "oauth": {"client_secret": {"secret": "TOKEN"}},
        "body": {"secret": "TOKEN"},
    }
    before = copy.deepcopy(payload)
    full = filled(payload, VALUES)
    assert full["env"] == {"A": "x-t0ken-y", "B": "plain"}
    assert full["oauth"] == {"client_secret": "t0ken"}
    assert full["body"] == {"secret": "TOKEN"}
    assert payload == before


def test_a_payload_without_secrets_is_not_even_copied() -> None:
    payload = {"env": {"A": "b"}}
    assert filled(payload, {}) is payload


def test_files_have_their_content_and_a_variable_that_says_where_they_are() -> None:
    payload = {"secret_files": {"tls/key.pem": {"secret": "KEY"}}}
    assert secret_files(payload, VALUES) == {"tls/key.pem": b"-----BEGIN\nkey"}
    assert file_variables(payload) == {"HOURHAND_SECRET_FILE_KEY": "tls/key.pem"}


def test_bytes_that_are_no_text_survive() -> None:
    value = b"\xff\x00\xfe".decode("utf-8", "surrogateescape")
    assert secret_bytes(value) == b"\xff\x00\xfe"


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        (5, ["/env/A"]),
        ({}, ["/env/A"]),
        ({"secret": 5}, ["/env/A/secret"]),
        ({"secret": "a b"}, ["/env/A/secret"]),
        ({"secret": "../x"}, ["/env/A/secret"]),
        ({"secret": "A", "value": "oops"}, ["/env/A/value"]),
        ({"secret": "", "prefix": 3, "suffix": "\0"}, ["/env/A/secret", "/env/A/prefix", "/env/A/suffix"]),
    ],
)
def test_every_fault_of_a_reference_is_told_with_its_place(value: object, pointers: list[str]) -> None:
    assert [fault.pointer for fault in reference_faults(value, "/env/A")] == pointers


def test_what_a_wrong_reference_holds_is_not_repeated() -> None:
    faults = reference_faults({"secret": "the value itself!", "prefix": "x" * 2000}, "/env/A")
    assert "the value itself" not in repr(faults)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a\0b", "x" * 300])
def test_secret_files_stay_inside_the_work_folder(path: str) -> None:
    assert secret_file_faults({path: {"secret": "KEY"}})[0].code == "path-outside-workdir"


def test_secret_files_do_not_get_into_each_others_way() -> None:
    assert secret_file_faults({"a": {"secret": "K"}, "b/c": {"secret": "L"}}) == []
    assert secret_file_faults({"a": {"secret": "K"}, "a/b": {"secret": "L"}})[0].code == "path-outside-workdir"
    assert secret_file_faults({"a": {"secret": "K.1"}, "b": {"secret": "K_1"}})[0].code == "invalid-reference"
    assert secret_file_faults({str(n): {"secret": "K"} for n in range(40)})[0].code == "too-many-entries"


def test_the_list_of_names_is_checked_entry_by_entry() -> None:
    assert secret_list_faults("A")[0].code == "wrong-type"
    assert [fault.pointer for fault in secret_list_faults(["A", 3, "b c"])] == ["/secrets/1", "/secrets/2"]


def test_values_are_shown_and_written_nowhere() -> None:
    assert "t0ken" not in repr(VALUES)
    assert "t0ken" not in str(VALUES)
    assert "t0ken" not in f"{VALUES}"
    with pytest.raises(TypeError):
        pickle.dumps(VALUES)


def test_the_key_that_signs_calls_may_be_a_secret_of_http_jobs_only() -> None:
    payload = {"url": "https://example.com/", "sign_with": {"secret": "KEY"}}
    assert list(references("http", payload)) == [("/sign_with", "KEY")]
    assert list(references("a-plugin", payload)) == [], "there it is the plugin's own"
    assert filled(payload, VALUES)["sign_with"] == VALUES["KEY"]
    assert filled({"sign_with": "plain"}, VALUES)["sign_with"] == "plain"
