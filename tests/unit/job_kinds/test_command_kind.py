import asyncio
import os
import signal
import stat
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import uvloop

from hourhand.job_kinds import program_host
from hourhand.job_kinds.cgroups import Trees, find_trees
from hourhand.job_kinds.command import CommandKind
from hourhand.job_kinds.lines import LINE_BYTES_MAX
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.errors import BadConfiguration
from hourhand.model.log import CUT
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.model.usage import Level

OK = Succeeded({"exit_code": 0})

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


TREES = find_trees()
"""What this machine has; the tests are run with less, too."""
HOW = {
    "groups": (TREES, "full"),
    "freezer": (replace(TREES, tracker=str(Path(TREES.roots[-1]).parent / "freezer")), "full") if TREES.roots else None,
    "rlimits": (Trees(Level.RLIMITS), "full"),
    "none": (Trees(Level.RLIMITS), "none"),
}


def levels():
    for name, how in HOW.items():
        has = how is not None and (how[0].tracker is None or os.access(how[0].tracker, os.W_OK))
        yield pytest.param(name, marks=pytest.mark.skipif(not has, reason=f"this machine has no {name}"))


@pytest.fixture(params=levels())
async def open_kind(request, monkeypatch, shared):
    kinds = []
    trees, containment = HOW[request.param]
    monkeypatch.setattr(program_host, "find_trees", lambda: trees)

    async def open_with(**settings):
        kind = CommandKind(ProgramRunner(ProgramSettings(containment=containment, shared=(str(shared),), **settings)))
        kinds.append(kind)
        await kind.open()
        return kind

    yield open_with
    for kind in kinds:
        await kind.close()


@pytest.fixture
async def kind(open_kind):
    return await open_kind(grace_seconds=0.3)


