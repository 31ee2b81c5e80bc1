"""Whether what a run takes fits an executor, told to people."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from hourhand.model.demands import Demands
from hourhand.model.node_state import NodeFacts
from hourhand.model.resources import MEMORY, SLOTS, tell_amount

_SHOWN_MAX: Final = 3


def wanted(demands: Demands, name: str) -> float:
    return demands.slots if name == SLOTS else demands.counted.get(name, 0)


def total_of(facts: NodeFacts, need: str, name: str) -> float:
    if name == SLOTS:
        return facts.slots_for(need).total
    return facts.resources[name].total if name in facts.resources else 0.0


def tell_too_large(need: str, demands: Demands, executors: Sequence[NodeFacts]) -> str | None:
    """Why it can never fit any of these, which else may take it; None where it fits one."""
    short = [facts.too_small_for(need, demands) for facts in executors]
    if not short or not all(short):
        return None
    nobody = [name for name in short[0] if all(name in others for others in short)]
    if not nobody:
        asked = " and ".join(tell_amount(name, wanted(demands, name)) for name in dict.fromkeys(chain(*short)))
        return f"needs {asked}: no executor has all of it"
    told = []
    for name in nobody[:_SHOWN_MAX]:
        most = max(total_of(facts, need, name) for facts in executors)
        has = f"the largest executor has {tell_amount(name, most)}" if most else "no executor has any"
        told.append(f"needs {tell_amount(name, wanted(demands, name))}{_of(name)}: {has}")
    return "; ".join(told)


def _of(name: str) -> str:
    return " of memory" if name == MEMORY else ""
