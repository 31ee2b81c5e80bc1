"""Error texts, made fit to be stored."""

from hypothesis import example, given
from hypothesis import strategies as st

from hourhand.model.outcome import ERROR_CHARS_MAX, clipped


@given(st.text(max_size=200))
def test_a_short_text_is_kept_but_for_its_nuls(text: str) -> None:
    assert clipped(text) == text.replace("\x00", "␀")


@given(st.integers(0, 200_000))
def test_no_text_is_longer_than_the_limit_and_both_ends_are_kept(length: int) -> None:
    text = "".join(chr(97 + place % 26) for place in range(length))
    short = clipped(text)
    assert len(short) <= ERROR_CHARS_MAX
    assert short[:1000] == text[:1000]
    assert short[-1000:] == text[-1000:]


def test_the_number_of_characters_left_out_is_right() -> None:
    text = "a" * 10_000
    short = clipped(text)
    kept = short.count("a") - "characters left out".count("a")
    assert f"… {10_000 - kept} characters left out …" in short


@given(st.text(alphabet=st.characters(exclude_categories=[]), max_size=50))
@example("\udcff")
def test_whatever_a_job_says_can_be_stored_as_text(text: str) -> None:
    stored = clipped(text)
    assert "\x00" not in stored
    stored.encode()  # half a surrogate pair, as in names of files, has no UTF-8 form
