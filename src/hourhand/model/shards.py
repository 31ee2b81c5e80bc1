"""Which scheduler owns which shard: rendezvous hashing.

Every (shard, scheduler) pair has a weight; the heaviest scheduler owns the shard. When one leaves, only its
own shards move; when one joins, it takes its fair part from all the others.
"""

from collections.abc import Sequence
from hashlib import blake2b

from hourhand.model.ids import SHARDS


def share_out(node_ids: Sequence[int]) -> dict[int, int]:
    """The owner of every shard, or nothing when nobody is there to own one."""
    if not node_ids:
        return {}
    if len(node_ids) == 1:
        return dict.fromkeys(range(SHARDS), node_ids[0])
    return {shard: max(node_ids, key=lambda node: (_weight(shard, node), node)) for shard in range(SHARDS)}


def _weight(shard: int, node_id: int) -> bytes:
    return blake2b(f"{shard}:{node_id}".encode(), digest_size=8).digest()


def ranges_of(shards: Sequence[int]) -> list[str]:
    """Numbers in ascending order as ranges: 0, 1, 2, 7 become "0-2" and "7"."""
    ranges: list[tuple[int, int]] = []
    for shard in shards:
        if ranges and ranges[-1][1] == shard - 1:
            ranges[-1] = (ranges[-1][0], shard)
        else:
            ranges.append((shard, shard))
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]
