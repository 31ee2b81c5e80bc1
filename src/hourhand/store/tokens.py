"""Tokens: only their digests are stored."""

from typing import Any
from uuid import UUID

from hourhand.database.connections import Database
from hourhand.database.queries import load_queries
from hourhand.ports.stores import TokenRow


class Tokens:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = load_queries("hourhand.store.sql", "tokens.sql", database.schema)

    async def insert_token(
        self,
        token_id: UUID,
        name: str,
        digest: bytes,
        purpose: str,
        lifetime_seconds: float | None,
        namespace_id: int | None = None,
    ) -> None:
        await self._database.fetch(
            self._queries["insert_token"],
            token_id=token_id,
            namespace_id=namespace_id,
            name=name,
            digest=digest,
            purpose=purpose,
            lifetime_seconds=lifetime_seconds,
        )

    async def find_token(self, digest: bytes) -> TokenRow | None:
        row = await self._database.fetch_one(self._queries["find_token"], digest=digest)
        if row is None:
            return None
        return TokenRow(row["token_id"], row["name"], row["purpose"], row["namespace_id"], row["namespace"])

    async def use_login_code(self, digest: bytes) -> bool:
        return await self._database.fetch_one(self._queries["use_login_code"], digest=digest) is not None

    async def list_tokens(self) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._database.fetch(self._queries["list_tokens"])]

    async def revoke_token(self, token_id: UUID) -> bool:
        return await self._database.fetch_one(self._queries["revoke_token"], token_id=token_id) is not None
