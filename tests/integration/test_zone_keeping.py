"""A new edition of the tz data, made up in a folder: the jobs of zones that changed are planned anew, and no others."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from crew import Scheduler, SetClock
from made_up_zones import tz_data_in, write_edition, write_zone
from sample_jobs import NAMESPACE, insert, new_job, rows

from hourhand.model.calendar_form import read_calendar
from hourhand.model.local_time import load_zone
from hourhand.model.schedule import CronSchedule, OnExcluded, Timing
from hourhand.ports.pause_stores import PauseTarget
from hourhand.ports.stores import NEVER
from hourhand.runtime import tz_data
from hourhand.runtime.tz_data import ZoneWatch
from hourhand.scheduler import zone_keeper
from hourhand.scheduler.zone_keeper import ZoneKeeper
from hourhand.wiring import Store

NOW = datetime(2030, 6, 10, 5, tzinfo=UTC)


def hour(number: float, day: int = 10) -> datetime:
    return datetime(2030, 6, day, tzinfo=UTC) + timedelta(hours=number)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Two zones whose clocks are two hours ahead of UTC."""
    monkeypatch.setattr(zone_keeper, "available_timezones", lambda: {"Made/Up", "Made/Other", "UTC"})
    monkeypatch.setattr(zone_keeper, "PAUSE_SECONDS", 0)
    write_zone(tmp_path, "Made/Up", "MAD-2")
    write_zone(tmp_path, "Made/Other", "MAD-2")
    write_zone(tmp_path, "UTC", "UTC0")
    write_edition(tmp_path, "1")
    with tz_data_in(tmp_path):
        yield tmp_path


@pytest.fixture
def clock() -> SetClock:
    return SetClock(NOW)


async def leading(store: Store, clock: SetClock, name: str = "a") -> Scheduler:
    scheduler = await Scheduler(store, clock).join(name)
    await scheduler.leadership.run_once()
    await scheduler.lookout.run_once()
    return scheduler


def keeper_of(scheduler: Scheduler, zones: Any = None) -> ZoneKeeper:
    store = zones or scheduler.store.zones
    return ZoneKeeper(store, scheduler.leadership, lambda: scheduler.node_id, scheduler.clock, ZoneWatch())


async def nine_o_clock(store: Store, zone: str, next_due: datetime | None = None) -> UUID:
    timing = Timing((CronSchedule("0 9 * * *"),), zone=zone)
    due = next_due or timing.next_after(NOW)
    return (await insert(store, new_job(timing, next_due=due, created_at=NOW - timedelta(days=30))))[0]


async def cursors(store: Store) -> dict[UUID, datetime]:
    return {row["job_id"]: row["next_fire"] for row in await rows(store, "timetable")}


def summer_time_is_abolished(folder: Path, edition: str = "2") -> None:
    """In one of the two zones: from now on it is one hour ahead."""
    write_zone(folder, "Made/Up", "MAD-1")
    write_edition(folder, edition)


async def test_a_new_edition_moves_the_jobs_of_zones_that_changed_and_no_others(
    store: Store, clock: SetClock, folder: Path
) -> None:
    keeper = keeper_of(await leading(store, clock))
    moving, other, utc = [await nine_o_clock(store, zone) for zone in ("Made/Up", "Made/Other", "UTC")]
    await keeper.run_once()
    assert await cursors(store) == {moving: hour(7), other: hour(7), utc: hour(9)}

    summer_time_is_abolished(folder)
    await keeper.run_once()

    assert await cursors(store) == {moving: hour(8), other: hour(7), utc: hour(9)}
    stored = await store.zones.zone_rules()
    assert stored[""].startswith("2-")
    assert stored["Made/Up"] != stored["Made/Other"]


async def test_a_scheduler_that_starts_with_a_new_edition_notices_what_has_changed_since(
    store: Store, clock: SetClock, folder: Path
) -> None:
    first = await leading(store, clock)
    job_id = await nine_o_clock(store, "Made/Up")
    await keeper_of(first).run_once()
    await first.leadership.resign()

    summer_time_is_abolished(folder)
    with tz_data_in(folder):  # another process
        await keeper_of(await leading(store, clock, "b")).run_once()
        assert await cursors(store) == {job_id: hour(8)}


