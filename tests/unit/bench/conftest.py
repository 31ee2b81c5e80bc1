import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MODULES = ("pairs", "submit_ratio", "table", "cost_model", "publish", "outage", "recurring_rows")


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts of `benchmarks/`, as they find each other."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    for name in MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A command sets up the log of its process, which here is everybody's."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
