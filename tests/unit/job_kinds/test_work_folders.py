import os
import subprocess

import pytest

from hourhand.job_kinds.work_folders import WorkFolders
from hourhand.model.errors import BadConfiguration


@pytest.fixture
def old():
    """Makes a room look as if it had been there for a while."""

    def age(room):
        os.utime(room, (0, 0))
        return room

    return age


def opened(base):
    folders = WorkFolders(str(base), None)
    folders.open()
    return folders


def test_the_room_of_a_killed_executor_is_removed_by_the_next(tmp_path, old):
    room = tmp_path / "hourhand-work-left"
    (room / "run" / "deep").mkdir(parents=True)
    (room / "run" / "deep").chmod(0)
    old(room)
    folders = opened(tmp_path)
    assert not room.exists()
    folders.close()
    assert list(tmp_path.iterdir()) == []


def test_the_room_of_a_living_executor_is_left_alone(tmp_path, old):
    first = opened(tmp_path)
    [room] = tmp_path.iterdir()
    old(room)
    second = opened(tmp_path)
    assert room.exists()
    first.close()
    second.close()


def test_what_a_killed_executor_left_running_is_ended_with_its_room(tmp_path):
    room = tmp_path / "hourhand-work-left"
    (room / "run").mkdir(parents=True)
    (room / ".locked-once").touch()
    inside = subprocess.Popen(["sleep", "1000"], cwd=room / "run")
    moved = subprocess.Popen(["sleep", "1000"], cwd="/", env={"HOME": f"{room}/run"}, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "1000"], cwd="/", env={"HOME": f"{room}-other/run"})
    try:
        opened(tmp_path).close()
        assert not room.exists()
        assert (inside.wait(10), moved.wait(10)) == (-9, -9)
        assert stranger.poll() is None
    finally:
        for process in (inside, moved, stranger):
            process.kill()
            process.wait()


def test_what_runs_in_the_room_of_a_living_executor_is_left_alone(tmp_path):
    first = opened(tmp_path)
    _, start = first.make("run", "")
    with subprocess.Popen(["sleep", "1000"], cwd=start) as process:
        opened(tmp_path).close()
        assert process.poll() is None
        process.kill()
    first.close()


def test_folders_of_others_are_none_of_our_business(tmp_path, old):
    target = tmp_path / "precious"
    target.mkdir()
    old(target)
    (tmp_path / "hourhand-work-link").symlink_to(target)
    (tmp_path / "hourhand-work-young").mkdir()
    opened(tmp_path).close()
    assert target.exists()
    assert (tmp_path / "hourhand-work-young").exists()


def test_a_root_that_cannot_be_used_is_a_fault_of_the_configuration(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadConfiguration, match="work_root"):
        opened(tmp_path / "file" / "below")
