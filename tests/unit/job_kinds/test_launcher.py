"""What the launcher and the executor say to each other, in whatever order it comes."""

import asyncio
import os

import pytest

from hourhand.job_kinds.cgroups import GroupPlan
from hourhand.job_kinds.launcher import Launch
from hourhand.job_kinds.program_host import ProgramHost, ProgramSettings


@pytest.fixture
async def host():
    host = ProgramHost(ProgramSettings(containment="none"), os.defpath)
    await host.open()
    yield host
    await host.close()


async def test_who_has_been_seen_to_before_its_exit_is_heard_of_ends_with_it(host):
    folder, _ = host.folders.make("x", "")
    # What it leaves is nobody's any more by then: it would be asked about for ever.
    argv = ["/bin/sh", "-c", "(setsid sleep 60 &); sleep 0.3"]
    what = Launch(argv, {}, host.path, folder, folder, GroupPlan(), (), False, [str(folder)])
    launched = host.launcher.launch(what, [host.nothing] * 3)
    launched.reap()
    async with asyncio.timeout(20):
        assert (await launched.ended).code == 0
