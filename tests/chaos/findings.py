"""What a check found: on how many facts it looked, and which of them break the promise."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.history import History

Status = Literal["ok", "violated", "not exercised"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One fact that must not be. `subject` is the id of what it is about: a run, a job, a key, a shard, a node."""

    subject: str
    message: str
    at: float | None = None


@dataclass(slots=True)
class Findings:
    """Filled by one check while it walks over the history."""

    facts: int = 0
    """Things of the history that could have broken the promise. None at all: the promise was not put to the test."""
    violations: list[Violation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    """Figures beside the judgement: maxima, counts."""

    def fact(self, count: int = 1) -> None:
        self.facts += count

    def violated(self, subject: str, message: str, at: float | None = None) -> None:
        self.violations.append(Violation(subject, message, at))

    @property
    def status(self) -> Status:
        if self.violations:
            return "violated"
        return "ok" if self.facts else "not exercised"


Check = Callable[[History], Findings]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A row of the table in `invariants/__init__.py`. The numbers are those of the reliability notes."""

    number: int
    name: str
    sentence: str
    check: Check
