from typing import Any

import msgspec
import pytest

from hourhand.api.decoding import read_body
from hourhand.model.errors import InvalidFields, InvalidParameter, SecretsUnavailable
from hourhand.model.secrets import Sealed, SecretPlace
from hourhand.operations.requests import Caller
from hourhand.operations.secrets import GrantRequest, SecretOperations, SecretPatch, SecretRequest

CALLER = Caller("ada", 1, "default")
VALUE = "hunter2-and-more"


class NoKey:
    def seal(self, value: bytes, place: SecretPlace) -> Sealed:
        raise SecretsUnavailable("there is no key")


class NoStore:
    async def version(self, namespace_id: int, name: str) -> int:
        return 0


nothing: Any = NoStore()
operations = SecretOperations(nothing, NoKey(), nothing)


@pytest.mark.parametrize(
    ("request_", "faults"),
    [
        (SecretRequest(), [("/value", "required")]),
        (SecretRequest(value=VALUE, value_base64="aGk="), [("/value", "required")]),
        (SecretRequest(value=""), [("/value", "invalid-value")]),
        (SecretRequest(value_base64="not base64!"), [("/value_base64", "invalid-value")]),
        (SecretRequest(value="x" * 65537), [("/value", "secret-too-large")]),
        (
            SecretRequest(value=VALUE, description="x" * 1001, grant=GrantRequest(jobs=["x"] * 101, kinds=["y" * 300])),
            [("/grant/jobs", "too-many-entries"), ("/grant/kinds", "invalid-text"), ("/description", "invalid-text")],
        ),
    ],
)
async def test_everything_wrong_with_a_secret_is_told_and_nothing_of_its_value(
    request_: SecretRequest, faults: list[tuple[str, str]]
) -> None:
    with pytest.raises(InvalidFields) as caught:
        await operations.put(CALLER, "DB", request_)
    assert [(fault.pointer, fault.code) for fault in caught.value.faults] == faults
    assert operations.faults_of_put(request_) == caught.value.faults
    assert VALUE not in str(caught.value) + repr(request_)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 64, "-a", "é"])
async def test_names_are_plain(name: str) -> None:
    with pytest.raises(InvalidParameter):
        await operations.put(CALLER, name, SecretRequest(value=VALUE))


async def test_without_a_key_a_value_is_refused_and_not_kept() -> None:
    with pytest.raises(SecretsUnavailable):
        await operations.put(CALLER, "DB", SecretRequest(value=VALUE))


def test_a_value_of_the_largest_size_is_taken() -> None:
    assert operations.faults_of_put(SecretRequest(value="x" * 65536)) == []
    assert operations.faults_of_change(SecretPatch(grant=None, description="words")) == []


@pytest.mark.parametrize(
    "body", [{"value": 918273645}, {"value": [VALUE]}, {"value": None, "secret": VALUE}, {"value": {"a": VALUE}}]
)
def test_a_body_of_a_wrong_form_is_refused_without_repeating_it(body: Any) -> None:
    _, faults = read_body(msgspec.json.encode(body), SecretRequest)
    assert faults or body["value"] is None
    assert VALUE not in repr(faults)
    assert "918273645" not in repr(faults)
