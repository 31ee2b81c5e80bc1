"""All that is kept, by noun, through one pool of connections."""

from dataclasses import dataclass
from datetime import timedelta

from hourhand.database.connections import Database
from hourhand.model.gates import PRIORITY_WAIT
from hourhand.store.artifacts import Artifacts
from hourhand.store.audit import Audit
from hourhand.store.backfills import Backfills
from hourhand.store.calendars import Calendars
from hourhand.store.explain import Explain
from hourhand.store.jobs import Jobs
from hourhand.store.ledger import Ledger
from hourhand.store.live_runs import LiveRuns
from hourhand.store.logs import Logs
from hourhand.store.names import Names
from hourhand.store.nodes import Nodes
from hourhand.store.partitions import Partitions
from hourhand.store.parts import Parts
from hourhand.store.pauses import Pauses
from hourhand.store.queues import Queues
from hourhand.store.run_files import RunFiles
from hourhand.store.runs import Runs
from hourhand.store.secrets import Secrets
from hourhand.store.submissions import Submissions
from hourhand.store.timetable import Timetable
from hourhand.store.tokens import Tokens
from hourhand.store.turns import Turns
from hourhand.store.versions import Versions
from hourhand.store.zones import Zones


@dataclass
class Store:
    """Everything that is kept, through one pool of connections."""

    database: Database
    names: Names
    jobs: Jobs
    submissions: Submissions
    runs: Runs
    live_runs: LiveRuns
    timetable: Timetable
    logs: Logs
    nodes: Nodes
    tokens: Tokens
    partitions: Partitions
    turns: Turns
    queues: Queues
    explain: Explain
    calendars: Calendars
    pauses: Pauses
    ledger: Ledger
    backfills: Backfills
    versions: Versions
    zones: Zones
    artifacts: Artifacts
    run_files: RunFiles
    parts: Parts
    secrets: Secrets
    audit: Audit


def store_on(database: Database, priority_wait: timedelta = PRIORITY_WAIT) -> Store:
    names = Names(database)
    jobs = Jobs(database, names)
    live_runs = LiveRuns(database, names, priority_wait)
    queues = Queues(database)
    pauses = Pauses(database, names, queues)
    return Store(
        database,
        names,
        jobs,
        Submissions(database, jobs),
        Runs(database, names),
        live_runs,
        Timetable(database),
        Logs(database),
        Nodes(database),
        Tokens(database),
        Partitions(database),
        Turns(database, live_runs),
        queues,
        Explain(database, names),
        Calendars(database),
        pauses,
        Ledger(database, pauses),
        Backfills(database),
        Versions(database),
        Zones(database),
        Artifacts(database),
        RunFiles(database),
        Parts(database, names),
        Secrets(database),
        Audit(database),
    )
