"""Episodes of a cluster that keeps its promises, each in a stretch of time of its own, with chance in its details."""

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st
from tests.chaos.history import RetrySpec
from tests.chaos.sample_history import Story

EPISODE_SECONDS: Final = 200.0
Draw = Callable[[float, float], float]
Episode = Callable[[Story, float, Draw], None]


def at_once(story: Story, now: float, draw: Draw) -> None:
    job = story.job(submitted=now, key=f"key-{now}")
    story.call("submit", now + 0.5, job_id=job, version=1, idempotency_key=f"key-{now}", body_digest="a")
    story.life(job, now + 0.01, seconds=draw(0.0, 30.0), start=now + draw(0.02, 1.5))
    story.call("get_job", now + 40.0, job_id=job, version=1, state="completed")


def recurring(story: Story, now: float, draw: Draw) -> None:
    interval = draw(2.0, 20.0)
    job = story.job(
        submitted=now, schedule="every", every_seconds=interval, anchor=now + 5.0, end_at=now + 5.0 + 5 * interval
    )
    for number in range(6):
        due = now + 5.0 + number * interval
        story.life(job, due, seconds=draw(0.0, interval / 2), start=due + draw(0.0, 0.9))


def failing(story: Story, now: float, draw: Draw) -> None:
    retries = round(draw(0, 4))
    retry = RetrySpec(base_seconds=4.0, factor=2.0, jitter=0.2)
    job = story.job(submitted=now, schedule="at", at=now + 5.0, max_retries=retries, retry=retry)
    run = story.born(job, now + 5.0)
    start = now + 5.02
    for number in range(retries + 1):
        story.begin(run, start)
        end = start + draw(0.0, 2.0)
        if number == retries:
            story.end(run, end, "failed", "exception")
            return
        story.say(run, "end", end, failed=True)
        ready = end + 0.1 + 4.0 * 2.0**number * draw(0.85, 1.15)
        story.requeue(run, end + 0.1, ready)
        start = ready + draw(0.02, 1.0)


def rescued(story: Story, now: float, draw: Draw) -> None:
    job = story.job(submitted=now, schedule="at", at=now + 5.0)
    run = story.born(job, now + 5.0)
    broken = now + 6.0 + draw(0.0, 5.0)
    lease_until = broken + draw(11.0, 15.0)
    story.lease("executor-1", broken - 0.5, lease_until)
    action = "stop" if draw(0.0, 1.0) < 0.5 else "kill"
    story.fault(action, broken, broken + draw(1.0, 40.0), "executor-1")
    first = story.begin(run, now + 5.02)
    zombie_until = broken + (draw(0.0, 60.0) if action == "stop" else 0.0)
    story.beat(run, now + 6.0, zombie_until, 0.5, attempt=1, fence=first)
    taken = lease_until + draw(0.1, 1.0)
    story.requeue(run, taken, taken, "lost", "executor_lost")
    story.begin(run, taken + 0.2, "executor-2")
    story.end(run, taken + draw(1.0, 50.0))


def cancelled(story: Story, now: float, draw: Draw) -> None:
    job = story.job(submitted=now, schedule="at", at=now + 5.0)
    run = story.born(job, now + 5.0)
    asked = now + 4.0 + draw(0.1, 20.0)
    if asked < now + 4.9:
        story.finish(run, "cancelled", asked + 0.01, "cancelled")
        story.call("cancel", asked, run_id=run, state="cancelled")
        return
    story.begin(run, now + 5.02 if asked > now + 5.1 else now + 5.5)
    asked = max(asked, now + 6.0)
    story.step(run, "cancelling", asked + 0.01)
    story.call("cancel", asked, run_id=run, state="cancelling")
    story.call("get_run", asked + 1.0, run_id=run, state="cancelling")
    story.say(run, "term", asked + draw(0.05, 1.5))
    gone = asked + draw(1.6, 11.0)
    story.say(run, "beat", gone, who="child")
    story.finish(run, "cancelled", gone + 0.1, "cancelled")


