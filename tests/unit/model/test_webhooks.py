import base64

import pytest

from hourhand.model.errors import BadSignature, StaleSignature
from hourhand.model.webhooks import (
    KEYS_MAX,
    SIGNATURES_MAX,
    TOLERANCE_SECONDS,
    SignedCall,
    key_text,
    keys_in,
    read_signed,
    signature,
    signed_by,
    signed_headers,
)

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
NOW = 1_700_000_000
BODY = b'{"status": "succeeded"}'


def headers(**changed: str | None) -> dict[str, str | None]:
    replaced = {f"webhook-{name}": value for name, value in changed.items()}
    return {**signed_headers([KEY], "msg_1", NOW, BODY), **replaced}


@pytest.mark.parametrize(
    ("secret", "message_id", "second", "body", "expected"),
    [
        (
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
            b'{"test": 2432232314}', "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
        (
            "whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", 1731705121,
            b'{"event_type":"ping","data":{"success":true}}', "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
        ),
    ],
)  # fmt: skip
def test_signatures_are_those_that_the_libraries_of_standard_webhooks_make(
    secret: str, message_id: str, second: int, body: bytes, expected: str
) -> None:
    [key] = keys_in(secret)
    assert signature(key, message_id, second, body) == expected
    call = read_signed(
        {"webhook-id": message_id, "webhook-timestamp": str(second), "webhook-signature": expected}, second
    )
    assert signed_by(call, [key], body) == 0


def test_a_call_is_known_by_the_key_that_signed_it_and_by_no_other() -> None:
    call = read_signed(headers(), NOW)
    assert signed_by(call, [OTHER, KEY], BODY) == 1
    assert signed_by(call, [OTHER], BODY) is None
    assert signed_by(call, [], BODY) is None


@pytest.mark.parametrize(
    "call",
    [
        SignedCall("msg_2", NOW, (signature(KEY, "msg_1", NOW, BODY),)),
        SignedCall("msg_1", NOW + 1, (signature(KEY, "msg_1", NOW, BODY),)),
        SignedCall("msg_1", NOW, (signature(KEY, "msg_1", NOW, BODY + b" "),)),
        SignedCall("msg_1", NOW, (signature(KEY, "msg_1", NOW, BODY).removeprefix("v1,"),)),
        SignedCall("msg_1", NOW, (signature(KEY, "msg_1", NOW, BODY).replace("v1,", "v1a,"),)),
        SignedCall("msg_1", NOW, (signature(KEY, "msg_1", NOW, BODY)[:-1],)),
        SignedCall("msg_1", NOW, ("v1,", "", "é", "v1,\ud800")),
        SignedCall("msg_1", NOW, ()),
    ],
)
def test_whatever_was_not_signed_exactly_so_is_signed_by_nobody(call: SignedCall) -> None:
    assert signed_by(call, [KEY, OTHER], BODY) is None


def test_while_a_key_is_replaced_a_call_is_signed_by_both_and_known_by_either() -> None:
    both = read_signed(signed_headers([OTHER, KEY], "msg_1", NOW, BODY), NOW)
    assert len(both.signatures) == 2
    assert signed_by(both, [KEY], BODY) == signed_by(both, [OTHER], BODY) == 0
    unknown_versions = headers(signature=f"v9,abc v1a,def {signature(KEY, 'msg_1', NOW, BODY)}")
    assert signed_by(read_signed(unknown_versions, NOW), [KEY], BODY) == 0


def test_no_more_signatures_are_looked_at_than_anybody_needs() -> None:
    flood = " ".join([*["v1,AAAA"] * SIGNATURES_MAX, signature(KEY, "msg_1", NOW, BODY)])
    call = read_signed(headers(signature=flood), NOW)
    assert len(call.signatures) == SIGNATURES_MAX
    assert signed_by(call, [KEY], BODY) is None


@pytest.mark.parametrize("missing", ["id", "timestamp", "signature"])
@pytest.mark.parametrize("value", [None, ""])
def test_half_a_signature_is_none_and_the_message_names_what_is_missing(missing: str, value: str | None) -> None:
    with pytest.raises(BadSignature, match=f"webhook-{missing} is missing"):
        read_signed(headers(**{missing: value}), NOW)


@pytest.mark.parametrize("message_id", ["a.b", "a b", "é", "x" * 257, "a\x00", "\x7f"])
def test_an_id_could_not_be_mistaken_for_a_part_of_what_follows_it(message_id: str) -> None:
    with pytest.raises(BadSignature, match="webhook-id"):
        read_signed(headers(id=message_id), NOW)


@pytest.mark.parametrize("second", ["soon", "-1", "+1700000000", "1700000000.5", "1_700_000_000", "9" * 13, "١٧٠"])
def test_a_time_is_digits_and_nothing_else(second: str) -> None:
    with pytest.raises(BadSignature, match="webhook-timestamp"):
        read_signed(headers(timestamp=second), NOW)


def test_a_call_is_believed_for_five_minutes_before_and_after() -> None:
    for away in (-TOLERANCE_SECONDS, 0, TOLERANCE_SECONDS):
        assert read_signed(headers(timestamp=str(NOW + away)), NOW).second == NOW + away
    for away, words in ((-TOLERANCE_SECONDS - 1, "301 seconds ago"), (TOLERANCE_SECONDS + 1, "301 seconds from now")):
        with pytest.raises(StaleSignature, match=words):
            read_signed(headers(timestamp=str(NOW + away)), NOW)


def test_keys_are_base64_with_their_prefix_or_without_and_several_while_one_is_replaced() -> None:
    assert keys_in(key_text(KEY)) == keys_in(base64.b64encode(KEY).decode()) == [KEY]
    assert keys_in(f"{key_text(OTHER)}\n {key_text(KEY)}\n") == [OTHER, KEY]


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "whsec_", "whsec_é", "whsec_a-passphrase-that-nobody-guesses"],
        *[key_text(b"x" * 15), key_text(b"x" * 129), " ".join([key_text(KEY)] * (KEYS_MAX + 1))],
    ],
)
def test_what_is_no_key_is_refused_without_repeating_any_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        keys_in(text)
    assert not text.strip() or text.strip() not in str(caught.value)
