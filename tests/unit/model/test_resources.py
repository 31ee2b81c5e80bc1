"""Sizes are read and written without loss; what a run takes is counted by name."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourhand.model.demands import Demands, short_of
from hourhand.model.resources import (
    MEMORY_MAX,
    Resources,
    SizeFault,
    format_size,
    parse_size,
    tell_amount,
    tell_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("512MiB", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("2GiB", 2**31),
        ("4096", 4096),
        ("1kb", 1000),
        ("7B", 7),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1", "1 XB", "1e9", "0x10", "1.2.3GB", "512 MB of it", "inf", "9" * 30])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(SizeFault, match="512MB"):
        parse_size(text)


@given(st.integers(0, MEMORY_MAX))
def test_a_written_size_is_read_back_exactly(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_a_size_is_written_in_the_unit_it_was_meant_in() -> None:
    assert [format_size(size) for size in (512_000_000, 2**29, 2**30, 1_500_000_000, 1025, 0)] == [
        "512MB", "512MiB", "1GiB", "1500MB", "1025B", "0B",
    ]  # fmt: skip


def test_amounts_are_told_in_few_digits() -> None:
    assert [tell_size(size) for size in (2e9, 1.234e9, 15.6e9, 999.0, 0.0)] == [
        "2 GB",
        "1.2 GB",
        "16 GB",
        "999 B",
        "0 B",
    ]
    assert tell_amount("memory", 1_200_000_000) == "1.2 GB"
    assert tell_amount("cpu", 0.5) == "0.5 cpu"
    assert tell_amount("gpu", 1) == "1 gpu"


def test_only_what_is_asked_for_is_counted() -> None:
    assert Demands().counted == {}
    assert Demands(slots=3).counted == {}
    asked = Demands(cpu=0.5, memory=10**9, custom={"license": 2, "gpu": 1})
    assert asked.counted == {"cpu": 0.5, "memory": 10**9, "gpu": 1, "license": 2}
    assert list(asked.counted) == ["cpu", "memory", "gpu", "license"]


def test_what_there_is_not_enough_of_is_named() -> None:
    asked = Demands(cpu=1.0, memory=10**9, custom={"gpu": 1})
    assert list(short_of(asked, {"cpu": 1.0, "memory": 10**9, "gpu": 1})) == []
    assert list(short_of(asked, {"cpu": 0.5, "memory": 2 * 10**9})) == ["cpu", "gpu"]
    third = 1 / 3
    assert list(short_of(Demands(cpu=third), {"cpu": 1 - third - third})) == [], "sums of parts are not exact"


def test_resources_are_stored_as_little_as_they_say() -> None:
    assert msgspec.json.encode(Resources(memory=5_000_000)) == b'{"memory":5000000}'
    back = msgspec.json.decode(msgspec.json.encode(Resources(0.5, 1, 2, 3, {"gpu": 1})), type=Resources)
    assert back == Resources(0.5, 1, 2, 3, {"gpu": 1})
