"""The same database with other deadlines: what is done all the time, what may take long, what a lease waits for."""

from dataclasses import replace
from typing import Final

from hourhand.database.connections import DatabaseSettings

LONG_SECONDS_MAX: Final = 600.0
"""How long a migration or the end of a day of history may take."""


def for_loops(settings: DatabaseSettings) -> DatabaseSettings:
    """The same database, with the deadline of what is done all the time."""
    return replace(settings, statement_seconds_max=min(settings.loop_seconds_max, settings.statement_seconds_max))


def long_running(settings: DatabaseSettings) -> DatabaseSettings:
    """The same database, for what nobody waits for and may not be given up half-way."""
    return replace(settings, pool_max=1, statement_seconds_max=max(LONG_SECONDS_MAX, settings.statement_seconds_max))


def for_heartbeats(settings: DatabaseSettings, lease_seconds: float) -> DatabaseSettings:
    """The same database, for one connection that must not wait longer than the lease can bear."""
    share = lease_seconds / 3
    connect, statement = min(settings.connect_seconds_max, share), min(settings.statement_seconds_max, share)
    return replace(settings, pool_max=1, connect_seconds_max=connect, statement_seconds_max=statement)
