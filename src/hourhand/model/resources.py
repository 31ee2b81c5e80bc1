"""What a run takes of its executor while it runs, and what an executor has: cores, memory, places, counted things."""

import math
import re
from collections.abc import Mapping
from typing import Final

import msgspec

CPU_MIN: Final = 0.01
CPU_MAX: Final = 4096.0
MEMORY_MIN: Final = 1_000_000
MEMORY_MAX: Final = 2**50
PIDS_MAX: Final = 4_000_000
DISK_MIN: Final = 1_000_000
DISK_MAX: Final = 2**50
SLOTS_MAX: Final = 10_000
COUNT_MAX: Final = 1_000_000
CUSTOM_MAX: Final = 16
"""How many counted things a job may name."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
SLOTS: Final = "slots"
BUILT_IN: Final = (CPU, MEMORY, "pids", "disk", SLOTS)
"""Names that mean something of their own: nobody's counted things are called so."""

NAME_RULE: Final = (
    "a counted thing has a name like gpu or license: 1 to 40 small letters, digits, dots, dashes or underscores, "
    "beginning with a letter"
)
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]{0,39}")
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
    disk: int | None = None
    """Bytes in its private folder. Enforced, not counted against anybody."""


class SizeFault(ValueError):
    pass


def is_thing(name: str) -> bool:
    """Whether something counted may be called so."""
    return _NAME.fullmatch(name) is not None and name not in BUILT_IN


def parse_size(text: str) -> int:
    """Bytes: "512MB", "1.5 GiB", "4096". Raises SizeFault with a sentence."""
    match = _SIZE.fullmatch(text)
    factor = _BY_LETTERS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise SizeFault("a size is written like 512MB, 2GB or 1GiB, or as a number of bytes")
    return round(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor


class AmountFault(ValueError):
    pass


def parse_amount(text: str) -> tuple[str, float]:
    """What an executor has of one thing: "gpu=2", "cpu=3.5", "memory=8GB". Raises AmountFault with a sentence."""
    name, _, said = (part.strip() for part in text.partition("="))
    if not is_thing(name) and name not in (CPU, MEMORY):
        raise AmountFault(f"{text!r} is written like gpu=2, cpu=4 or memory=8GB; {NAME_RULE}")
    try:
        amount = parse_size(said) if name == MEMORY else float(said) if name == CPU else int(said)
    except ValueError as fault:
        why = str(fault) if isinstance(fault, SizeFault) else "a whole number of it" if name != CPU else "a number"
        raise AmountFault(f"{text!r}: after = follows {why}") from None
    if not 0 <= amount <= (MEMORY_MAX if name == MEMORY else CPU_MAX if name == CPU else COUNT_MAX):
        raise AmountFault(f"{text!r}: so much of {name} there cannot be")
    return name, float(amount)


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
