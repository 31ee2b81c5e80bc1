"""What all lines of all logs have in common."""

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a log. Unknown fields in a file are passed over, so that a recorder may write more than is judged."""
