"""What the ledger needs of the store."""

from datetime import datetime
from typing import Protocol
from uuid import UUID

from hourhand.model.ledger import LedgerFacts


class LedgerStore(Protocol):
    async def read_ledger(
        self, namespace_id: int, job_id: UUID, begin: datetime, until: datetime, now: datetime, limit: int
    ) -> LedgerFacts | None:
        """What is known of the job's due times from `begin` on: enough for a page of so many entries. The facts' own
        `until` is earlier where there is more. None when there is no such job."""
