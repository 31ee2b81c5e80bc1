"""Names for users that are made up of numbers: what programs find when they ask who they are."""

import json
import os
import shutil
from typing import Final

import pytest

from hourhand.job_kinds import launcher_names
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.launcher_names import BYTES_MAX, Names
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.outcome import Succeeded

OK: Final = Succeeded({"exit_code": 0})
OTHERS: Final = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/bash\n"
WHO: Final = (1879048192, 65534)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")


@pytest.fixture
async def kind():
    kind = CommandKind(ProgramRunner(ProgramSettings()))
    await kind.open()
    host = kind._programs._host
    if host.users is None or "mounts" not in host.launcher.abilities:
        await kind.close()
        pytest.skip("this machine has no users for attempts, or lets nobody mount")
    yield kind
    await kind.close()


async def said(kind, logged):
    assert await kind.run(logged.task) == OK, logged.lines
    return logged.of("stdout")


@needs_root
async def test_an_attempt_with_a_user_of_its_own_has_a_name_and_a_home(kind, make_task):
    script = 'whoami; id -un; id -gn; getent passwd "$(id -u)"; echo "$HOME"; eval "echo ~$(whoami)"; id -u'
    name, same, group, entry, home, by_name, number = await said(kind, make_task({"argv": ["sh", "-c", script]}))
    assert name == same == "job"
    assert group == "nogroup"
    assert entry == f"job:x:{number}:65534:Hourhand job:{home}:/bin/sh"
    assert by_name == home
    look = "import getpass, os, pathlib, pwd; print(getpass.getuser(), os.path.expanduser('~job'))"
    assert (await said(kind, make_task({"argv": ["/usr/bin/env", "python3", "-c", look]})))[0].startswith("job /")


@needs_root
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
async def test_node_knows_who_runs_it(kind, make_task):
    look = "const who = os.userInfo(); console.log(JSON.stringify([who.username, who.homedir == process.env.HOME]))"
    [line] = await said(kind, make_task({"argv": ["node", "-e", look]}))
    assert json.loads(line) == ["job", True]


@needs_root
async def test_nobody_can_write_to_the_list_or_read_that_of_another_attempt(kind, make_task):
    script = (
        "echo x >> /etc/passwd || chmod 666 /etc/passwd || umount /etc/passwd || rm -f /etc/passwd || echo safe;"
        'ls "$HOME/../.names" || cat "$HOME/../.names/${HOME##*/}" || echo unseen; grep -c ^job: /etc/passwd'
    )
    lines = await said(kind, make_task({"argv": ["sh", "-c", script]}))
    assert lines == ["safe", "unseen", "1"]


@needs_root
async def test_the_machine_itself_keeps_its_list_and_nothing_is_left_of_those_of_attempts(kind, make_task):
    with open("/etc/passwd", "rb") as file:
        before = file.read()
    room = kind._programs._host.folders.room
    launcher = kind._programs._host.launcher._process.pid
    for _ in range(3):
        await said(kind, make_task({"argv": ["whoami"]}))
    with open("/etc/passwd", "rb") as file:
        assert file.read() == before
    assert os.listdir(f"/proc/{launcher}/root{room}/.stage/.names") == []


@pytest.fixture
def accounts(tmp_path, monkeypatch):
    path = tmp_path / "passwd"
    path.write_text(OTHERS)
    monkeypatch.setattr(launcher_names, "ACCOUNTS", os.fsencode(path))
    return path


@pytest.fixture
def names(accounts, tmp_path):
    return Names(os.fsencode(tmp_path))


def listed(names, home=b"/work/1"):
    if not names.write(b"1", WHO, home):
        return []
    return [open(source).read() for source, *_ in names.mounts_for(b"1")]


def test_a_list_is_that_of_the_machine_with_one_entry_more(names, tmp_path):
    assert listed(names) == [f"job:x:1879048192:65534:Hourhand job:/work/1:/bin/sh\n{OTHERS}"]
    [name] = os.listdir(tmp_path / ".names")
    names.forget(os.fsencode(name))
    assert os.listdir(tmp_path / ".names") == []


def test_accounts_that_are_added_later_are_in_the_next_list(names, accounts):
    listed(names)
    edition = names.edition
    new = accounts.with_suffix(".new")
    new.write_text(OTHERS + "job:x:1001:1001::/home/job:/bin/bash\n")
    new.rename(accounts)
    [text] = listed(names)
    assert text.splitlines()[0].startswith("hourhand-job:x:1879048192:"), "somebody else is called job"
    assert "/home/job" in text
    assert names.edition > edition, "who has mounted the old one has to do so again"


def test_who_cannot_have_a_name_goes_without(names, accounts, tmp_path):
    assert listed(names, b"/work:1/2") == []
    accounts.write_text(OTHERS * (BYTES_MAX // len(OTHERS) + 1))
    assert listed(names) == []
    accounts.unlink()
    assert listed(names) == []
    with pytest.raises(OSError, match="No such file"):
        Names(os.fsencode(tmp_path / "elsewhere"))
