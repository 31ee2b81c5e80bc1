"""What the outside sees: the list of events, and how each becomes a log line."""

from hourhand.telemetry.events import emit, set_up_logging

__all__ = ["emit", "set_up_logging"]
