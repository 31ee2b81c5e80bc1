"""Like failures share a fingerprint; different ones do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.fingerprint import fingerprint
from hourhand.model.states import Reason


@pytest.mark.parametrize(
    ("reason", "one", "other"),
    [
        (
            "exception",
            "KeyError: 'customer-7'\n  File \"a.py\", line 3",
            "KeyError: 'customer-9'\n  File \"b.py\", line 8",
        ),
        ("exception", "ValueError: 17 rows, 3.5 s", "ValueError: 4 rows, 0.25 s"),
        (
            "exception",
            "LookupError: run 01a1e1a7-d333-7efc-b4d6-560568a1bdff is gone",
            "LookupError: run 02b2e1a7-0000-7efc-b4d6-560568a1bd00 is gone",
        ),
        ("exception", "RuntimeError: <Thing object at 0x7f31aa>", "RuntimeError: <Thing object at 0x55d0>"),
        ("exception", "OSError: commit 9fceb02d0ae5 not found", "OSError: commit 1b2c3d4e5f66 not found"),
        (
            "exit_code",
            "exited with code 3\nstarting\nno room on disk 7",
            "exited with code 3\nhello\nno room on disk 9",
        ),
        ("connection", "ClientConnectorError: 10.0.0.7:443 refused", "ClientConnectorError: 10.0.0.8:8443 refused"),
    ],
)
def test_what_differs_in_numbers_ids_and_quoted_words_is_alike(reason: str, one: str, other: str) -> None:
    assert fingerprint(reason, one) == fingerprint(reason, other)


def test_what_differs_in_kind_is_told_apart() -> None:
    failures = [
        ("exit_code", "exited with code 3"),
        ("exit_code", "exited with code 4"),
        ("exit_code", "exited with code 3\nno room on disk"),
        ("signal", "killed by SIGKILL"),
        ("signal", "killed by SIGSEGV"),
        ("http_status", "expected 2xx, got 503"),
        ("http_status", "expected 2xx, got 404"),
        ("exception", "KeyError: 'a'"),
        ("exception", "ValueError: 'a'"),
        ("poison", "lost"),
        ("timeout", None),
    ]
    assert len({fingerprint(reason, error) for reason, error in failures}) == len(failures)


def test_nothing_failed_nothing_to_group() -> None:
    assert fingerprint(None, None) is None


@given(st.sampled_from(Reason), st.none() | st.text(max_size=300))
def test_any_failure_has_one_and_always_the_same(reason: Reason, error: str | None) -> None:
    mark = fingerprint(reason, error)
    assert mark is not None
    assert mark == fingerprint(reason.value, error)
    assert len(mark) == 12
