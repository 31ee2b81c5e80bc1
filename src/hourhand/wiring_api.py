"""Puts together what callers of the API may ask for."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hourhand.api.app import ApiOperations
from hourhand.config import Config
from hourhand.database.connections import Database
from hourhand.job_kinds.http_targets import TargetNames
from hourhand.job_kinds.registry import Kinds
from hourhand.operations.access import Access
from hourhand.operations.artifacts import ArtifactOperations
from hourhand.operations.backfills import BackfillOperations
from hourhand.operations.calendars import CalendarOperations
from hourhand.operations.callbacks import CallbackOperations
from hourhand.operations.cluster import ClusterOperations
from hourhand.operations.explain import ExplainOperations
from hourhand.operations.forecast import ForecastOperations
from hourhand.operations.history import HistoryOperations
from hourhand.operations.jobs import JobOperations
from hourhand.operations.log_source import LogSource
from hourhand.operations.log_watch import LogWatch
from hourhand.operations.logs import LogOperations
from hourhand.operations.moved_logs import PackReader
from hourhand.operations.nodes import NodeOperations
from hourhand.operations.offers import Offers
from hourhand.operations.pauses import PauseOperations
from hourhand.operations.placing import PlacingOperations
from hourhand.operations.previews import PreviewOperations
from hourhand.operations.queues import QueueOperations
from hourhand.operations.run_files import RunFileOperations
from hourhand.operations.run_watch import RunWatch
from hourhand.operations.runs import RunOperations
from hourhand.operations.secrets import SecretOperations
from hourhand.operations.versions import VersionOperations
from hourhand.ports.blobs import Blobs
from hourhand.run_queues.postgres_events import PostgresEventBus
from hourhand.runtime.bell import Bell
from hourhand.runtime.clock import DatabaseClock
from hourhand.runtime.ids import IdSource
from hourhand.runtime.keyring import keyring_of
from hourhand.runtime.signing import TrustedKeys
from hourhand.store.callbacks import Callbacks
from hourhand.store.forecasts import Forecasts
from hourhand.store.log_packs import LogPacks
from hourhand.store.placing import Placing
from hourhand.store.progress import ProgressBoard
from hourhand.store.whole import Store


@dataclass(frozen=True, slots=True)
class ApiGround:
    """What the operations stand on."""

    config: Config
    store: Store
    database: Database
    clock: DatabaseClock
    ids: IdSource
    bus: PostgresEventBus
    blobs: Blobs
    kinds: Kinds
    access: Access
    bell: Bell
    offers: Offers


def api_operations(
    ground: ApiGround, database_facts: Callable[[], Awaitable[dict[str, str]]], late_loops: Callable[[], list[str]]
) -> ApiOperations:
    store = ground.store
    submitting = (store.jobs, store.submissions, store.runs, ground.kinds, ground.clock, ground.ids, ground.bus)
    runs = RunOperations(store.runs, store.jobs, ground.clock, ground.ids, ground.bus)
    return ApiOperations(
        jobs=JobOperations(
            *submitting,
            ground.config.submit,
            store.calendars,
            store.nodes,
            store.pauses,
            store.secrets,
            # Where private addresses are allowed there is hardly a name that leads to anything else.
            None if ground.config.kinds.allow_private_targets else TargetNames(allow_private=False).faults,
            artifacts=store.artifacts,
            offers=ground.offers,
        ),
        runs=runs,
        cluster=ClusterOperations(store.nodes, store.runs, store.timetable, ground.clock, database_facts, late_loops),
        access=ground.access,
        nodes=NodeOperations(store.nodes, ground.bus),
        queues=QueueOperations(store.queues, store.names, ground.bus, store.pauses, ground.clock),
        explain=ExplainOperations(store.explain),
        calendars=CalendarOperations(store.calendars, ground.clock),
        previews=PreviewOperations(store.calendars, ground.clock),
        history=HistoryOperations(store.ledger, ground.clock),
        pauses=PauseOperations(store.pauses, store.names, ground.clock, ground.bus),
        backfills=BackfillOperations(
            store.backfills, store.jobs, store.runs, store.calendars, ground.clock, ground.ids, ground.bus
        ),
        versions=VersionOperations(
            store.versions, store.jobs, store.calendars, ground.kinds, ground.clock, ground.bus, store.secrets
        ),
        forecast=ForecastOperations(Forecasts(ground.database), store.nodes, ground.clock),
        placing=PlacingOperations(Placing(ground.database), store.jobs, store.runs, store.parts),
        watch=RunWatch(ProgressBoard(ground.database)),
        callbacks=CallbackOperations(
            Callbacks(ground.database),
            ProgressBoard(ground.database),
            ground.bus,
            ground.clock.now,
            keyring_of(ground.config),
        ),
        artifacts=ArtifactOperations(
            store.artifacts,
            ground.blobs,
            ground.clock,
            ground.ids,
            TrustedKeys(ground.config.kinds.artifact_keys, ground.config.kinds.require_signed_artifacts),
            ground.config.kinds.archive_limits,
        ),
        logs=LogOperations(
            runs,
            LogSource(store.logs, PackReader(LogPacks(ground.database), ground.blobs)),
            LogWatch(store.logs, ground.bell),
            ground.clock.now,
            store.parts,
        ),
        run_files=RunFileOperations(runs, store.run_files, ground.blobs),
        secrets=SecretOperations(store.secrets, keyring_of(ground.config), store.audit),
    )
