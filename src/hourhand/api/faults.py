"""Every fault of a request in one refusal, at the fields the caller wrote.

Faults are found in stages: those of form while the body is read, those of a contract's own rules while it is
translated, those of meaning by the operation. A route that has found any of the first two asks the operation only what
else is wrong, so nothing is stored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Final

from hourhand.model.errors import Fault, InvalidFields

FAULTS_MAX: Final = 100
"""More faults than this help nobody; the rest is left out."""
PAYLOAD: Final = "payload"
_UNUSABLE: Final = frozenset({"invalid-unicode", "number-out-of-range"})
"""Codes of values that no field may have."""


def all_faults(*stages: Sequence[Fault], depth: int = 1) -> InvalidFields:
    """What all stages found. Those after one that refused a field saw it without its value, and are not heard on it
    or on what they judged by it. Of a payload they saw all but the values that cannot be used.

    `depth` says how many steps of a pointer lead to a field: one, or in a batch two.
    """
    told: list[Fault] = []
    settled: set[str] = set()
    for stage in stages:
        told += [fault for fault in stage if settled.isdisjoint(_steps(fault.pointer)) and fault.beside not in settled]
        settled = {
            fault.pointer if is_inside_payload(fault, depth) else _steps(fault.pointer)[: depth + 1][-1]
            for fault in told
        }
    return InvalidFields(told[:FAULTS_MAX])


def is_inside_payload(fault: Fault, depth: int = 1) -> bool:
    """Whether it is about a single value inside a payload, whichever kind reads that."""
    steps = fault.pointer.split("/")[depth:]
    return len(steps) > 1 and steps[0] == PAYLOAD and fault.code in _UNUSABLE


def renamed(faults: Sequence[Fault], names: Mapping[str, str]) -> list[Fault]:
    """For contracts with other field names. Replaces the beginnings of pointers; of several that fit, the first."""
    return [_renamed(fault, names) for fault in faults]


@contextmanager
def worded(words_of: Callable[[Sequence[Fault]], Sequence[Fault]]) -> Iterator[None]:
    """Puts the faults that an operation raises into the words of a contract."""
    try:
        yield
    except InvalidFields as invalid:
        raise InvalidFields(words_of(invalid.faults)) from None


def _steps(pointer: str) -> list[str]:
    """The pointers on the way: "", /17, /17/payload and /17/payload/argv for a fault at the last of them."""
    return list(accumulate(pointer.split("/")[1:], "{}/{}".format, initial=""))


def _renamed(fault: Fault, names: Mapping[str, str]) -> Fault:
    for old, new in names.items():
        if fault.pointer == old or fault.pointer.startswith(old + "/"):
            return replace(fault, pointer=new + fault.pointer[len(old) :])
    return fault