@pytest.fixture
def shared():
    """A folder that commands, which run as somebody else, can reach and write to."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def shell(script, **payload):
    return {"argv": ["sh", "-c", script], **payload}


async def test_a_program_that_ends_well_succeeds_with_its_exit_code(kind, make_task):
    assert await kind.run(make_task({"argv": ["true"]}).task) == OK


async def test_output_is_logged_line_by_line_by_stream(kind, make_task):
    logged = make_task(shell("echo one; echo two >&2; printf 'three\\r\\nfour'"))
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["one", "three", "four"]
    assert logged.of("stderr") == ["two"]


async def test_arguments_are_passed_literally(kind, make_task):
    odd = ["$(id)", "a;b", '"', "`x`", "line\nend", "-n", "*"]
    logged = make_task({"argv": ["printf", "%s|", *odd]})
    await kind.run(logged.task)
    assert "\n".join(logged.of("stdout")) == "|".join(odd) + "|"


async def test_a_shell_runs_lines_where_it_is_granted_and_nowhere_else(kind, make_task):
    payload = {"argv": "echo one | tr o 0; exit 0", "shell": True}
    refused = await kind.run(make_task(payload).task)
    assert (refused.reason, refused.retryable) == (Reason.BAD_ARGUMENTS, False)
    granted = CommandKind(kind._programs, allow_shell=True)
    logged = make_task(payload)
    assert await granted.run(logged.task) == OK
    assert logged.of("stdout") == ["0ne"]


async def test_a_wrong_exit_code_fails_with_the_end_of_stderr(kind, make_task):
    outcome = await kind.run(make_task(shell("echo lost; echo disk full >&2; exit 3")).task)
    assert outcome == Failed(
        Reason.EXIT_CODE, "exited with code 3\ndisk full", result={"exit_code": 3}, tags=("exit:3",)
    )


async def test_other_exit_codes_can_be_good(kind, make_task):
    assert await kind.run(make_task(shell("exit 3", ok_exit_codes=[0, 3])).task) == Succeeded({"exit_code": 3})
    assert (await kind.run(make_task(shell("exit 0", ok_exit_codes=[3])).task)).reason is Reason.EXIT_CODE


async def test_a_program_killed_by_a_signal_says_which(kind, make_task):
    outcome = await kind.run(make_task(shell("kill -SEGV $$")).task)
    assert outcome == Failed(Reason.SIGNAL, "killed by SIGSEGV", tags=("signal:SIGSEGV",))


async def test_a_program_that_cannot_be_started_is_not_retried(kind, make_task, shared):
    for name, mode, text in (("script", 0o644, "x"), ("not-a-program", 0o755, "nonsense")):
        path = shared / name
        path.write_text(text)
        path.chmod(mode)
        outcome = await kind.run(make_task({"argv": [str(path)]}).task)
        assert (outcome.reason, outcome.retryable) == (Reason.NOT_EXECUTABLE, False), outcome
    for missing in ("no-such-program", f"{shared}/no-such-program", f"{shared}/script/below-a-file"):
        outcome = await kind.run(make_task({"argv": [missing]}).task)
        said = f"{missing!r} was not found on this executor"
        assert outcome == Failed(Reason.EXEC_NOT_FOUND, said, retryable=False)


async def test_a_line_for_a_shell_that_is_given_as_a_program_is_told_as_what_it_is(kind, make_task):
    outcome = await kind.run(make_task({"argv": ["ls | wc"]}).task)
    assert outcome.reason is Reason.EXEC_NOT_FOUND
    assert outcome.error.endswith("this is taken for one name; a program and its arguments are given apart")


async def test_a_script_whose_interpreter_is_missing_is_told_apart_from_a_missing_one(kind, make_task, shared):
    path = shared / "script"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    outcome = await kind.run(make_task({"argv": [str(path)]}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.EXEC_NOT_FOUND, False)
    assert outcome.error == f"the interpreter that the first line of {str(path)!r} names was not found on this executor"


async def test_an_argument_list_that_the_kernel_refuses_fails_the_attempt(kind, make_task):
    outcome = await kind.run(make_task({"argv": ["true", "x" * 200_000]}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.NOT_STARTED, False)


async def test_a_payload_that_is_wrong_is_not_run(kind, make_task):
    outcome = await kind.run(make_task({"argv": ["true"], "env": {"LD_PRELOAD": "x"}}).task)
    assert (outcome.reason, outcome.retryable) == (Reason.BAD_ARGUMENTS, False)


async def test_the_variables_of_a_program_are_these_and_no_others(kind, make_task, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_EXECUTOR", "x")
    logged = make_task({"argv": ["env"], "env": {"GREETING": "hello"}}, attempt=2)
    task = logged.task
    assert await kind.run(task) == OK
    variables = dict(line.split("=", 1) for line in logged.of("stdout"))
    home = variables.pop("HOME")
    assert variables.pop("TMPDIR") == home
    assert variables == {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "GREETING": "hello",
        "HOURHAND_RUN_ID": str(task.run_id),
        "HOURHAND_JOB_ID": str(task.job_id),
        "HOURHAND_JOB_NAME": "nightly",
        "HOURHAND_NAMESPACE": "default",
        "HOURHAND_ATTEMPT": "2",
        "HOURHAND_FENCE_TOKEN": str(task.fence),
        "HOURHAND_SCHEDULED_TIME": "2030-01-02T03:04:05Z",
        "HOURHAND_PROGRESS_FILE": f"{home}/.hourhand-progress",
    }


async def test_a_program_starts_in_a_private_folder_that_is_removed(kind, make_task):
    logged = make_task(shell("pwd; stat -c %a . ..; echo x > file; mkdir -p d/e; chmod 000 d", cwd="some/where"))
    assert await kind.run(logged.task) == OK
    folder, *modes = logged.of("stdout")
    assert folder.endswith("/some/where")
    assert modes == ["700", "700"]
    assert not Path(folder).parent.parent.exists()


async def test_the_work_folders_can_be_put_elsewhere(open_kind, make_task, shared):
    kind = await open_kind(work_root=str(shared / "work"))
    logged = make_task(shell("pwd; touch file-1; mkdir d; touch d/file-2"))
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout")[0].startswith(str(shared / "work") + "/")
    assert stat.S_IMODE((shared / "work").stat().st_mode) == 0o711
    assert [entry for entry in (shared / "work").rglob("*") if entry.name.startswith("file")] == []
    await kind.close()
    assert list((shared / "work").iterdir()) == []


async def test_standard_input_is_given_or_empty(kind, make_task):
    logged = make_task({"argv": ["wc", "-c"], "stdin": "é" * 100_000})
    await kind.run(logged.task)
    assert logged.of("stdout") == ["200000"]
    logged = make_task({"argv": ["wc", "-c"]})
    await kind.run(logged.task)
    assert logged.of("stdout") == ["0"]


async def test_a_program_that_ignores_its_input_does_not_hang(kind, make_task):
    assert await kind.run(make_task({"argv": ["true"], "stdin": "x" * 250_000}).task) == OK


async def test_a_huge_line_is_split_and_nothing_is_lost(kind, make_task):
    logged = make_task({"argv": ["head", "-c", "3000000", "/dev/zero"]})
    assert await kind.run(logged.task) == OK
    assert {line.strip(CUT) for line in logged.of("stdout")} == {""}, "NUL is removed"
    logged = make_task(shell("head -c 3000000 /dev/zero | tr '\\0' x"))
    assert await kind.run(logged.task) == OK
    assert sum(len(line.strip(CUT)) for line in logged.of("stdout")) == 3_000_000
    assert max(map(len, logged.of("stdout"))) == LINE_BYTES_MAX + 2 * len(CUT)


async def test_a_background_child_neither_hangs_the_attempt_nor_survives_it(kind, make_task, alive):
    logged = make_task(shell("sleep 1000 & echo $!"))
    began = time.monotonic()
    assert await kind.run(logged.task) == OK
    assert time.monotonic() - began < 5
    assert not alive(int(logged.of("stdout")[0]))


async def test_a_daemon_that_left_its_session_does_not_survive_the_attempt(kind, make_task, alive, until, shared):
    script = f"setsid sh -c 'setsid sleep 1000 >/dev/null 2>&1 & echo $! > {shared}/pid' & wait"
    assert await kind.run(make_task(shell(script)).task) == OK
    assert not alive(int((shared / "pid").read_text()))


async def cancelled_run(kind, logged, until, ready):
    running = asyncio.create_task(kind.run(logged.task))
    await until(ready)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_cancelled_program_may_end_by_itself(open_kind, make_task, until, alive):
    kind = await open_kind(grace_seconds=30)
    logged = make_task(shell("trap 'echo bye; exit 0' TERM; echo $$; while :; do sleep 0.01; done"))
    await cancelled_run(kind, logged, until, lambda: logged.of("stdout"))
    assert logged.of("stdout")[1:] == ["bye"]


async def test_children_have_their_grace_after_the_first_process_has_ended(open_kind, make_task, until, shared):
    kind = await open_kind(grace_seconds=30)
    child = f"trap 'sleep 0.2; echo done > {shared}/child; exit' TERM; echo up; while :; do sleep 0.01; done"
    logged = make_task(shell(f"({child}) & wait"))
    await cancelled_run(kind, logged, until, lambda: logged.of("stdout"))
    assert (shared / "child").read_text() == "done\n"


async def test_everybody_is_asked_also_those_whose_parents_end_first(open_kind, make_task, until, shared):
    kind = await open_kind(grace_seconds=30)
    child = f"trap 'echo done > {shared}/$i; exit' TERM; echo up; while :; do sleep 0.01; done"
    logged = make_task(shell(f"for i in 1 2 3 4 5 6 7 8; do (({child}) & wait) & done; wait"))
    await cancelled_run(kind, logged, until, lambda: len(logged.of("stdout")) == 8)
    assert sorted(path.name for path in shared.iterdir()) == ["1", "2", "3", "4", "5", "6", "7", "8"]


async def test_what_a_program_starts_because_it_was_asked_to_end_is_not_asked(open_kind, make_task, until):
    kind = await open_kind(grace_seconds=30)
    bye = "trap 'for i in 1 2 3 4 5; do echo bye $(sleep 0.02; echo $i); done; exit' TERM"
    logged = make_task(shell(f"{bye}; echo up; while :; do sleep 0.01; done"))
    await cancelled_run(kind, logged, until, lambda: logged.of("stdout"))
    assert logged.of("stdout")[1:] == [f"bye {i}" for i in range(1, 6)]


async def test_nothing_of_a_program_that_ignores_the_request_survives_its_grace(kind, make_task, until, alive):
    script = "trap '' TERM; sleep 1000 & echo $$ $!; (trap '' TERM; while :; do sleep 1; done) & echo $!; wait"
    logged = make_task(shell(f"{script}; while :; do wait; done"))
    await cancelled_run(kind, logged, until, lambda: len(logged.of("stdout")) == 2)
    pids = [int(pid) for line in logged.of("stdout") for pid in line.split()]
    assert len(pids) == 3
    assert not any(map(alive, pids)), "gone when run has raised, not some time later"


DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
    else:
        os._exit(0)
time.sleep(1000)
"""


