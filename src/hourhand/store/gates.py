"""The gates that jobs bring along: their own limit and rate, and the limit of a key they share with others."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from hourhand.database.connections import Connection, Database
from hourhand.database.queries import load_queries
from hourhand.model.job import JobDefinition
from hourhand.model.policy import Policy, Rate, concurrency_key


class WantedGate(NamedTuple):
    namespace_id: int
    kind: str
    name: str
    capacity: int | None
    rate: Rate | None


class Gates:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "gates.sql", database.schema)

    async def numbers(
        self, wanted: Sequence[WantedGate], db: Connection | None = None, keep: bool = False
    ) -> dict[tuple[int, str, str], int]:
        """The numbers of gates, by namespace, kind and name. The newest limit that anybody names for a gate counts.
        With `db`, inside the caller's transaction. `keep`: a gate that exists keeps its limit."""
        newest = {gate[:3]: gate for gate in wanted}
        if not newest:
            return {}
        fetch = self._database.fetch if db is None else partial(self._database.fetch_on, db)
        # Looked for first: writing would wait for whoever is just claiming through the gate.
        found = await fetch(self._queries["find_gates"], **_columns(list(newest)))
        numbers = {}
        for row in found:
            gate = newest[row["namespace_id"], row["kind"], row["name"]]
            if keep or (gate.capacity, *_rate(gate)) == (row["capacity"], row["rate_count"], row["rate_seconds"]):
                numbers[gate[:3]] = row["gate_id"]
        others = [gate for key, gate in newest.items() if key not in numbers]
        if others:
            rows = await fetch(
                self._queries["put_gates"],
                **_columns([gate[:3] for gate in others]),
                capacities=[gate.capacity for gate in others],
                rate_counts=[_rate(gate)[0] for gate in others],
                rate_seconds=[_rate(gate)[1] for gate in others],
            )
            numbers |= {(row["namespace_id"], row["kind"], row["name"]): row["gate_id"] for row in rows}
        return numbers


def gates_of(
    namespace_id: int, job_id: UUID, definition: JobDefinition, payload: Mapping[str, Any] | None = None
) -> list[WantedGate]:
    """The gates of a job's runs; `payload` where a run has one of its own."""
    return gates_of_policy(namespace_id, job_id, definition.policy, definition.payload if payload is None else payload)


def gates_of_policy(namespace_id: int, job_id: UUID, policy: Policy, payload: Mapping[str, Any]) -> list[WantedGate]:
    gates = []
    if policy.max_concurrency is not None or policy.rate is not None:
        gates.append(WantedGate(namespace_id, "job", str(job_id), policy.max_concurrency, policy.rate))
    if policy.concurrency_key is not None:
        key = concurrency_key(policy.concurrency_key, payload)
        gates.append(WantedGate(namespace_id, "key", key, policy.concurrency_limit, None))
    return gates


def gate_ids(numbers: Mapping[tuple[int, str, str], int], gates: Sequence[WantedGate]) -> list[int] | None:
    """What a run carries; None for most."""
    return sorted(numbers[gate[:3]] for gate in gates) or None


def array_text(numbers: Sequence[int] | None) -> str | None:
    """As PostgreSQL writes it, for lists of lists: those of different lengths cannot be sent as an array."""
    return None if numbers is None else "{" + ",".join(map(str, numbers)) + "}"


def _columns(keys: Sequence[tuple[int, str, str]]) -> dict[str, list[Any]]:
    return {
        "namespace_ids": [namespace_id for namespace_id, _, _ in keys],
        "kinds": [kind for _, kind, _ in keys],
        "names": [name for _, _, name in keys],
    }


def _rate(gate: WantedGate) -> tuple[int | None, float | None]:
    return (None, None) if gate.rate is None else (gate.rate.count, gate.rate.seconds)