async def test_the_first_scheduler_ever_writes_down_the_rules_and_moves_nothing(
    store: Store, clock: SetClock, folder: Path
) -> None:
    job_id = await nine_o_clock(store, "Made/Up", next_due=hour(3, 11))  # whatever it was planned by
    await keeper_of(await leading(store, clock)).run_once()
    assert await cursors(store) == {job_id: hour(3, 11)}
    assert set(await store.zones.zone_rules()) == {"", "UTC", "Made/Up", "Made/Other"}


async def test_an_edition_without_news_for_any_zone_moves_nothing(store: Store, clock: SetClock, folder: Path) -> None:
    keeper = keeper_of(await leading(store, clock))
    job_id = await nine_o_clock(store, "Made/Up")
    await keeper.run_once()
    write_edition(folder, "1b")
    await keeper.run_once()
    assert await cursors(store) == {job_id: hour(7)}
    assert (await store.zones.zone_rules())[""].startswith("1b-")


async def test_jobs_are_gone_through_page_by_page(
    store: Store, clock: SetClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_keeper, "PAGE", 2)
    keeper = keeper_of(await leading(store, clock))
    jobs = [
        await nine_o_clock(store, zone) for zone in ("Made/Up", "UTC", "UTC", "Made/Up", "Made/Up", "UTC", "Made/Up")
    ]
    await keeper.run_once()
    summer_time_is_abolished(folder)
    await keeper.run_once()
    found = await cursors(store)
    assert [found[job_id] for job_id in jobs] == [hour(8), hour(9), hour(9), hour(8), hour(8), hour(9), hour(8)]


class DiesOnSecondPage:
    """The store, for a leader that is killed half-way."""

    def __init__(self, store: Store) -> None:
        self._zones = store.zones
        self._pages = 0

    def __getattr__(self, name: str) -> Any:
        if name == "cursors_in_zones":
            self._pages += 1
            if self._pages > 1:
                raise ConnectionResetError
        return getattr(self._zones, name)


async def test_a_leader_killed_half_way_is_followed_by_one_that_does_all_of_it(
    store: Store, clock: SetClock, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zone_keeper, "PAGE", 2)
    scheduler = await leading(store, clock)
    jobs = [await nine_o_clock(store, "Made/Up") for _ in range(5)]
    await keeper_of(scheduler).run_once()
    summer_time_is_abolished(folder)
    with tz_data_in(folder):
        with pytest.raises(ConnectionResetError):
            await keeper_of(scheduler, DiesOnSecondPage(store)).run_once()
        assert sorted((await cursors(store)).values()) == [hour(7)] * 3 + [hour(8)] * 2

        await keeper_of(scheduler).run_once()

    assert await cursors(store) == dict.fromkeys(jobs, hour(8))


