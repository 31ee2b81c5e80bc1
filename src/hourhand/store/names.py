"""Namespaces and lanes: small numbers for long names. Nothing is ever deleted, so a number once seen holds."""

from collections.abc import Callable, Iterable, Mapping

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries


class Names:
    """Numbers of lanes and namespaces, each asked for once per process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "names.sql", database.schema)
        self._lane_ids: dict[tuple[str, str], int] = {}
        self._lanes: dict[int, tuple[str, str]] = {}
        self._namespaces: dict[str, int] = {}
        self._namespace_names: dict[int, str] = {}
        self.on_new_lane: Callable[[], None] = lambda: None
        """Called when a lane was asked for that this process had not seen: executors may not know it yet."""

    async def lane_ids(self, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """The numbers of (queue, need) pairs, made where missing."""
        missing = [pair for pair in set(wanted) if pair not in self._lane_ids]
        if missing:
            rows = await self._database.fetch(
                self._queries["resolve_lanes"],
                queues=[queue for queue, _ in missing],
                needs=[needs for _, needs in missing],
            )
            for row in rows:
                self._lane_ids[row["queue"], row["needs"]] = row["lane_id"]
            self.on_new_lane()
        return self._lane_ids

    async def lanes(self) -> dict[int, tuple[str, str]]:
        """Every lane: its number, queue and need."""
        rows = await self._database.fetch(self._queries["list_lanes"], after=max(self._lanes, default=0))
        for row in rows:
            self._lanes[row["lane_id"]] = (row["queue"], row["needs"])
        return self._lanes

    @property
    def known(self) -> Mapping[int, tuple[str, str]]:
        """The lanes seen so far, without asking."""
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
