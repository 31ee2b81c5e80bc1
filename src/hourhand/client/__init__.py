"""Talks to a running Hourhand: `Client` for plain code, `AsyncClient` for asyncio. Both have the same methods.

    from hourhand.client import Client

    with Client("http://127.0.0.1:8420", token) as client:
        job = client.create_job(name="hello", kind="command", payload={"argv": ["echo", "hello"]})
        run = client.wait_for_job(job.job_id)

What is asked and how answers are read is written once, in `calls.py` and `scripts.py`, without any input or
output; the two clients only carry it.
"""

from hourhand.client.asynchronous import AsyncClient
from hourhand.client.attempt_views import AttemptView, UsageView
from hourhand.client.planning import BackfillView, DiffView, ForecastView
from hourhand.client.problems import AnswerLost, ApiProblem, JobEndedWithoutRun, WaitTimedOut
from hourhand.client.secrets import AuditView, SecretView
from hourhand.client.synchronous import Client
from hourhand.client.views import (
    AdviceView,
    ChangeView,
    ClusterView,
    ExplanationView,
    GateView,
    HistoryEntryView,
    HistoryPage,
    JobPage,
    JobStatusView,
    JobView,
    LogLineView,
    LogPage,
    NamespaceView,
    NodeDetailView,
    NodeView,
    PartView,
    PauseDone,
    PausePage,
    PauseView,
    ProgressView,
    QueueView,
    ResumeDone,
    RunDetailView,
    RunPage,
    RunsCancelled,
    RunsRetried,
    RunView,
    ShardOwnerView,
    ShardsView,
    ShardView,
    VersionView,
    WhoAmI,
)

__all__ = [
    "AdviceView",
    "AnswerLost",
    "ApiProblem",
    "AsyncClient",
    "AttemptView",
    "AuditView",
    "BackfillView",
    "ChangeView",
    "Client",
    "ClusterView",
    "DiffView",
    "ExplanationView",
    "ForecastView",
    "GateView",
    "HistoryEntryView",
    "HistoryPage",
    "JobEndedWithoutRun",
    "JobPage",
    "JobStatusView",
    "JobView",
    "LogLineView",
    "LogPage",
    "NamespaceView",
    "NodeDetailView",
    "NodeView",
    "PartView",
    "PauseDone",
    "PausePage",
    "PauseView",
    "ProgressView",
    "QueueView",
    "ResumeDone",
    "RunDetailView",
    "RunPage",
    "RunView",
    "RunsCancelled",
    "RunsRetried",
    "SecretView",
    "ShardOwnerView",
    "ShardView",
    "ShardsView",
    "UsageView",
    "VersionView",
    "WaitTimedOut",
    "WhoAmI",
]
