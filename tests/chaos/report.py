"""The printed report of a chaos run, and its verdict."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tests.chaos.figures import Figure, figures
from tests.chaos.findings import Findings
from tests.chaos.history import History
from tests.chaos.invariants import INVARIANTS, check_all

Verdict = Literal["pass", "fail", "unknown"]
SHOWN_MAX: Final = 5
"""Violations printed per promise; the number of all of them always is."""


NOT_BEGUN: Final = frozenset({"exec_not_found", "not_executable", "not_started", "unknown_handler", "bad_arguments"})
"""Reasons of runs that were given up before they did anything. No workload asks for that."""


@dataclass(frozen=True, slots=True)
class Report:
    history: History
    findings: Mapping[int, Findings]
    figures: list[Figure]

    @property
    def violated(self) -> list[int]:
        return [number for number, findings in self.findings.items() if findings.violations]

    @property
    def broken_figures(self) -> list[Figure]:
        return [figure for figure in self.figures if not figure.kept]

    @property
    def gaps(self) -> list[str]:
        """What the plan demanded and the run did not do."""
        injected = Counter(fault.kind for fault in self.history.faults)
        settings = self.history.settings
        return [
            *(
                f"{kind}: injected {injected[kind]} of {demanded} times"
                for kind, demanded in settings.injections_min.items()
                if injected[kind] < demanded
            ),
            *(
                f"invariant {number} was not exercised"
                for number in settings.invariants_demanded
                if self.findings[number].status == "not exercised"
            ),
            *(
                f"figure not measured: {figure.name}"
                for figure in self.figures
                if settings.figures_demanded and figure.bound is not None and not figure.samples
            ),
            *(
                f"{count} runs did not even begin: {reason}"
                for reason, count in Counter(run.reason for run in self.history.runs).items()
                if reason in NOT_BEGUN
            ),
        ]

    @property
    def verdict(self) -> Verdict:
        if self.violated or self.broken_figures:
            return "fail"
        looked = any(findings.facts for findings in self.findings.values())
        return "pass" if looked and not self.gaps else "unknown"

    def text(self) -> str:
        return "\n".join([*self._head(), *self._faults(), *self._invariants(), *self._figures(), *self._tail()])

    def _head(self) -> list[str]:
        settings, history = self.history.settings, self.history
        lines = sum(len(log) for log in (history.calls, history.witness, history.run_events))
        return [
            f"{settings.title or 'chaos run'}: seed {settings.seed}, {settings.read_at - settings.started_at:.0f} s, "
            f"{len(history.jobs)} jobs, {len(history.runs)} runs, {lines} lines",
            "",
        ]

    def _faults(self) -> list[str]:
        injected = Counter(fault.kind for fault in self.history.faults)
        demanded = self.history.settings.injections_min
        rows = [
            f"  {kind:<28} {injected[kind]:>5}" + (f"  of {demanded[kind]} demanded" if kind in demanded else "")
            for kind in sorted({*injected, *demanded})
        ]
        return [f"Faults injected: {injected.total()}", *rows, ""]

    def _invariants(self) -> list[str]:
        rows = ["Invariants:"]
        for invariant in INVARIANTS:
            findings = self.findings[invariant.number]
            remarks = f"  ({'; '.join(findings.remarks)})" if findings.remarks and findings.facts else ""
            told = f"{findings.status:<14} {findings.facts:>8} facts{remarks}"
            rows.append(f"  {invariant.number:>2}  {invariant.name:<36} {told}")
            rows += self._violations(invariant.number)
        return [*rows, ""]

    def _violations(self, number: int) -> list[str]:
        violations = self.findings[number].violations
        rows = [
            f"        {violation.subject}: {violation.message}{self._moment(violation.at)}"
            for violation in violations[:SHOWN_MAX]
        ]
        return [*rows, f"        … {len(violations)} in all"] if len(violations) > SHOWN_MAX else rows

    def _moment(self, at: float | None) -> str:
        return "" if at is None else f" (at {at - self.history.settings.started_at:+.3f} s)"

    def _figures(self) -> list[str]:
        rows = ["Figures:"]
        for figure in self.figures:
            value = f"{figure.value:.3f} {figure.unit}" if figure.unit else f"{figure.value:g}"
            bound = "" if figure.bound is None else f"  bound {figure.bound:g} {figure.unit}"
            bound += "" if figure.kept else "  OVER"
            detail = f"  ({figure.detail})" if figure.detail else ""
            rows.append(
                f"  {figure.name:<42} {value if figure.samples else '-':>12}  n={figure.samples}{bound}{detail}"
            )
        return [*rows, ""]

    def _tail(self) -> list[str]:
        facts = sum(findings.facts for findings in self.findings.values())
        exercised = sum(findings.status != "not exercised" for findings in self.findings.values())
        lines = [f"{exercised} of {len(self.findings)} invariants exercised on {facts} facts"]
        # Said again at the end: of a long output its last lines are what is read.
        for number in self.violated:
            lines.append(f"violated: {number}")
            lines += self._violations(number)
        lines += [f"over its bound: {figure.name}" for figure in self.broken_figures]
        lines += [f"missing: {gap}" for gap in self.gaps]
        return [*lines, f"verdict: {self.verdict}"]


def judge(history: History) -> Report:
    return Report(history, check_all(history), figures(history))
