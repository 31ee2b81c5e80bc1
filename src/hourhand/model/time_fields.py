"""Fields that are times or zones, read: the value, or None and what is wrong with it among the faults."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from hourhand.model.errors import Fault
from hourhand.model.local_time import InstantFault, ZoneFault, load_zone, parse_instant, readings_of


def read_zone(raw: object, faults: list[Fault]) -> str | None:
    if raw is None:
        return None
    if not isinstance(raw, str):
        faults.append(Fault("/zone", "wrong-type", expected("the name of a time zone such as 'Europe/Berlin'", raw)))
        return None
    try:
        return load_zone(raw).key
    except ZoneFault as fault:
        faults.append(Fault("/zone", fault.code, str(fault), allowed=fault.suggestions or None))
        return None


def read_bound(raw: object, pointer: str, zone: str | None, faults: list[Fault]) -> datetime | None:
    return None if raw is None else read_instant(raw, pointer, zone, faults)


def read_instant(raw: object, pointer: str, zone: str | None, faults: list[Fault]) -> datetime | None:
    if isinstance(raw, datetime) and raw.tzinfo is not None:
        return raw.astimezone(UTC)
    if not isinstance(raw, str):
        faults.append(Fault(pointer, "wrong-type", expected("an RFC 3339 string such as '2030-01-31T09:00:00Z'", raw)))
        return None
    try:
        return parse_instant(raw)
    except InstantFault as fault:
        faults.append(_without_offset(fault.local, pointer, zone) or Fault(pointer, fault.code, str(fault)))
        return None


def _without_offset(local: datetime | None, pointer: str, zone: str | None) -> Fault | None:
    """A better answer than `offset-required` where the job's zone is known."""
    if local is None or zone is None:
        return None
    readings = [reading.isoformat() for reading in readings_of(local, load_zone(zone))]
    if not readings:
        message = f"{local.isoformat()} does not exist in {zone}: the clock jumps over it"
        return Fault(pointer, "invalid-date-time", message)
    if len(readings) > 1:
        message = f"{local.isoformat()} comes twice in {zone}; write {' or '.join(readings)}"
        return Fault(pointer, "ambiguous-local-time", message, allowed=readings)
    return Fault(pointer, "offset-required", "the offset is missing", hint=f"in {zone} write {readings[0]}")


def expected(what: str, raw: object) -> str:
    return f"expected {what}, not {_JSON_TYPES.get(type(raw), 'something else')}"


_JSON_TYPES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
