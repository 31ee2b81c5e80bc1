"""Where runs went and what they took."""

from typing import Final
from uuid import UUID

import msgspec

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.model.advice import Sample
from hourhand.model.usage import Usage

LOOK_PART: Final = 4
"""So many times as many runs are looked at as are asked for: some say nothing of what they took."""
_decode_usage = msgspec.json.Decoder(Usage).decode


class Placing:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "placing.sql", database.schema)

    async def usage_of_job(self, namespace_id: int, job_id: UUID, limit: int) -> list[Sample]:
        rows = await self._database.fetch(
            self._queries["usage_of_job"],
            namespace_id=namespace_id,
            job_id=job_id,
            look=limit * LOOK_PART,
            limit=limit,
        )
        return [
            Sample(usage.memory_bytes_peak, usage.cpu_seconds, row["seconds"], usage.memory_bytes_cached or 0)
            for row in rows
            for usage in (_decode_usage(row["usage"]),)
        ]
