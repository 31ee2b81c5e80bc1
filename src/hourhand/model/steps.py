"""Work that is counted while it is done, so that what others send cannot make it endless."""


class TooManySteps(ValueError):
    """There was more to do than was allowed."""


class Steps:
    """So many steps are allowed, each of about ten microseconds; whoever works takes them before it does."""

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, count: int = 1) -> None:
        """Raises `TooManySteps` when not so many are left."""
        self.left -= count
        if self.left < 0:
            raise TooManySteps