async def test_a_daemon_that_forked_twice_does_not_survive_a_cancelled_run(kind, make_task, until, alive, shared):
    pid_file = shared / "daemon"
    logged = make_task({"argv": ["/usr/bin/env", "python3", "-c", DAEMON, str(pid_file)]})
    await cancelled_run(kind, logged, until, lambda: pid_file.exists() and pid_file.read_text())
    assert not alive(int(pid_file.read_text()))


async def test_a_second_cancellation_ends_the_grace(open_kind, make_task, until, alive):
    kind = await open_kind(grace_seconds=1000)
    logged = make_task(shell("trap '' TERM; echo $$; while :; do sleep 0.01; done"))
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(int(logged.of("stdout")[0]))


async def test_a_run_cancelled_while_it_starts_leaves_no_process(kind, make_task, alive):
    logged = make_task(shell("echo $$; sleep 1000"))
    running = asyncio.create_task(kind.run(logged.task))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    mark = f"HOURHAND_RUN_ID={logged.task.run_id}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and alive(int(entry.name)):
            try:
                assert mark not in (entry / "environ").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue


async def test_the_work_folder_of_a_cancelled_run_is_removed(kind, make_task, until):
    logged = make_task(shell("pwd; sleep 1000"))
    await cancelled_run(kind, logged, until, lambda: logged.of("stdout"))
    assert not Path(logged.of("stdout")[0]).exists()


