"""What a run takes of its executor while it runs, and what an executor has: cores, memory, places, counted things."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

CPU_MAX: Final = 4096.0
MEMORY_MIN: Final = 1_000_000
MEMORY_MAX: Final = 2**50
PIDS_MAX: Final = 4_000_000
SLOTS_MAX: Final = 10_000
COUNT_MAX: Final = 1_000_000
CUSTOM_MAX: Final = 16
"""How many counted things a job may name."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
BUILT_IN: Final = (CPU, MEMORY, "pids", "slots")
"""Names that mean something of their own: nobody's counted things are called so."""

_SIZE: Final = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([a-zA-Z]{0,3})\s*")
_UNITS: Final[Mapping[str, int]] = {
    "TiB": 2**40, "TB": 10**12, "GiB": 2**30, "GB": 10**9, "MiB": 2**20, "MB": 10**6, "KiB": 2**10, "kB": 10**3, "B": 1,
}  # fmt: skip
_BY_LETTERS: Final = {unit.lower(): factor for unit, factor in _UNITS.items()} | {"": 1}


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one attempt is given. Taken of its executor at the claim, given back at the end, and kept to where the
    kernel can. What is None is not asked for: nothing is taken of it, and nothing is enforced."""

    cpu: float | None = None
    """Cores; half of one is 0.5."""
    memory: int | None = None
    """Bytes."""
    pids: int | None = None
    """Processes and threads at once. Enforced, not counted against anybody."""
    slots: int = 1
    """Places in its executor's room."""
    custom: Mapping[str, int] = {}
    """Counted things that executors have by their configuration: {"gpu": 1}."""

    @property
    def counted(self) -> dict[str, float]:
        """What is taken from what an executor has, by name."""
        said = ((CPU, self.cpu), (MEMORY, self.memory), *sorted(self.custom.items()))
        return {name: amount for name, amount in said if amount}


class SizeFault(ValueError):
    pass


def parse_size(text: str) -> int:
    """Bytes: "512MB", "1.5 GiB", "4096". Raises SizeFault with a sentence."""
    match = _SIZE.fullmatch(text)
    factor = _BY_LETTERS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise SizeFault("a size is written like 512MB, 2GB or 1GiB, or as a number of bytes")
    return round(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor


def format_size(size: int) -> str:
    """Exactly, in the largest unit that gives a whole number: what `parse_size` reads back."""
    whole = [(size // factor, unit) for unit, factor in _UNITS.items() if size % factor == 0]
    count, unit = min(whole, key=lambda each: len(str(each[0]))) if size else (0, "B")
    return f"{count}{unit}"


def tell_size(size: float) -> str:
    """For people, to two digits: "1.2 GB"."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= _UNITS[unit]:
            amount = size / _UNITS[unit]
            return f"{amount:.0f} {unit}" if amount >= 10 or amount == int(amount) else f"{amount:.1f} {unit}"
    return f"{size:.0f} B"


def tell_amount(name: str, amount: float) -> str:
    """For people: "2 GB", "1.5 cpu", "1 gpu". What there is of a thing is rounded down: none is promised too much."""
    if name == MEMORY:
        return tell_size(amount)
    return f"{math.floor(amount * 100 + 1e-6) / 100:g} {name}"


def lacking(wanted: Resources, free: Mapping[str, float]) -> Iterator[str]:
    """The names of what there is not enough of."""
    for name, amount in wanted.counted.items():
        if amount > free.get(name, 0) + 1e-9:
            yield name
