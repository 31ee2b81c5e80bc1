"""Versions of a job: every definition it has had, and what differs between two of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hourhand.model.job import JobDefinition


@dataclass(frozen=True, slots=True)
class Version:
    version: int
    definition: JobDefinition
    """What an executor must offer is left open: that follows from the rest, by the kinds of today."""
    changed_at: datetime
    changed_by: str


@dataclass(frozen=True, slots=True)
class FieldChange:
    field: str
    """Where, as a JSON pointer: /payload/argv."""
    before: Any
    """None also where there was nothing."""
    after: Any


def differences(before: Mapping[str, Any], after: Mapping[str, Any], pointer: str = "") -> list[FieldChange]:
    """What differs, in the order of the fields. Objects are looked into, lists are compared as a whole."""
    found: list[FieldChange] = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        place = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if old == new and type(old) is type(new):
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, place)
        else:
            found.append(FieldChange(place, old, new))
    return found
