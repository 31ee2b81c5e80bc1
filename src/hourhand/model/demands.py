"""What a run demands of its executor beyond what its kind needs, and how a lane carries it.

A lane is what executors choose their work by. Its text is the need of the kind alone ("command") where nothing more is
demanded, which is nearly always; else the demands follow as JSON: `command {"labels":["gpu"]}`. Runs of one lane so
all demand the same, and an executor decides by lane what it may take: no run is looked at for it. Programs that
know nothing of demands take the text for a need that they do not offer, and leave such runs to others.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from hourhand.model.policy import Policy

_MARK: Final = " {"


class Demands(msgspec.Struct, frozen=True, omit_defaults=True):
    labels: tuple[str, ...] = ()


class LaneNeeds(NamedTuple):
    need: str
    """What the kind needs."""
    demands: Demands


NO_DEMANDS: Final = Demands()
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Demands).decode


def demands_of(policy: Policy) -> Demands:
    if policy.placement is None:
        return NO_DEMANDS
    return Demands(policy.placement.labels)


def lane_text(need: str, policy: Policy) -> str:
    """The same for the same demands, whoever writes it."""
    demands = demands_of(policy)
    return need if demands == NO_DEMANDS else f"{need} {_encode(demands).decode()}"


@lru_cache(maxsize=65_536)
def read_lane_text(text: str) -> LaneNeeds:
    need, mark, rest = text.partition(_MARK)
    return LaneNeeds(need, _decode("{" + rest)) if mark else LaneNeeds(text, NO_DEMANDS)


def need_of(text: str) -> str:
    """What the kind needs, of a lane's text."""
    return text.partition(_MARK)[0]
