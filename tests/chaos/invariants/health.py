"""Nothing leaks, and errors are told honestly."""

from typing import Final

from tests.chaos.findings import Findings
from tests.chaos.history import ClientCall, History
from tests.chaos.joined import EXECUTING, joined

PROBLEM: Final = "urn:hourhand:problem:"
TRACES: Final = ("Traceback (most recent call last)", 'File "', "asyncpg.", "site-packages")


def no_leak(history: History) -> Findings:
    findings, log = Findings(), joined(history)
    settings = history.settings
    for probe in history.probes:
        findings.fact()
        node = probe.node or "the machine"
        if probe.connections_max is not None and (probe.connections or 0) > probe.connections_max:
            message = f"{probe.connections} connections, its pools allow {probe.connections_max}"
            findings.violated(node, message, probe.at)
        if settings.rss_bytes_max is not None and (probe.rss_bytes or 0) > settings.rss_bytes_max:
            findings.violated(node, f"{(probe.rss_bytes or 0) >> 20} MiB of memory", probe.at)
        if settings.fds_max is not None and (probe.fds or 0) > settings.fds_max:
            findings.violated(node, f"{probe.fds} open files", probe.at)
        if probe.final:
            for run_id in probe.run_ids:
                row = log.run.get(run_id)
                if row is not None and row.state == "cancelled":
                    continue  # told by the rule that cancel stops the effect
                if row is None or not row.live or row.state not in EXECUTING:
                    findings.violated(run_id, "a process is left of a run that is not running", probe.at)
    return findings


def honest_errors(history: History) -> Findings:
    findings = Findings()
    for call in history.calls:
        if call.status is None or 200 <= call.status < 300:
            continue
        findings.fact()
        if message := _dishonest(call, history.settings.problem_codes):
            findings.violated(call.node or "api", f"{call.op} → {call.status}: {message}", call.invoked_at)
    return findings


def _dishonest(call: ClientCall, known: tuple[str, ...]) -> str | None:
    if any(trace in call.body_excerpt for trace in TRACES):
        return "the answer shows the inside of the program"
    if call.problem_type is None or not call.problem_type.startswith(PROBLEM):
        return "the answer is no problem document"
    if call.content_type is not None and not call.content_type.startswith("application/problem+json"):
        return f"a problem document sent as {call.content_type}"
    code = call.problem_type.removeprefix(PROBLEM)
    return f"{code} is documented nowhere" if known and code not in known else None
