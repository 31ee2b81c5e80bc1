from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command sets up the log of its process, which here is everybody's."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
