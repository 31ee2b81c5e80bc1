"""What handlers take, as executors tell it and the API checks payloads by it.

An executor knows the functions, the API does not: each executor says with its heartbeat what its handlers take, within
bounds. Executors may differ while a new version of a program is rolled out; then a payload is right if it fits one of
them. What nobody offers now is not judged: it may be there tomorrow.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from hourhand.job_kinds.handlers import Handler, Parameters
from hourhand.job_kinds.payload_checks import pointer_to
from hourhand.model.errors import Fault

FACT: Final = "handlers"
"""Under which name they are among the facts of a node."""
HANDLERS_TOLD_MAX: Final = 200
PARAMETERS_TOLD_MAX: Final = 50
"""Handlers beyond these bounds are not told of, and their payloads judged by executors alone: facts go with every
heartbeat."""

Signature = Sequence[Any]
"""As it travels: the names that are required, those that are not, and whether any other is taken as well."""


def signatures_of(handlers: Iterable[Handler]) -> dict[str, Signature]:
    """What to tell of these handlers. Those that read their payload themselves take anything and are left out."""
    told: dict[str, Signature] = {}
    for handler in sorted(handlers, key=lambda each: each.name):
        takes = handler.parameters
        if takes is not None and len(takes.accepted) <= PARAMETERS_TOLD_MAX and len(told) < HANDLERS_TOLD_MAX:
            told[handler.name] = (sorted(takes.required), sorted(takes.accepted - takes.required), takes.takes_any)
    return told


class KnownSignatures:
    """What live executors say, by the name of the handler."""

    def __init__(self) -> None:
        self._known: dict[str, list[Parameters]] = {}

    def learn(self, facts: Iterable[Mapping[str, Any]]) -> None:
        """Takes the facts of all executors that are there, in the place of what was known. Nobody is trusted to tell
        them in the right form: what is not is passed over, and so are handlers that one of them offers untold."""
        known: dict[str, list[Parameters]] = {}
        untold: set[str] = set()
        for each in facts:
            told = each.get(FACT)
            told = told if isinstance(told, Mapping) else {}
            for name, signature in told.items():
                takes = _read(signature)
                if takes is None:
                    untold.add(name)
                elif takes not in known.setdefault(name, []):
                    known[name].append(takes)
            untold |= _offered(each) - told.keys()
        self._known = {name: takes for name, takes in known.items() if name not in untold}

    def faults(self, handler: str, payload: Mapping[str, Any]) -> list[Fault]:
        """What keeps a payload from being the arguments of a handler; of several versions, of the one it fits best."""
        found: list[Fault] | None = None
        for takes in self._known.get(handler, ()):
            faults = signature_faults(handler, takes, payload)
            if not faults:
                return []
            if found is None or len(faults) < len(found):
                found = faults
        return found or []


def signature_faults(handler: str, takes: Parameters, payload: Mapping[str, Any]) -> list[Fault]:
    missing, extra = takes.misfits(payload)
    faults = [
        Fault(pointer_to(name), "signature-mismatch", f"handler {handler!r} needs the argument {name!r}")
        for name in missing
    ]
    for name in extra:
        close = get_close_matches(name, takes.accepted, n=1)
        hint = f"did you mean {close[0]!r}?" if close else None
        message = f"handler {handler!r} has no argument {name[:100]!r}"
        faults.append(Fault(pointer_to(name), "signature-mismatch", message, hint, sorted(takes.accepted)))
    return faults


def _read(signature: Any) -> Parameters | None:
    match signature:
        case [list(required), list(optional), bool(takes_any)] if all(
            isinstance(name, str) for name in (*required, *optional)
        ):
            return Parameters(True, frozenset(required), frozenset((*required, *optional)), takes_any)
    return None


def _offered(facts: Mapping[str, Any]) -> set[str]:
    offers = facts.get("offers")
    rooms = offers.values() if isinstance(offers, Mapping) else ()
    needs = [need for room in rooms if isinstance(room, list) for need in room]
    return {need.removeprefix("python:") for need in needs if isinstance(need, str) and need.startswith("python:")}