def paused(story: Story, now: float, draw: Draw) -> None:
    job = story.job(
        submitted=now, schedule="every", every_seconds=5.0, anchor=now + 5.0, end_at=now + 60.0, overlap="allow"
    )
    pause = now + draw(6.0, 25.0)
    resume = pause + draw(1.0, 25.0)
    story.call("pause", pause, job_id=job, version=1)
    story.call("get_job", pause + 0.5, job_id=job, version=1, state="paused")
    story.call("resume", resume, job_id=job, version=1)
    for number in range(1, 13):
        due = now + 5.0 * number
        if due <= pause + 0.01 or due > resume + 0.01:
            story.life(job, due, seconds=draw(0.0, 2.0))


def limited(story: Story, now: float, draw: Draw) -> None:
    gate = f"key:{now}"
    capacity = round(draw(1, 3))
    free = [now + 5.02] * capacity
    slots: list[tuple[float, int, str]] = []
    for _ in range(6):
        job = story.job(submitted=now, schedule="at", at=now + 5.0, gates={gate: capacity})
        run = story.born(job, now + 5.0)
        start = min(free)
        free.remove(start)
        if start > now + 5.02:
            story.step(run, "waiting", now + 5.0)
            story.step(run, "queued", start - 0.05)
        story.begin(run, start)
        end = start + draw(0.5, 15.0)
        story.end(run, end)
        slots += [(start - 0.02, 1, run), (end + 0.05, 0, run)]
        free.append(end + 0.2)
    for moment, taken, run in sorted(slots):
        story.slot(gate, run, moment, bool(taken), capacity)


def skipping(story: Story, now: float, draw: Draw) -> None:
    job = story.job(submitted=now, schedule="every", every_seconds=10.0, anchor=now + 10.0, end_at=now + 60.0)
    busy_until = 0.0
    for number in range(1, 7):
        due = now + 10.0 * number
        if busy_until >= due - 0.05:
            story.finish(story.born(job, due, state="waiting"), "skipped", due + 0.01, "overlap")
            continue
        seconds = draw(0.5, 24.0)
        busy_until = due + 0.02 + seconds + 0.05
        story.life(job, due, seconds=seconds)


def handed_over(story: Story, now: float, draw: Draw) -> None:
    shard = round(now)
    story.shard(shard, "scheduler-1", now, 1)
    story.lead("scheduler-1", now, now + 9.0, shard * 2 + 1)
    broken = now + draw(1.0, 8.0)
    story.fault("kill", broken, broken + 2.0, "scheduler-1")
    story.lead("scheduler-2", now + 9.1, now + 18.0, shard * 2 + 2)
    story.shard(shard, "scheduler-2", now + 9.3, 2)
    job = story.job(submitted=now + 11.0, schedule="at", at=now + 20.0)
    story.life(job, now + 20.0, shard=shard, actor="scheduler-2")
    story.shard(shard, None, now + 100.0, 3)
    story.shard(shard, "scheduler-2", now + 100.0 + draw(0.1, 9.0), 4)


def timed_out(story: Story, now: float, draw: Draw) -> None:
    limit = draw(1.0, 20.0)
    job = story.job(submitted=now, schedule="at", at=now + 5.0, timeout_seconds=limit, max_retries=0)
    run = story.born(job, now + 5.0)
    story.begin(run, now + 5.02)
    story.say(run, "term", now + 5.02 + limit + draw(0.0, 1.0))
    gone = now + 5.02 + limit + draw(1.0, 11.0)
    story.say(run, "beat", gone)
    story.finish(run, "timed_out", gone + 0.1, "timeout")


EPISODES: Final[tuple[Episode, ...]] = (
    at_once,
    recurring,
    failing,
    rescued,
    cancelled,
    paused,
    limited,
    skipping,
    handed_over,
    timed_out,
)


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """Some episodes, one after the other."""
    chosen = draw(st.lists(st.sampled_from(EPISODES), min_size=1, max_size=6))
    story = Story(lasts=EPISODE_SECONDS * (len(chosen) + 1))
    for place, episode in enumerate(chosen):
        episode(story, EPISODE_SECONDS * place, lambda low, high: round(draw(st.floats(low, high)), 3))
    return story
