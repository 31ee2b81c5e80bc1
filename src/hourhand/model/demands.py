"""What a run demands of its executor beyond what its kind needs, and how a lane carries it.

A lane is what executors choose their work by. Its text is the need of the kind alone ("command") where nothing more is
demanded, which is nearly always; else the demands follow as JSON: `command {"labels":["gpu"],"memory":2000000000}`.
Runs of one lane so all demand the same, and an executor decides by lane what it may take and how much of it fits: no
run is looked at for it. Programs that do not know a demand take the text for a need that they do not offer, and leave
such runs to others.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from hourhand.model.policy import Policy
from hourhand.model.resources import CPU, MEMORY, Resources

_MARK: Final = " {"
LANES_MAX: Final = 5000
"""How many lanes with demands a namespace may have: each is looked at by its own while runs of it wait."""


class Demands(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    labels: tuple[str, ...] = ()
    cpu: float | None = None
    memory: int | None = None
    slots: int = 1
    """Places of its room."""
    custom: Mapping[str, int] = {}
    fan: bool = False
    """Its runs go to several executors: whoever takes one makes its parts and watches over them, which takes nothing of
    what they take."""
    part: bool = False
    """Its runs are such parts, each for one executor."""

    @property
    def counted(self) -> dict[str, float]:
        """What is taken from what an executor has, by name; places are counted apart."""
        said = ((CPU, self.cpu), (MEMORY, self.memory), *sorted(self.custom.items()))
        return {name: amount for name, amount in said if amount}

    @property
    def weighs(self) -> bool:
        """Whether how many fit is more than a matter of places."""
        if self.fan:
            return False
        return self.slots > 1 or self.cpu is not None or self.memory is not None or bool(self.custom)


class LaneNeeds(NamedTuple):
    need: str
    """What the kind needs."""
    demands: Demands


NO_DEMANDS: Final = Demands()
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Demands).decode


def demands_of(policy: Policy) -> Demands:
    if policy.placement is None and policy.resources is None:
        return NO_DEMANDS
    labels, fan = (
        ((), False) if policy.placement is None else (policy.placement.labels, policy.placement.on is not None)
    )
    takes = policy.resources or Resources()
    return Demands(labels, takes.cpu, takes.memory, takes.slots, takes.custom, fan)


def lane_text(need: str, policy: Policy) -> str:
    """The same for the same demands, whoever writes it."""
    return demands_text(need, demands_of(policy))


def demands_text(need: str, demands: Demands) -> str:
    return need if demands == NO_DEMANDS else f"{need} {_encode(demands).decode()}"


@lru_cache(maxsize=65_536)
def read_lane_text(text: str) -> LaneNeeds:
    need, mark, rest = text.partition(_MARK)
    try:
        return LaneNeeds(need, _decode("{" + rest)) if mark else LaneNeeds(text, NO_DEMANDS)
    except msgspec.MsgspecError:
        return LaneNeeds(text, NO_DEMANDS)


def need_of(text: str) -> str:
    """What the kind needs, of a lane's text."""
    return text.partition(_MARK)[0]


def has_demands(text: str) -> bool:
    return _MARK in text


def short_of(demands: Demands, has: Mapping[str, float]) -> Iterator[str]:
    """The names of what there is not enough of."""
    for name, amount in demands.counted.items():
        if amount > has.get(name, 0) + 1e-9:
            yield name
