"""Every attempt has /tmp and its like to itself, for real (security test S11); and what is shared is said."""

import asyncio
import os
import shutil
import stat
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Final

import pytest

from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.private_places import NOWHERE, private_places
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.errors import BadConfiguration
from hourhand.model.outcome import Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason

OK: Final = Succeeded({"exit_code": 0})
PLACES: Final = ("/tmp", "/var/tmp", "/dev/shm")
MARK: Final = f"hourhand-test-{os.getpid()}"


@pytest.fixture
async def open_kind():
    kinds = []

    async def open_with(**settings):
        kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.3, **settings)))
        kinds.append(kind)
        await kind.open()
        if "mounts" not in kind._programs._host.launcher.abilities:
            pytest.skip("this machine lets nobody make mounts")
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


def shell(script):
    return {"argv": ["sh", "-c", script]}


def left_on_the_machine():
    """Entries of ours in the places themselves. Other attempts' folders are no business of a program's either."""
    return [path for place in PLACES for path in Path(place).glob(f"{MARK}*")]


# --- one attempt and another ----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
async def test_what_one_attempt_writes_there_no_other_sees_and_nothing_of_it_stays(open_kind, make_task, until, place):
    kind = await open_kind()
    name = f"{place}/{MARK}"
    first = make_task(shell(f"mkdir {name}; echo hush > {name}/secret; cat {name}/secret; sleep 1000"))
    running = asyncio.create_task(kind.run(first.task))
    await until(lambda: first.of("stdout"))
    second = make_task(shell(f"ls -d {name}; cat {name}/secret; ls -A {place}; find / -name '{MARK}*' 2>/dev/null"))
    await kind.run(second.task)
    assert [line for line in second.of("stdout") if MARK in line or "hush" in line] == []
    assert left_on_the_machine() == [], "also nobody else does"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    room = kind._programs._host.folders.room
    assert [path for path in room.rglob("*") if MARK in path.name] == []


async def test_one_after_the_other_finds_its_folder_and_tmp_empty(open_kind, make_task):
    kind = await open_kind()
    leave = f"touch $HOME/{MARK} /tmp/{MARK} /var/tmp/{MARK} /dev/shm/{MARK}; mkdir -p /tmp/{MARK}-d/e"
    leave += f"; chmod 0 /tmp/{MARK}-d"
    look = f"ls -A $HOME /tmp /var/tmp /dev/shm | grep {MARK}; stat -c %a $HOME /tmp"
    for _ in range(8):
        assert await kind.run(make_task(shell(leave)).task) == OK
        looked = make_task(shell(look))
        assert await kind.run(looked.task) == OK
        assert looked.of("stdout") == ["700", "700"]
        await asyncio.sleep(0.02)  # folders that have settled are given on, if nobody has touched them


async def test_a_folder_that_nobody_has_touched_is_given_on_and_no_other(open_kind, make_task, until):
    kind = await open_kind()

    async def home_of(script):
        logged = make_task(shell(f"pwd; {script}"))
        assert await kind.run(logged.task) == OK
        return logged.of("stdout")[0]

    seen: set[str] = set()
    for _ in range(200):
        home = await home_of("true")
        if home in seen:
            break
        seen.add(home)
    else:
        pytest.fail("no folder was ever used twice")
    # The first two leave nothing behind that could be seen by a list; the kernel notes the change all the same.
    changes = ("touch x; rm x", "chmod 755 .; chmod 700 .", "touch /tmp/x; rm /tmp/x", "touch /var/tmp/x", "touch x")
    for touch in changes:
        touched = await home_of(touch)
        assert touched not in [await home_of("true") for _ in range(40)], touch
        assert not Path(touched).exists(), touch


async def test_tmp_is_on_disk_and_counted_there(open_kind, make_task):
    kind = await open_kind()
    kind._programs._host.disk._look_seconds = 0.05
    big = make_task(shell("head -c 30000000 /dev/zero > /tmp/x; sleep 1000"))
    big.task.resources = Resources(disk=10_000_000)
    outcome = await kind.run(big.task)
    assert outcome.reason is Reason.DISK_LIMIT


# --- where the folders of attempts are -----------------------------------------------------------------------


@pytest.mark.parametrize("base", [*PLACES, "/tmp deeper", "/dev/shm deeper", "elsewhere"])
async def test_work_folders_may_lie_in_any_of_these_places(open_kind, make_task, base, seen_place):
    place, _, is_deeper = base.partition(" ")
    own = (seen_place if base == "elsewhere" else Path(place)) / MARK
    root = own / "deep" / "er" / "work" if is_deeper else own / "work"
    try:
        kind = await open_kind(work_root=str(root))
        each = "".join(f"echo {place} > {place}/b; cat {place}/b; " for place in PLACES)
        logged = make_task(shell("pwd; cd /; echo 1 > $HOME/a; cat $HOME/a; " + each))
        assert await kind.run(logged.task) == OK
        home, *said = logged.of("stdout")
        assert home.startswith(f"{root}/hourhand-work-")
        assert said == ["1", *PLACES]
        other = make_task(shell(f"ls {home}; ls {' '.join(PLACES)} | grep -x b"))
        await kind.run(other.task)
        assert other.of("stdout") == []
        await kind.close()
        assert list(root.iterdir()) == []
    finally:
        shutil.rmtree(own)


