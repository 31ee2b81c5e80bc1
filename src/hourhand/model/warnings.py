"""What is allowed and yet worth a word to whoever looks at a job."""

from datetime import timedelta
from typing import Final

from hourhand.model.cron import Cron
from hourhand.model.local_time import ZoneFault, load_zone
from hourhand.model.schedule import CronSchedule, Every, Timing

_OFTEN: Final = timedelta(seconds=1)


def timing_warnings(timing: Timing) -> list[str]:
    """Sentences that each begin with a stable word."""
    try:
        load_zone(timing.zone)
    except ZoneFault as fault:
        return [f"invalid-timezone: {fault}; the job makes no runs until it has another zone"]
    if any(_every_second(schedule) for schedule in timing.schedules):
        return ["fires-every-second: each run has a row of its own; a longer interval costs less"]
    return []


def _every_second(schedule: object) -> bool:
    if isinstance(schedule, Every):
        return schedule.interval <= _OFTEN
    if isinstance(schedule, CronSchedule):
        seconds = Cron.parse(schedule.text, schedule.seed).seconds
        return bool(seconds & seconds >> 1)
    return False
