"""The sample jobs of `hourhand demo`: one of each sort, each showing something."""

from typing import Any, Final

DEMO_JOBS: Final[list[dict[str, Any]]] = [
    {
        "name": "hello",
        "description": "an async Python handler, once, now",
        "payload": {"handler": "demo.hello", "name": "world"},
    },
    {
        "name": "heartbeat",
        "description": "a command, every 10 seconds",
        "kind": "command",
        "payload": {"argv": ["date", "+%H:%M:%S"]},
        "schedule": {"every": "10s"},
    },
    {
        "name": "nightly-report",
        "description": "a command at 02:30 Berlin time, right on both DST nights",
        "kind": "command",
        "payload": {"argv": ["sh", "-c", "echo building the report for $HOURHAND_SCHEDULED_TIME"]},
        "schedule": {"cron": "30 2 * * *"},
        "zone": "Europe/Berlin",
        "labels": {"team": "finance"},
    },
    {
        "name": "flaky",
        "description": "fails at first and succeeds when tried again, two seconds later",
        "payload": {"handler": "demo.flaky"},
        "retry": {"delays": ["2s"]},
    },
    {
        "name": "crunch",
        "description": "a sync Python handler in a process of its own, with output",
        "payload": {"handler": "demo.crunch"},
    },
    {
        "name": "broken",
        "description": "a command that fails: see what is told about it",
        "kind": "command",
        "payload": {"argv": ["sh", "-c", "echo 'no such customer: 42' >&2; exit 3"]},
        "max_retries": 0,
    },
]
