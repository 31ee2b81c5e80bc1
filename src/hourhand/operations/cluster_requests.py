"""What operators send and get: nodes, shards, queues, namespaces. As in `requests.py`, types only say the form."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType


class UsedOf(msgspec.Struct, frozen=True):
    used: float
    total: float


class NodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    role: str
    name: str
    state: str
    orders: str
    """What is wanted of it: work, cordon or drain."""
    leader: bool
    started_at: datetime
    ended_at: datetime | None
    heard_seconds_ago: float | None
    """Since its last heartbeat; None when it is not known."""
    lease_seconds_left: float | None
    """None when it has ended."""
    slots_used: int
    slots_total: int
    labels: list[str]
    """What an executor has, by its configuration."""
    resources: dict[str, UsedOf]
    """How much it has of what runs may declare, and how much of it was taken at its last heartbeat."""
    shards: int
    facts: dict[str, Any]
    """What it says of itself. Empty for callers that are bound to one namespace."""


class ShardOwner(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int | None
    """None for shards that nobody owns."""
    name: str | None
    count: int
    ranges: list[str]
    epoch: int
    """The newest of its shards."""


class Shard(msgspec.Struct, frozen=True):
    shard: int
    node_id: int | None
    name: str | None
    epoch: int


class ShardStatus(msgspec.Struct, frozen=True):
    count: int
    epoch: int
    owners: list[ShardOwner]
    shards: list[Shard]
    """One by one; empty unless asked for."""


class QueueRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Limits of a queue: only what is given changes; null takes a limit away."""

    max_concurrency: int | UnsetType | None = UNSET
    rate_limit: str | UnsetType | None = UNSET


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    pause_until: datetime | None
    max_concurrency: int | None
    rate_limit: str | None
    waiting: int
    """Runs whose time has come and that nobody has claimed."""
    later: int
    """Runs whose time is still to come: due shortly, or between two attempts."""
    running: int
    too_late: Sequence[UUID] = ()
    """In the answer to a pause: runs of due times to come that an executor already had."""


class NamespaceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A namespace's limit and share: only what is given changes; null takes a limit away."""

    max_concurrency: int | UnsetType | None = UNSET
    weight: int | UnsetType = UNSET


class NamespaceStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    max_concurrency: int | None
    weight: int
    running: int
