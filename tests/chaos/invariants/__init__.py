"""The table of promises that a history is held against.

Numbers and names are those of the reliability notes; 29 to 33 are about calendars, logs, secrets, tenants and the audit
trail, which have tests of their own. Each check is a pure function of the history. What a check cannot know it does not
hold against anybody; what it found nothing to look at for, it calls "not exercised".
"""

from typing import Final

from tests.chaos.findings import Findings, Invariant
from tests.chaos.history import History
from tests.chaos.invariants import (
    attempts,
    cancel,
    changes,
    health,
    limits,
    occurrence,
    ownership,
    runs,
    submission,
    timing,
)

INVARIANTS: Final = (
    Invariant(
        1,
        "durable submission",
        "A job whose submission was acknowledged is there, unless it was deleted.",
        submission.durable_submission,
    ),
    Invariant(
        2,
        "idempotent submission",
        "One Idempotency-Key makes one job at most, and is not accepted with another body.",
        submission.idempotent_submission,
    ),
    Invariant(
        3,
        "one run per fire time",
        "Every due time of an active job is accounted for exactly once: by a run or in the ledger.",
        occurrence.one_run_per_fire_time,
    ),
    Invariant(
        4,
        "no phantom run",
        "Every job was submitted, every change asked for; every run has a due time or somebody who asked for it.",
        occurrence.no_phantom_run,
    ),
    Invariant(5, "no early start", "Nothing starts before it is due, by the true clock.", timing.no_early_start),
    Invariant(6, "at least once", "Every run that has a result was seen to run.", runs.at_least_once),
    Invariant(7, "every run ends", "At the final read nothing is open but what is alive.", runs.every_run_ends),
    Invariant(8, "terminal is final", "Nothing happens to a run that has ended.", runs.terminal_is_final),
    Invariant(9, "legal transitions", "Runs take documented steps only.", runs.legal_transitions),
    Invariant(10, "one result", "A run has one result and is stored once.", runs.one_result),
    Invariant(
        11,
        "fencing",
        "Tokens grow, every effect has a token that was given out, a result comes from the newest holder.",
        attempts.fencing,
    ),
    Invariant(
        12,
        "bounded overlap",
        "Two attempts of a run are seen side by side only after the lease of the first has ended through a fault.",
        attempts.bounded_overlap,
    ),
    Invariant(
        13,
        "attempt budget",
        "No more failures and losses than allowed, and none fewer before a run is given up.",
        attempts.attempt_budget,
    ),
    Invariant(14, "cancel wins", "After cancel was acknowledged a run ends as cancelled.", cancel.cancel_wins),
    Invariant(
        15,
        "cancel stops the effect",
        "A cancelled run is silent soon after the acknowledgement, and no process of it is left.",
        cancel.cancel_stops_the_effect,
    ),
    Invariant(
        16,
        "cancelled before start never starts",
        "A run that was cancelled while it waited is never seen.",
        cancel.cancelled_before_start,
    ),
    Invariant(17, "pause", "No scheduled run has a due time inside a pause.", changes.pause),
    Invariant(
        18,
        "update and delete",
        "No run of an old version has a due time after the new one was acknowledged.",
        changes.update_and_delete,
    ),
    Invariant(
        19,
        "concurrency limit",
        "Never more slots of a limit are held than it has, and never more of its runs are seen at once.",
        limits.concurrency_limit,
    ),
    Invariant(20, "overlap policy", "Runs of a job overlap as its policy says.", limits.overlap_policy),
    Invariant(21, "shard epoch", "An old owner writes nothing after a newer one.", ownership.shard_epoch),
    Invariant(22, "one leader per epoch", "Leases of two leaders never overlap.", ownership.one_leader),
    Invariant(23, "coverage", "No shard is without a living owner for long.", ownership.coverage),
    Invariant(24, "pickup", "Without faults the 99th percentile of starts is soon after due.", timing.pickup),
    Invariant(25, "recovery", "After a fault is healed, starts are soon in time again.", timing.recovery),
    Invariant(26, "retry spacing", "Retries come when the policy says.", attempts.retry_spacing),
    Invariant(27, "time-out", "Nothing lives or succeeds beyond its time.", timing.time_out),
    Invariant(28, "misfire", "After a silence exactly the runs of the catch-up policy are made.", occurrence.misfire),
    Invariant(
        34,
        "wake-ups are hints",
        "With notifications lost, what is ready is claimed within the poll interval.",
        timing.broker_is_a_hint,
    ),
    Invariant(
        35,
        "ack means durable",
        "What was acknowledged was written before, and survives a crash of the database.",
        submission.ack_means_durable,
    ),
    Invariant(36, "read your write", "A read after an acknowledgement sees the write.", submission.read_your_write),
    Invariant(37, "no leak", "Processes, connections, memory and files stay within bounds.", health.no_leak),
    Invariant(38, "honest errors", "Every refusal is a documented problem.", health.honest_errors),
)


def check_all(history: History) -> dict[int, Findings]:
    """What each promise's check found."""
    return {invariant.number: invariant.check(history) for invariant in INVARIANTS}