@pytest.fixture
def seen_place():
    from seen_folders import seen_folder

    with seen_folder() as folder:
        yield folder


async def test_work_folders_may_lie_in_what_is_hidden(open_kind, make_task, seen_place):
    home = seen_place / "home"
    home.mkdir(mode=0o711)
    home.chmod(0o711)
    (home / "token").write_text("hush")
    kind = await open_kind(work_root=str(home / "deep" / "work"), hidden=(home,))
    logged = make_task(shell(f"touch here; ls; cat {home}/token"))
    outcome = await kind.run(logged.task)
    assert outcome.reason is Reason.EXIT_CODE
    assert logged.of("stdout") == ["here"]


# --- what is shared ------------------------------------------------------------------------------------------


@pytest.fixture
def exchange():
    """A folder of the machine's in /tmp that everybody can write to."""
    with TemporaryDirectory(prefix=MARK) as folder:
        Path(folder).chmod(0o777)
        (Path(folder) / "given").write_text("given\n")
        (Path(folder) / "given").chmod(0o644)
        yield Path(folder)


async def test_what_the_machine_has_there_is_not_seen_unless_it_is_shared(open_kind, make_task, exchange):
    script = f"cat {exchange}/given; echo taken > {exchange}/taken"
    alone = make_task(shell(script))
    await (await open_kind()).run(alone.task)
    assert alone.of("stdout") == []
    assert not (exchange / "taken").exists()
    together = make_task(shell(f"{script}; echo mine > {gettempdir()}/{MARK}-own; ls -A {gettempdir()}"))
    kind = await open_kind(shared=(str(exchange),))
    assert await kind.run(together.task) == OK
    said = together.of("stdout")
    assert said[0] == "given"
    assert {exchange.name, f"{MARK}-own"} < set(said[1:])
    assert (exchange / "taken").read_text() == "taken\n"
    assert left_on_the_machine() == [exchange], "what is beside it is the attempt's own"


async def test_a_whole_place_can_be_shared(open_kind, make_task, exchange):
    kind = await open_kind(shared=("/tmp", "/dev/shm"))
    name = f"/dev/shm/{MARK}"
    logged = make_task(shell(f"cat {exchange}/given; echo x > {name}; ls {exchange.parent} | grep -c hourhand"))
    try:
        assert await kind.run(logged.task) == OK
        assert logged.of("stdout")[0] == "given"
        assert stat.S_ISREG(os.stat(name).st_mode)
    finally:
        Path(name).unlink(missing_ok=True)


async def test_a_shared_folder_that_is_not_there_yet_hinders_nobody(open_kind, make_task, exchange):
    later = exchange / "later"
    kind = await open_kind(shared=(str(later),))
    assert await kind.run(make_task({"argv": ["true"]}).task) == OK
    later.mkdir()
    (later / "here").touch()
    logged = make_task({"argv": ["ls", str(later)]})
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["here"]


async def test_a_program_that_lies_there_is_told_of_the_place(open_kind, make_task, exchange):
    program = exchange / "program"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    outcome = await (await open_kind()).run(make_task({"argv": [str(program)]}).task)
    assert outcome.reason is Reason.EXEC_NOT_FOUND
    assert "kinds.shared" in outcome.error
    kind = await open_kind(shared=(str(exchange),))
    assert await kind.run(make_task({"argv": [str(program)]}).task) == OK


def test_what_cannot_be_shared_is_told_all_at_once(tmp_path):
    with pytest.raises(BadConfiguration) as refused:
        private_places(["/dev/shm/one", "/srv/two", "/tmp/three"], tmp_path)
    told = str(refused.value)
    assert "/dev/shm/one cannot be shared without all of /dev/shm" in told
    assert "/srv/two is not below" in told
    assert "three" not in told


def test_folders_in_a_shared_one_are_shared_with_it():
    found = private_places(["/tmp/a/b", "/tmp/a", "/var/tmp"], Path("/tmp/w/room"))
    assert "/var/tmp" not in found.places
    assert found.shared == ["/tmp/a"]
    assert found.points == ["a", "w/room"]
    assert found.holds("/tmp/x")
    assert not found.holds("/tmp/a/b/c")
    assert not found.holds("/usr/bin/env")
    assert not NOWHERE.holds("/tmp/x")
