"""Wake-ups by LISTEN/NOTIFY.

NOTIFY takes a lock that all commits of a cluster share, so it never rides on a submitting or finishing transaction: it
is sent from a statement of its own, at once on the leading edge, then at most once per `COALESCE_SECONDS` and topic.
"""

import asyncio
import contextlib
from collections.abc import Callable

from hourhand.database.connections import CONNECTION_FAULTS, PING_SECONDS, Database, DatabaseSettings, Listener
from hourhand.database.queries import Query
from hourhand.model.errors import DatabaseUnavailable
from hourhand.ports.event_bus import Topic
from hourhand.runtime.loops import Loop

COALESCE_SECONDS = 0.005
LAST_WORD_SECONDS_MAX = 1.0

_NOTIFY = Query(
    "notify",
    # A wake-up need not survive a crash, so its commit does not wait for the disk.
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(c, '') FROM unnest($1::text[]) AS c",
    ("channels",),
)


class PostgresEventBus:
    def __init__(self, database: Database, settings: DatabaseSettings, application: str) -> None:
        self._database = database
        self._prefix = f"{settings.schema}_"
        self._hearers: dict[str, list[Callable[[], None]]] = {}
        self._settings = settings
        self._application = application
        self._pending: set[Topic] = set()
        self._sender = Loop("event sender", self._send, 3600.0, (DatabaseUnavailable,))
        self._listener = Loop("event listener", self._listen, 0.0, CONNECTION_FAULTS, late_seconds=3 * PING_SECONDS)
        self._ear: Listener | None = None
        self.loops = [self._sender, self._listener]

    def publish(self, topic: Topic) -> None:
        self._pending.add(topic)
        self._sender.wake()

    def subscribe(self, topic: Topic, hear: Callable[[], None]) -> None:
        self._hearers.setdefault(self._prefix + topic.value, []).append(hear)

    async def open(self) -> None:
        self._sender.start()
        if self._hearers:
            self._listener.start()

    async def close(self) -> None:
        """Says what is left to say, if the database is there."""
        await self._sender.stop()
        await self._listener.cancel()
        with contextlib.suppress(DatabaseUnavailable, TimeoutError):
            await asyncio.wait_for(self._send(), LAST_WORD_SECONDS_MAX)

    async def _send(self) -> float | None:
        pending, self._pending = self._pending, set()
        if not pending:
            return None
        channels = [self._prefix + topic.value for topic in pending]
        try:
            await self._database.fetch(_NOTIFY, channels=channels)
        except BaseException:
            self._pending |= pending  # said when the database is back
            raise
        await asyncio.sleep(COALESCE_SECONDS)
        return 0 if self._pending else None

    async def _listen(self) -> float | None:
        # Kept from one session to the next: it knows which server did not answer.
        self._ear = self._ear or Listener(self._settings, self._application, list(self._hearers))
        await self._ear.listen(self._hear, self._listener.came_through)
        return 0.1

    def _hear(self, channel: str, _payload: str) -> None:
        for hear in self._hearers.get(channel, ()):
            hear()
