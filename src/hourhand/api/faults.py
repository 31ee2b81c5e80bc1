"""Every fault of a request in one refusal, at the fields the caller wrote.

Faults are found in stages: those of form while the body is read, those of a contract's own rules while it is
translated, those of meaning by the operation. A route that has found any of the first two asks the operation only what
else is wrong, so nothing is stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Final

from hourhand.model.errors import Fault, InvalidFields

FAULTS_MAX: Final = 100
"""More faults than this help nobody; the rest is left out."""
_NEEDED_FOR: Final = {
    "kind": "payload",
    "payload": "concurrency_key",
    "concurrency_key": "concurrency_limit",
    "unique_key": "unique_period",
}
"""Fields of a job, each with the one that nobody can judge without it."""


def all_faults(*stages: Sequence[Fault], depth: int = 1) -> InvalidFields:
    """What all stages found. Those after one that refused a field saw it without its value, and are not heard on it.

    `depth` says how many steps of a pointer lead to a field: one, or in a batch two.
    """
    told: list[Fault] = []
    settled: set[str] = set()
    for stage in stages:
        told += [fault for fault in stage if settled.isdisjoint(_steps_to_field(fault, depth))]
        settled = {field for fault in told for field in _with_dependent(_steps_to_field(fault, depth)[-1])}
    return InvalidFields(told[:FAULTS_MAX])


def renamed(faults: Sequence[Fault], names: Mapping[str, str]) -> list[Fault]:
    """For contracts with other field names. Replaces the beginnings of pointers; of several that fit, the first."""
    return [_renamed(fault, names) for fault in faults]


@contextmanager
def renamed_pointers(names: Mapping[str, str]) -> Iterator[None]:
    """The same for the faults that an operation raises."""
    try:
        yield
    except InvalidFields as invalid:
        raise InvalidFields(renamed(invalid.faults, names)) from None


def _steps_to_field(fault: Fault, depth: int) -> list[str]:
    """The pointers on the way: /17 and /17/payload for a fault at /17/payload/argv of a batch."""
    steps = fault.pointer.split("/")[1 : depth + 1]
    return list(accumulate(steps, "{}/{}".format, initial=""))


def _with_dependent(field: str) -> list[str]:
    place, _, name = field.rpartition("/")
    return [field, f"{place}/{_NEEDED_FOR[name]}"] if name in _NEEDED_FOR else [field]


def _renamed(fault: Fault, names: Mapping[str, str]) -> Fault:
    for old, new in names.items():
        if fault.pointer == old or fault.pointer.startswith(old + "/"):
            return replace(fault, pointer=new + fault.pointer[len(old) :])
    return fault
