"""Where a job's runs may go: from the caller's words to what is stored, and back."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

from hourhand.model.demands import NO_DEMANDS, demands_of
from hourhand.model.errors import Fault
from hourhand.model.job import JobDefinition
from hourhand.model.node_state import read_facts
from hourhand.model.parts import PARTS_MAX
from hourhand.model.placement import LABEL_RULE, LABELS_MAX, Placement, is_label, sorted_labels, tell_labels
from hourhand.model.room import tell_too_large
from hourhand.operations.requests import PlacementRequest
from hourhand.ports.stores import NodeRow

Refuse = Callable[[Fault], None]
_EVERYWHERE: Final = frozenset({"python", "command", "http"})
"""Kinds that every executor has. Most jobs are of these: nobody is asked for them, what was last heard will do."""


def define_placement(given: PlacementRequest | None, refuse: Refuse) -> Placement | None:
    """None where any executor will do."""
    if given is None:
        return None
    placement = Placement(_labels(given.labels or (), refuse), _on(given.on, refuse))
    return None if placement == Placement() else placement


def placement_request(placement: Placement | None) -> PlacementRequest | None:
    """In the caller's words."""
    return None if placement is None else PlacementRequest(labels=list(placement.labels) or None, on=placement.on)


def _on(given: int | str | None, refuse: Refuse) -> int | Literal["all"] | None:
    if given is None or given == "any":
        return None
    if given == "all":
        return "all"
    if isinstance(given, str) or not 1 <= given <= PARTS_MAX:
        allowed = ["any", "all", f"1 to {PARTS_MAX}"]
        refuse(Fault("/placement/on", "invalid-placement", "on any executor, on all, or on so many", None, allowed))
        return None
    return given


def _labels(given: Sequence[str], refuse: Refuse) -> tuple[str, ...]:
    if len(given) > LABELS_MAX:
        refuse(Fault("/placement/labels", "invalid-labels", f"at most {LABELS_MAX} labels can be asked for"))
    for place, label in enumerate(given[:LABELS_MAX]):
        if not is_label(label):
            refuse(Fault(f"/placement/labels/{place}", "invalid-labels", LABEL_RULE))
    return sorted_labels(given)


def may_lack_executors(definition: JobDefinition) -> bool:
    """Whether it asks for something that not every executor has."""
    return definition.kind not in _EVERYWHERE or demands_of(definition.policy) is not NO_DEMANDS


def placement_warnings(definition: JobDefinition, nodes: Sequence[NodeRow]) -> list[str]:
    """What a person should know who places a job, given who is there. Sentences that begin with a stable word."""
    demands = demands_of(definition.policy)
    facts = [read_facts(node.facts) for node in nodes if node.role == "executor"]
    labels = demands.labels
    able = [each for each in facts if each.may_take(definition.queue, definition.needs, labels)]
    if able:
        why = tell_too_large(definition.needs, demands, able)
        if why:
            return [f"no-matching-executor: {why}; its runs wait for a larger one"]
        on = definition.policy.placement and definition.policy.placement.on
        if isinstance(on, int) and on > len(able):
            few = f"{len(able)} live executor{'s' if len(able) > 1 else ''} can take its parts, of {on}"
            return [f"no-matching-executor: {few}; the others wait for further ones"]
        return []
    if not labels:
        if not facts or definition.kind in _EVERYWHERE:
            return []
        return [nobody_offers(definition)]
    where = f"no live executor of queue {definition.queue} with {definition.needs} has {tell_labels(labels)}"
    return [f"no-matching-executor: {where}; its runs wait for one"]


def nobody_offers(definition: JobDefinition) -> str:
    where = f"no live executor of queue {definition.queue} offers {definition.needs}"
    return f"no-matching-executor: {where}; its runs wait for one"