async def test_one_that_lost_the_lead_moves_nothing_and_writes_nothing(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    job_id = await nine_o_clock(store, "Made/Up")
    keeper = keeper_of(scheduler)
    await keeper.run_once()
    before = await store.zones.zone_rules()
    async with store.database.connection() as db:
        await db.execute(f"UPDATE {store.database.schema}.leases SET epoch = epoch + 1")
    summer_time_is_abolished(folder)

    assert await keeper.run_once() == zone_keeper.FOLLOW_SECONDS

    assert await cursors(store) == {job_id: hour(7)}
    assert await store.zones.zone_rules() == before


async def test_a_job_that_is_changed_meanwhile_is_left_to_the_change(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    job_id = await nine_o_clock(store, "Made/Up")
    page = await store.zones.cursors_in_zones(["Made/Up"], None, NOW, 10)
    async with store.database.connection() as db:
        await db.execute(f"UPDATE {store.database.schema}.timetable SET version = 2")
    assert scheduler.leadership.epoch is not None
    moved = await store.zones.move_cursors(scheduler.node_id, scheduler.leadership.epoch, [(page.cursors[0], hour(8))])
    assert moved == 0
    assert await cursors(store) == {job_id: hour(7)}


async def test_a_due_time_that_the_new_rules_put_into_the_past_is_late_and_not_lost(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    keeper = keeper_of(scheduler)
    job_id = await nine_o_clock(store, "Made/Up")
    await keeper.run_once()
    clock.time = hour(6.5)
    write_zone(folder, "Made/Up", "MAD-3")  # it was nine o'clock half an hour ago
    write_edition(folder, "2")

    await keeper.run_once()
    assert await cursors(store) == {job_id: hour(6)}
    await scheduler.planner.run_once()

    assert [(row["job_id"], row["scheduled_for"]) for row in await rows(store, "live_runs")] == [(job_id, hour(6))]
    assert await cursors(store) == {job_id: hour(6, 11)}


async def test_what_ran_today_by_the_old_rules_does_not_run_again_by_the_new_ones(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    keeper = keeper_of(scheduler)
    job_id = await nine_o_clock(store, "Made/Up")
    await keeper.run_once()
    clock.time = hour(7)
    await scheduler.planner.run_once()
    assert await cursors(store) == {job_id: hour(7, 11)}
    clock.time = hour(7.5)
    summer_time_is_abolished(folder)  # it is nine o'clock once more, at 08:00

    await keeper.run_once()
    await scheduler.planner.run_once()

    assert [row["scheduled_for"] for row in await rows(store, "live_runs")] == [hour(7)]
    assert await cursors(store) == {job_id: hour(8, 11)}


async def test_a_zone_that_is_gone_leaves_its_jobs_where_they_are(store: Store, clock: SetClock, folder: Path) -> None:
    keeper = keeper_of(await leading(store, clock))
    job_id = await nine_o_clock(store, "Made/Up")
    await keeper.run_once()
    (folder / "Made" / "Up").unlink()
    write_edition(folder, "2")
    await keeper.run_once()
    assert await cursors(store) == {job_id: hour(7)}
    assert (await store.zones.zone_rules())[""].startswith("2-")


async def test_who_does_not_lead_compares_nothing(store: Store, clock: SetClock, folder: Path) -> None:
    await leading(store, clock)
    follower = await leading(store, clock, "b")
    assert await keeper_of(follower).run_once() == zone_keeper.FOLLOW_SECONDS
    assert await store.zones.zone_rules() == {}


async def test_every_node_uses_a_new_edition_without_a_restart(folder: Path) -> None:
    watch = ZoneWatch()
    await watch.run_once()
    noon = datetime(2030, 6, 10, 12, tzinfo=UTC)
    assert noon.astimezone(load_zone("Made/Up")).hour == 14
    summer_time_is_abolished(folder)
    assert noon.astimezone(load_zone("Made/Up")).hour == 14

    await watch.run_once()

    assert noon.astimezone(load_zone("Made/Up")).hour == 13


def test_a_folder_that_names_no_version_is_known_by_its_files(folder: Path) -> None:
    (folder / "tzdata.zi").unlink()
    before = tz_data.edition()
    assert tz_data.edition() == before
    write_zone(folder, "Made/Other", "MAD-5")
    assert tz_data.edition() != before


async def test_cursors_that_a_pause_holds_are_planned_anew_where_they_rest(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    keeper = keeper_of(scheduler)
    await keeper.run_once()
    job_id = await nine_o_clock(store, "Made/Up")
    clock.time = hour(7) - timedelta(seconds=5)
    await store.pauses.pause(PauseTarget(NAMESPACE), "ada", None, None, clock.time)
    assert await cursors(store) == {job_id: NEVER}

    summer_time_is_abolished(folder)
    await keeper.run_once()

    assert await cursors(store) == {job_id: NEVER}
    assert [row["next_fire"] for row in await rows(store, "resting")] == [hour(8)]


async def test_a_cursor_that_waits_for_the_next_allowed_time_waits_for_it_by_the_new_rules(
    store: Store, clock: SetClock, folder: Path
) -> None:
    scheduler = await leading(store, clock)
    keeper = keeper_of(scheduler)
    await keeper.run_once()
    await store.calendars.put(NAMESPACE, "holiday", read_calendar(dates=["2030-06-10"]), NOW, "ada", None)
    timing = Timing(
        (CronSchedule("0 9 * * *"),), "Made/Up", calendars=("holiday",), on_excluded=OnExcluded.NEXT_ALLOWED
    )
    [job_id] = await insert(store, new_job(timing, next_due=hour(7), created_at=NOW - timedelta(days=30)))
    clock.time = hour(7)
    await scheduler.planner.run_once()
    assert await cursors(store) == {job_id: hour(22)}

    summer_time_is_abolished(folder)
    await keeper.run_once()

    assert await cursors(store) == {job_id: hour(23)}
