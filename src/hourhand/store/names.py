"""Namespaces and lanes: small numbers for long names. Nothing is ever deleted, so a number once seen holds."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.demands import LANES_MAX, has_demands, lane_text, read_lane_text
from hourhand.model.errors import Conflict
from hourhand.model.job import JobDefinition
from hourhand.model.policy import ORDINARY
from hourhand.ports.stores import Lane

LaneKey = tuple[int, str, str, bool]
"""Namespace, queue, what an executor must offer and have, and whether its runs have gates of their own."""


def lane_key(namespace_id: int, definition: JobDefinition) -> LaneKey:
    policy = definition.policy
    if policy is ORDINARY:
        return namespace_id, definition.queue, definition.needs, False
    return namespace_id, definition.queue, lane_text(definition.needs, policy), policy.gated


class Names:
    """Numbers of lanes and namespaces, each asked for once per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "names.sql", database.schema)
        self._lane_ids: dict[LaneKey, int] = {}
        self._lanes: dict[int, Lane] = {}
        self._namespaces: dict[str, int] = {}
        self._namespace_names: dict[int, str] = {}
        self.on_new_lane: Callable[[], None] = lambda: None
        """Called when a lane was asked for that this process had not seen: executors may not know it yet."""

    async def lane_ids(self, wanted: Iterable[LaneKey]) -> dict[LaneKey, int]:
        """The numbers of lanes, made where missing."""
        known = self._lane_ids
        keys = set(wanted)
        new = False
        # A lane that somebody else makes at the same moment is neither made by us nor seen: the statement waits for
        # them, but looks with eyes from before. Asked again it is there.
        if any(has_demands(key[2]) and key not in known for key in keys):
            await self._refuse_too_many(keys)
        while missing := [key for key in keys if key not in known]:
            namespace_ids, queues, needs, gated = zip(*missing, strict=True)
            rows = await self._database.fetch(
                self._queries["resolve_lanes"], namespace_ids=namespace_ids, queues=queues, needs=needs, gated=gated
            )
            for row in rows:
                known[row["namespace_id"], row["queue"], row["needs"], row["gated"]] = row["lane_id"]
            new = True
        if new:
            self.on_new_lane()
        return known

    async def _refuse_too_many(self, wanted: Iterable[LaneKey]) -> None:
        """Each lane with demands is looked at by its own, and none is ever deleted: a program that makes up another
        amount for every job would slow down all executors."""
        asked = {key for key in wanted if has_demands(key[2])}
        rows = await self._database.fetch(
            self._queries["demanding_lanes"], namespace_ids=sorted({key[0] for key in asked})
        )
        there = {(row["namespace_id"], row["queue"], row["needs"], row["gated"]) for row in rows}
        counts = Counter(namespace_id for namespace_id, *_ in there | asked)
        if asked - there and max(counts.values()) > LANES_MAX:
            message = f"the jobs of this namespace have {LANES_MAX} different demands by now: labels, amounts, queues"
            raise Conflict("too-many-demands", f"{message}; declare the same amounts for jobs that are alike")

    async def lanes(self) -> dict[int, Lane]:
        """Every lane, as it is now."""
        rows = await self._database.fetch(self._queries["list_lanes"])
        self._lanes = {
            row["lane_id"]: Lane(
                row["namespace_id"], row["queue"], need, row["careful"], row["held"], row["weight"], demands
            )
            for row in rows
            for need, demands in (read_lane_text(row["needs"]),)
        }
        return self._lanes

    @property
    def known(self) -> Mapping[int, Lane]:
        """The lanes as last seen, without asking."""
        return self._lanes

    @property
    def known_namespaces(self) -> Mapping[int, str]:
        return self._namespace_names

    async def find_namespace(self, name: str) -> int | None:
        if name not in self._namespaces:
            row = await self._database.fetch_one(self._queries["find_namespace"], name=name)
            if row is None:
                return None
            self._namespaces[name] = row["namespace_id"]
            self._namespace_names[row["namespace_id"]] = name
        return self._namespaces[name]

    def forget(self) -> None:
        """Asks for everything anew. After a fail-over the database may know less than it did, and numbers that it gave
        out before may mean something else."""
        self._lane_ids, self._namespaces, self._namespace_names = {}, {}, {}

    async def create_namespace(self, name: str) -> None:
        """Makes it if it is missing."""
        await self._database.fetch(self._queries["create_namespace"], name=name)

    async def namespace_name(self, namespace_id: int) -> str:
        if namespace_id not in self._namespace_names:  # made since the last look
            await self.learn_namespaces()
        return self._namespace_names[namespace_id]

    async def learn_namespaces(self) -> Mapping[int, str]:
        rows = await self._database.fetch(self._queries["list_namespaces"])
        self._namespace_names = {row["namespace_id"]: row["name"] for row in rows}
        return self._namespace_names
