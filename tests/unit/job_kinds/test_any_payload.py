"""Whatever JSON comes as a payload, its kind judges it: faults with pointers, never an exception."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourhand.job_kinds import (
    command_payload,
    container_payload,
    http_payload,
    script_payload,
)
from hourhand.job_kinds.registry import KindSettings, kinds_for_checking
from hourhand.model.templates import template_faults

KINDS = kinds_for_checking(KindSettings(allow_shell=True, http_allow_job_proxies=True))
WORDS = {
    "command": command_payload.FIELDS,
    "script": script_payload.FIELDS,
    "http": http_payload.FIELDS,
    "container": container_payload.FIELDS,
    "python": ("handler", "secrets", "x"),
}
TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from([
        "", "\0", "../x", "/etc", "a/../../b", "http://[::1", "http://a:99999/", "http://\ud800/", "https://x@y:z/",
        "//a", "{{a}}", "{{''.__class__}}", "sha256:", "a@sha256:" + "0" * 64, "2xx", "GET", "bash",
        "-----BEGIN CERTIFICATE-----", "xn--\u00df", "http://\uff11\uff12\uff17.0.0.1/", "x" * 5000,
    ]),
)  # fmt: skip
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["secret", "prefix", "token_url", "client_id", "a"])), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("kind", sorted(WORDS))
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_payload_is_judged_and_never_an_accident(kind: str, data: st.DataObject) -> None:
    names = st.one_of(st.sampled_from(sorted(WORDS[kind])), TEXTS)
    payload: Mapping[str, Any] = data.draw(st.dictionaries(names, VALUES, max_size=5))
    faults = KINDS[kind].check(payload)
    for fault in [*faults, *template_faults(payload)]:
        assert fault.pointer == "" or fault.pointer.startswith("/"), fault
        assert fault.code
        assert fault.message
    if not faults:
        assert KINDS[kind].needs(payload, "a job")