@needs_root
async def test_programs_of_a_root_executor_run_as_somebody_without_rights_and_groups(kind, make_task):
    logged = make_task(shell("id -u; id -Gn; touch mine && stat -c %u mine; cat /etc/shadow || echo refused"))
    assert await kind.run(logged.task) == OK
    user, groups, owner, secret = logged.of("stdout")
    assert (owner, secret) == (user, "refused")
    host = kind._programs._host
    assert (int(user) == host.account.user_id) is (host.users is None)
    assert groups == subprocess.run(["id", "-gn", "nobody"], capture_output=True, text=True, check=True).stdout.strip()


@needs_root
async def test_a_program_cannot_look_into_the_folder_of_another_run(kind, make_task):
    logged = make_task(shell("ls .. || echo refused"))
    assert await kind.run(logged.task) == OK
    assert logged.of("stdout") == ["refused"]


@needs_root
async def test_a_user_that_does_not_exist_keeps_the_executor_from_starting(open_kind):
    with pytest.raises(BadConfiguration, match="no user 'no-such-user'"):
        await open_kind(run_as="no-such-user")


@needs_root
async def test_root_can_be_kept_on_purpose(open_kind, make_task):
    kind = await open_kind(run_as=None)
    logged = make_task({"argv": ["id", "-u"]})
    await kind.run(logged.task)
    assert logged.of("stdout") == ["0"]


def test_commands_work_on_uvloop(make_task, until, alive):
    async def scenario():
        kind = CommandKind(ProgramRunner(ProgramSettings(grace_seconds=0.2)))
        await kind.open()
        outcomes = await asyncio.gather(*(kind.run(make_task(shell("echo $HOME; exit 0")).task) for _ in range(8)))
        logged = make_task(shell("trap '' TERM; echo $$; while :; do sleep 0.01; done"))
        await cancelled_run(kind, logged, until, lambda: logged.of("stdout"))
        await kind.close()
        return outcomes, int(logged.of("stdout")[0])

    outcomes, pid = uvloop.run(scenario())
    assert outcomes == [OK] * 8
    assert not alive(pid)


async def test_many_commands_at_once_keep_their_output_apart(kind, make_task):
    many = [make_task({"argv": ["echo", str(number)]}) for number in range(40)]
    assert await asyncio.gather(*(kind.run(logged.task) for logged in many)) == [OK] * 40
    assert [logged.of("stdout") for logged in many] == [[str(number)] for number in range(40)]


async def test_no_descriptors_are_left_open(kind, make_task):
    await kind.run(make_task({"argv": ["true"]}).task)
    before = len(os.listdir("/proc/self/fd"))
    for argv in (["true"], ["no-such-program"], ["false"]):
        await kind.run(make_task({"argv": argv, "stdin": "x"}).task)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_program_says_how_far_it_has_come(kind, make_task, until):
    task = make_task({"argv": ["sh", "-c", 'echo "40 halfway" > "$HOURHAND_PROGRESS_FILE"; sleep 1000']}).task
    said = []
    task.progress = lambda percent, message: said.append((percent, message))
    running = asyncio.create_task(kind.run(task))
    await until(lambda: said)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert said == [(40, "halfway")]


async def test_who_has_lost_its_keeper_goes_also_when_nothing_tells_whose_it_was(kind, make_task, until, alive):
    if not kind._programs._host.contains:
        pytest.skip("only contained programs have keepers")
    neighbour = asyncio.create_task(kind.run(make_task(shell("sleep 1000")).task))
    logged = make_task(shell("setsid env -i sleep 1000 >/dev/null 2>&1 & echo $PPID $!; wait"))
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    keeper, daemon = map(int, logged.of("stdout")[0].split())
    os.kill(keeper, signal.SIGKILL)
    assert isinstance(await running, Failed)
    assert not alive(daemon)
    neighbour.cancel()
    await asyncio.wait({neighbour})
