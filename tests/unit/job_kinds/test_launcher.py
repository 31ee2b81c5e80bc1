"""What the launcher and the executor say to each other, in whatever order it comes."""

import asyncio
import os
import time
from dataclasses import replace

import pytest

from hourhand.job_kinds import program_host
from hourhand.job_kinds.cgroups import GroupPlan, Trees, find_trees
from hourhand.job_kinds.launcher import Launch
from hourhand.job_kinds.program_host import ProgramHost, ProgramSettings
from hourhand.job_kinds.spare_folders import OwnFolder
from hourhand.model.usage import Level

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user, namespaces")
needs_groups = pytest.mark.skipif(find_trees().level is Level.RLIMITS, reason="needs control groups")


@pytest.fixture
async def host():
    host = ProgramHost(ProgramSettings(containment="none"), os.defpath)
    await host.open()
    yield host
    await host.close()


@pytest.fixture
async def containing():
    host = ProgramHost(ProgramSettings(), os.defpath)
    await host.open()
    yield host
    await host.close()


@pytest.fixture
async def settled(containing, until):
    """A folder whose changes show, so that it and what is beside it may be given to others."""
    containing.spares.replace()
    await until(lambda: containing.spares._spare[""][0].settled_at < time.monotonic())
    return containing.spares.take()


async def said_by(host, own: OwnFolder, script: str, plan: GroupPlan, then=lambda _: None):
    """What a program in that folder has printed, and how it ended."""
    user = own.user
    what = Launch(
        ["/bin/sh", "-c", script], {}, host.path, own.path, own.path, plan, (), True, own.parts, own.marks,
        None if user is None else user.account.user_id,
    )  # fmt: skip
    out, into = os.pipe()
    try:
        launched = host.launcher.launch(what, (host.nothing, into, host.nothing))
    finally:
        os.close(into)
    with open(out) as file:
        then(launched)
        async with asyncio.timeout(20):
            ended = await launched.ended
        return file.read().split(), ended


@needs_root
@needs_groups
async def test_a_limit_that_the_next_one_does_not_have_is_not_left_to_it(containing, settled):
    plan = containing.plan(settled.path.name, None)
    name, value = plan.writes[0]
    assert name.endswith("pids.max")
    limited, _ = await said_by(containing, settled, "echo $PPID", replace(plan, writes=[(name, "7")]))
    again, _ = await said_by(containing, settled, "echo $PPID", replace(plan, writes=[(name, value)]))
    free, ended = await said_by(containing, settled, "echo $PPID", replace(plan, writes=[]))
    assert limited == again  # else this says nothing
    assert free != again
    assert ended.code == 0


@needs_root
async def test_who_is_killed_while_it_ends_takes_nobody_along_who_comes_next(containing, settled):
    plan = containing.plan(settled.path.name, None)

    def kill_soon(after):
        def kill(launched):
            time.sleep(after)
            launched.kill()

        return kill

    for at in range(60):
        await said_by(containing, settled, "exit 3", plan, kill_soon(at % 20 * 0.0002))
        said, ended = await said_by(containing, settled, "echo fine", plan)
        assert (said, ended.code) == (["fine"], 0), f"round {at}"


@needs_root
async def test_seats_are_given_on_also_where_there_are_no_groups(monkeypatch, until):
    monkeypatch.setattr(program_host, "find_trees", lambda: Trees(Level.RLIMITS))
    host = ProgramHost(ProgramSettings(), os.defpath)
    await host.open()
    try:
        if "mounts" not in host.launcher.abilities:
            pytest.skip("attempts have no namespaces here that could be given on")
        host.spares.replace()
        await until(lambda: host.spares._spare[""][0].settled_at < time.monotonic())
        own = host.spares.take()
        first, _ = await said_by(host, own, "echo $PPID", GroupPlan())
        assert (await said_by(host, own, "echo $PPID", GroupPlan()))[0] == first
    finally:
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
