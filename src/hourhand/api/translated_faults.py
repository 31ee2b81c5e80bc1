"""For contracts with other field names: faults of an operation point at the fields the caller wrote."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from hourhand.model.errors import Fault, InvalidFields


@contextmanager
def renamed_pointers(names: Mapping[str, str]) -> Iterator[None]:
    """Replaces the beginnings of pointers; of several that fit, the one named first."""
    try:
        yield
    except InvalidFields as invalid:
        raise InvalidFields([_renamed(fault, names) for fault in invalid.faults]) from None


def _renamed(fault: Fault, names: Mapping[str, str]) -> Fault:
    for old, new in names.items():
        if fault.pointer == old or fault.pointer.startswith(old + "/"):
            return replace(fault, pointer=new + fault.pointer[len(old) :])
    return fault
