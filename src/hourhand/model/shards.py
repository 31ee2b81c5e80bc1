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
