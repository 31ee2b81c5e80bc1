"""Tables and details for people. Imported only when something is to be drawn."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from hourhand.cli.exits import printable
from hourhand.cli.layout import GAP, Column, console_here, draw_details, draw_table
from hourhand.cli.progress import progress_text
from hourhand.cli.times import length_text, local_time
from hourhand.client.attempt_views import UsageView
from hourhand.client.views import (
    AdviceView,
    ClusterView,
    ExplanationView,
    JobView,
    NamespaceView,
    NodeDetailView,
    PartView,
    PauseView,
    QueueView,
    RunDetailView,
    RunView,
    ShardOwnerView,
    ShardView,
)
from hourhand.model.resources import tell_amount, tell_size

_CACHED_MIN: Final = 10_000_000
"""A smaller cache of files is not worth a word."""


def job_table(jobs: Sequence[JobView]) -> None:
    columns = [
        Column("NAME"),
        Column("STATUS", kind="status"),
        Column("KIND", 100),
        Column("SCHEDULE"),
        Column("NEXT DUE", kind="time"),
        Column("JOB ID", 120, "id"),
    ]
    draw_table(columns, [(j.name, j.status, j.kind, schedule_text(j), j.next_due, j.job_id) for j in jobs])


def run_table(runs: Sequence[RunView]) -> None:
    columns = [
        Column("RUN ID", kind="id"),
        Column("JOB"),
        Column("STATUS", kind="status"),
        Column("DUE", kind="time"),
        Column("LATE", 100, "number"),
        Column("TOOK", 110, "number"),
        Column("TRY", 110, "number"),
        Column("REASON", 130),
    ]
    rows = [
        (
            run.run_id,
            run.job_name,
            run.status,
            run.scheduled_for,
            length_text(run.lateness_ms),
            length_text(run.duration_ms),
            run.attempt,
            run.reason,
        )
        for run in runs
    ]
    draw_table(columns, rows)


def job_details(job: JobView, advice: Sequence[str] = ()) -> None:
    draw_details(
        [
            ("job", job.name),
            ("id", job.job_id),
            ("namespace", job.namespace),
            ("status", job.status),
            ("paused", "\n".join(_pause_words(pause) for pause in job.pauses) or job.pause_reason),
            ("schedule", schedule_text(job)),
            ("zone", job.zone),
            ("next due", job.next_due and local_time(job.next_due)),
            ("starts", job.start_at and local_time(job.start_at)),
            ("ends", job.end_at and local_time(job.end_at)),
            ("runs at most", job.max_runs),
            ("jitter", job.jitter),
            ("calendars", job.calendars and f"{', '.join(job.calendars)}: {job.on_excluded}"),
            ("kind", job.kind),
            ("payload", job.payload and json.dumps(job.payload, ensure_ascii=False)),
            ("queue", job.queue),
            ("priority", job.priority),
            ("retries", job.max_retries),
            ("retry", job.retry and json.dumps(job.retry, ensure_ascii=False)),
            ("timeout", job.timeout),
            ("queue timeout", job.queue_timeout),
            ("deadline", job.deadline),
            ("catch-up", _catchup_text(job)),
            ("overlap", _overlap_text(job)),
            ("limit", job.max_concurrency and f"{job.max_concurrency} at once"),
            ("key", job.concurrency_key and f"{job.concurrency_key}, {job.concurrency_limit or 1} at once"),
            ("rate", job.rate_limit),
            ("auto-pause", job.pause_after_failures and f"after {job.pause_after_failures} failed runs in a row"),
            ("placement", job.placement and _placement_text(job.placement)),
            ("resources", ", ".join(f"{name} {amount}" for name, amount in (job.resources or {}).items())),
            ("advice", "\n".join(advice)),
            ("at most once", "yes" if job.at_most_once else None),
            ("on disconnect", None if job.on_disconnect == "continue" else job.on_disconnect),
            ("labels", ", ".join(f"{key}={value}" for key, value in job.labels.items())),
            ("owner", job.owner),
            ("unique key", job.unique_key),
            ("description", job.description),
            ("warnings", "\n".join(job.warnings)),
            ("version", f"{job.version}, created {local_time(job.created_at)} by {job.created_by or 'unknown'}"),
        ]
    )


def part_table(parts: Sequence[PartView]) -> None:
    columns = [
        Column("PART", kind="number"),
        Column("RUN ID", kind="id"),
        Column("STATUS", kind="status"),
        Column("EXECUTOR"),
        Column("TRY", 110, "number"),
        Column("STARTED", 120, "time"),
        Column("REASON", 130),
    ]
    rows = [
        (
            f"{part.index + 1}/{part.total}",
            part.run_id,
            part.status,
            part.executor,
            part.attempt or None,
            part.started_at,
            part.reason,
        )
        for part in parts
    ]
    draw_table(columns, rows)


def advice_details(advice: AdviceView) -> None:
    peak = advice.memory_bytes_p95
    draw_details(
        [
            ("runs", advice.runs),
            ("memory", f"p95 {tell_size(peak)}{_cached(advice.memory_cached_p95)}" if peak is not None else None),
            ("cpu", f"p95 {advice.cpu_p95:.2g}" if advice.cpu_p95 is not None else None),
            ("advice", "\n".join(f"{remark.resource}: {remark.text}" for remark in advice.remarks) or "none"),
        ]
    )


def _cached(size: int | None) -> str:
    """Said where it matters."""
    return f", up to {tell_size(size)} of it cache of files" if size is not None and size >= _CACHED_MIN else ""


def _placement_text(placement: Mapping[str, Any]) -> str:
    on = {None: "", "all": "all "}.get(placement.get("on"), f"{placement.get('on')} ")
    labels = f" with {', '.join(placement['labels'])}" if placement.get("labels") else ""
    return f"{on}executors{labels}" if on or labels else ""


def _pause_words(pause: PauseView) -> str:
    what = "" if pause.scope == "job" else f"{pause.scope} {pause.name} ".replace("  ", " ")
    until = f" until {local_time(pause.until)}" if pause.until else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"{what}by {pause.paused_by} since {local_time(pause.paused_at)}{until}{why}"


def run_details(run: RunDetailView) -> None:
    draw_details(
        [
            ("run", run.run_id),
            ("job", f"{run.job_name} ({run.job_id})"),
            ("status", run.status + (f" ({run.reason})" if run.reason and run.reason != run.status else "")),
            ("cause", run.cause + (f", asked for by {run.requested_by}" if run.requested_by else "")),
            ("note", run.note),
            ("retry of", run.retry_of),
            ("backfill", run.backfill_id),
            ("retried by", ", ".join(map(str, run.retried_by))),
            ("due", local_time(run.scheduled_for)),
            ("started", run.started_at and f"{local_time(run.started_at)}, {length_text(run.lateness_ms)} after due"),
            ("ended", run.ended_at and local_time(run.ended_at) + _took(run)),
            ("attempt", run.attempt or None),
            ("next attempt", run.ready_at and local_time(run.ready_at) if run.waits and run.attempt else None),
            ("executor", run.executor),
            ("progress", run.progress and progress_text(run.progress.percent, run.progress.message)),
            ("used", run.usage and _usage_text(run.usage)),
            ("error", run.error),
            ("fingerprint", run.fingerprint),
            ("result", None if run.result is None else json.dumps(run.result, ensure_ascii=False)),
            ("result", run.result_reference and f"{run.result_reference.size} bytes: hourhand run download --result"),
        ]
    )
    if run.attempts:
        console_here().print()
        columns = [
            Column("TRY", kind="number"),
            Column("STATUS", kind="status"),
            Column("REASON"),
            Column("STARTED", kind="time"),
            Column("ENDED", 100, "time"),
            Column("EXECUTOR", 110),
            Column("ERROR"),
        ]
        tries = run.attempts
        rows = [
            (t.attempt, t.status, t.reason, t.started_at, t.ended_at, t.executor, first_line(t.error)) for t in tries
        ]
        draw_table(columns, rows)
        for one in tries:
            if one.late is not None:
                came = f"try {one.attempt} came to {one.late.state} at {local_time(one.late.at)}"
                console_here().print(f"{came}: too late, the run had been given to another", highlight=False)


def _usage_text(usage: UsageView) -> str:
    moved = f"read {tell_size(usage.read_bytes)}, wrote {tell_size(usage.written_bytes)}"
    peak = tell_size(usage.memory_bytes_peak)
    disk = "" if usage.disk_bytes_peak is None else f", {tell_size(usage.disk_bytes_peak)} of disk at most"
    cached = _cached(usage.memory_bytes_cached)
    return f"{usage.cpu_seconds:.2f} s of CPU, {peak} of memory at most{cached}{disk}, {moved} ({usage.level})"


def _took(run: RunDetailView) -> str:
    return "" if run.duration_ms is None else f", took {length_text(run.duration_ms)}"


def _catchup_text(job: JobView) -> str | None:
    """What becomes of due times that are missed; of no interest for what runs once."""
    said = job.catchup
    if not said or all("at" in each or "now" in each for each in job.schedule):
        return None
    if said["mode"] == "none" or said["window"] == "0s":
        return "none: what was missed is not run"
    runs = "the newest" if said["mode"] == "last" else f"each, the newest {said['max_runs']} at most,"
    return f"{said['mode']}: of what was missed, {runs} of the last {said['window']} runs"


def _overlap_text(job: JobView) -> str | None:
    most = f", at most {job.overlap_max} waiting" if job.overlap == "queue_all" and job.overlap_max else ""
    next_due = f"; {job.on_next_due} a run between two tries" if job.on_next_due == "supersede" else ""
    return job.overlap and f"{job.overlap}{most}{next_due}"


def cluster_details(address: str, cluster: ClusterView) -> None:
    draw_details(
        [
            ("address", address),
            ("time", cluster.now and local_time(cluster.now)),
            ("leader", cluster.leader or "none"),
            ("shards", cluster.shards_owned),
            ("live", _counts(cluster.live)),
            ("last hour", _counts(cluster.last_hour)),
            ("next due", local_time(cluster.next_due) if cluster.next_due else "nothing"),
        ]
    )
    console_here().print()
    columns = [
        Column("NODE"),
        Column("ROLE"),
        Column("ID", kind="number"),
        Column("LEASE LEFT", kind="number"),
        Column("STARTED", kind="time"),
    ]
    rows: list[Sequence[Any]] = [
        (n.name, n.role, n.node_id, _lease(n.lease_seconds_left), n.started_at) for n in cluster.nodes
    ]
    late = [", ".join(n.facts.get("late_loops") or ()) for n in cluster.nodes]
    if any(late):  # told only when there is something to tell
        columns.append(Column("LATE"))
        rows = [(*row, loops) for row, loops in zip(rows, late, strict=True)]
    draw_table(columns, rows)


def node_table(nodes: Sequence[NodeDetailView]) -> None:
    columns = [
        Column("NODE"),
        Column("ROLE"),
        Column("ID", kind="number"),
        Column("STATE", kind="status"),
        Column("SLOTS", kind="number"),
        Column("SHARDS", kind="number"),
        Column("LEADS", 100),
        Column("HEARD", 110, "number"),
        Column("LEASE LEFT", kind="number"),
        Column("STARTED", 120, "time"),
        Column("VERSION", 140),
    ]
    with_labels = any(node.labels for node in nodes)
    if with_labels:  # told only when there is something to tell
        columns.append(Column("LABELS"))
    rows = [
        (
            node.name,
            node.role,
            node.node_id,
            node.state,
            f"{node.slots_used}/{node.slots_total}" if node.slots_total else None,
            node.shards or None,
            "leads" if node.leader else None,
            _heard(node),
            _lease(node.lease_seconds_left) if node.is_present else None,
            node.started_at,
            node.facts.get("version"),
            *([", ".join(node.labels)] if with_labels else []),
        )
        for node in nodes
    ]
    draw_table(columns, rows)


def node_details(node: NodeDetailView) -> None:
    draw_details(
        [
            ("node", f"{node.name} ({node.node_id})"),
            ("role", node.role + (", leads" if node.leader else "")),
            ("state", node.state + (f" (told to {node.orders})" if node.orders != "work" else "")),
            ("slots", f"{node.slots_used} of {node.slots_total} used" if node.slots_total else None),
            ("labels", ", ".join(node.labels)),
            ("resources", "\n".join(_used_of(name, amount) for name, amount in node.resources.items())),
            ("shards", node.shards or None),
            ("started", local_time(node.started_at)),
            ("ended", node.ended_at and local_time(node.ended_at)),
            ("heard", _heard(node)),
            ("lease left", _lease(node.lease_seconds_left) if node.is_present else None),
            ("facts", node.facts and json.dumps(node.facts, ensure_ascii=False, indent=2)),
        ]
    )


def _used_of(name: str, amount: Mapping[str, float]) -> str:
    used, total = (tell_amount(name, amount.get(part, 0)) for part in ("used", "total"))
    return f"{name}: {used.removesuffix(f' {name}')} of {total.removesuffix(f' {name}')} taken"


def owner_table(owners: Sequence[ShardOwnerView]) -> None:
    columns = [
        Column("OWNER"),
        Column("ID", kind="number"),
        Column("SHARDS", kind="number"),
        Column("EPOCH", kind="number"),
        Column("WHICH"),
    ]
    draw_table(columns, [(o.name or "nobody", o.node_id, o.count, o.epoch, ", ".join(o.ranges)) for o in owners])


def shard_table(shards: Sequence[ShardView]) -> None:
    columns = [
        Column("SHARD", kind="number"),
        Column("OWNER"),
        Column("ID", kind="number"),
        Column("EPOCH", kind="number"),
    ]
    draw_table(columns, [(shard.shard, shard.name or "nobody", shard.node_id, shard.epoch) for shard in shards])


def queue_table(queues: Sequence[QueueView]) -> None:
    columns = [
        Column("QUEUE"),
        Column("STATE", kind="status"),
        Column("WAITING", kind="number"),
        Column("RUNNING", kind="number"),
        Column("LATER", 100, "number"),
        Column("LIMIT", kind="number"),
        Column("RATE", kind="number"),
        Column("REASON", 110),
    ]
    rows = [
        (
            queue.name,
            "paused" if queue.paused else "open",
            queue.waiting,
            queue.running,
            queue.later,
            queue.max_concurrency,
            queue.rate_limit,
            queue.pause_reason,
        )
        for queue in queues
    ]
    draw_table(columns, rows)


def queue_details(queue: QueueView) -> None:
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    until = f" until {local_time(queue.pause_until)}" if queue.pause_until else ""
    why = f": {queue.pause_reason}" if queue.pause_reason else ""
    draw_details(
        [
            ("queue", queue.name),
            ("state", f"paused since {local_time(queue.paused_at)}{by}{until}{why}" if queue.paused else "open"),
            ("limit", queue.max_concurrency or "none"),
            ("rate", queue.rate_limit or "none"),
            ("waiting", queue.waiting),
            ("later", queue.later),
            ("running", queue.running),
        ]
    )


def namespace_details(namespace: NamespaceView) -> None:
    draw_details(
        [
            ("namespace", namespace.name),
            ("limit", namespace.max_concurrency or "none"),
            ("weight", namespace.weight),
            ("running", namespace.running),
        ]
    )


def explanation(found: ExplanationView) -> None:
    """The answer first, then how it comes about."""
    draw_details(
        [
            ("run", f"{found.run_id} of job {found.job_name}"),
            ("status", found.status),
            ("why", found.summary),
            ("advice", found.advice),
            ("given up", found.expires_at and f"at {local_time(found.expires_at)}, unless it has started"),
        ]
    )
    console_here().print()
    table = Table.grid(padding=(0, GAP, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for gate in found.gates:
        mark = Text("passed", style="green") if gate.passed else Text("holds", style="yellow")
        table.add_row(mark, gate.gate, Text(printable(gate.detail)))
    console_here().print(table)


def times_list(times: Iterable[datetime], zone: str) -> None:
    """One line per time: here, and in the job's own zone where that is another."""
    from zoneinfo import ZoneInfo

    console = console_here()
    for at in times:
        here = local_time(at)
        there = at.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S %Z")
        same = there.endswith(here)
        console.print(Text(there if same else f"{here}   {there}"))


def schedule_text(job: JobView) -> str:
    return ", ".join(_schedule_words(schedule) for schedule in job.schedule)


def first_line(text: str | None) -> str | None:
    return text.partition("\n")[0] if text else text


def _schedule_words(schedule: dict[str, Any]) -> str:
    match schedule:
        case {"now": _}:
            return "once, at once"
        case {"at": str(at)}:
            return f"once, at {at}"
        case {"every": every, "after": "completion"}:
            return f"every {every} after completion"
        case {"every": every, "anchor": anchor}:
            return f"every {every} from {anchor}"
        case {"every": every}:
            return f"every {every}"
        case {"rrule": rule, "first": first}:
            return f"{rule} from {first}"
        case {"cron": cron}:
            return f"cron {cron}"
        case _:
            return json.dumps(schedule)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "nothing"


def _lease(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds > 0 else "gone"


def _heard(node: NodeDetailView) -> str | None:
    return None if node.heard_seconds_ago is None else f"{max(node.heard_seconds_ago, 0):.1f} s ago"
