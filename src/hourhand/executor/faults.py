"""Whose fault it is that the database does not take something: that of the data, or of the moment."""

from typing import Final

_UNSTORABLE: Final = ("22", "23", "54")
"""Classes of SQLSTATEs that what was written is the cause of: its data, a constraint, a limit of what is stored."""


def lies_in_the_data(fault: Exception) -> bool:
    # The last two are what encoding says of numbers that are too large, and of values that hold one another too deep.
    return state_class(fault) in _UNSTORABLE or isinstance(
        fault, ValueError | TypeError | OverflowError | RecursionError
    )


def state_class(fault: Exception) -> str:
    return (getattr(fault, "sqlstate", None) or "")[:2]
