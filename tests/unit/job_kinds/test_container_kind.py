"""Containers: by a real engine where the machine has one that can run a container, and by one that only pretends.

The engine that pretends is a shell script that does on this machine what it was asked to do in a container. It shows
what is asked of an engine and what becomes of its answers; that a real one does it, only a real one shows.
"""

import asyncio
import json
import subprocess

import pytest

from container_engine import IMAGE, real_engine
from hourhand.job_kinds.container import ContainerKind, ContainerSettings
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.resources import Resources
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass
from hourhand.runtime.machine import usable_memory

OWN = ProgramSettings(grace_seconds=0.3, run_as=None, containment="none")
PRETENDER = r"""#!/bin/bash
# Keeps one file per container beside itself: the number of its process.
state=$(dirname "$0")/state; mkdir -p "$state"
echo "$*" >> "$state.calls"
case "$1 $2" in
  "info "*) exit "$(cat "$state.info" 2>/dev/null || echo 0)" ;;
  "container inspect") [ -e "$state/$3" ] ;;
  "rm --force") kill -9 -- "-$(cat "$state/$3")" 2>/dev/null; rm -f "$state/$3" ;;
  "run --rm")
    shift
    while [ $# -gt 0 ]; do
      case "$1" in
        --rm|--interactive) shift ;;
        --name) name=$2; shift 2 ;;
        --env-file) env_file=$2; shift 2 ;;
        --volume) work=${2%%:*}; shift 2 ;;
        --*) shift 2 ;;
        *) break ;;
      esac
    done
    image=$1; shift
    [ "$image" = missing ] && { echo "Trying to pull …" >&2; echo "no such image" >&2; exit 125; }
    cd "$work" || exit 125
    # As with a real engine, what runs is not below the command line, and does not end with it.
    setsid bash -c 'echo $$ > "$1"; shift; while read -r line; do export "${line?}"; done < "$1"; shift; exec "$@"' \
      x "$state/$name" "$env_file" "$@" < /dev/stdin &
    wait $!; code=$?
    rm -f "$state/$name"
    exit $code ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def pretender(tmp_path):
    program = tmp_path / "engine"
    program.write_text(PRETENDER)
    program.chmod(0o755)
    return program


@pytest.fixture
async def open_kind():
    made = []

    async def make(*engine, run_as=None, **more):
        kind = ContainerKind(ProgramRunner(OWN), ContainerSettings(engine, run_as, **more))
        await kind.open()
        made.append(kind)
        return kind

    yield make
    for kind in made:
        await kind.close()


def calls(pretender):
    return (pretender.parent / "state.calls").read_text().splitlines()


async def test_an_engine_that_answers_is_offered_and_one_that_does_not_is_none(pretender, open_kind, make_task):
    kind = await open_kind(str(pretender))
    assert kind.offers() == ["container"]
    assert kind.slot_class_of("container") is SlotClass.PROCESS

    (pretender.parent / "state.info").write_text("1")  # a client whose engine does not run
    for engine in (str(pretender), "/nowhere/podman"):
        kind = await open_kind(engine)
        assert kind.offers() == []
        assert kind.slot_class_of("container") is SlotClass.INLINE
        outcome = await kind.run(make_task({"image": "tiny"}, kind="container").task)
        assert isinstance(outcome, Failed)
        assert outcome.reason is Reason.NOT_STARTED


TOLD = "$HOURHAND_ATTEMPT $HOURHAND_INDEX of $HOURHAND_TOTAL $HOURHAND_PROGRESS_FILE"


async def test_what_is_asked_of_the_engine(pretender, open_kind, make_task):
    kind = await open_kind(str(pretender), run_as="nobody")
    payload = {
        "image": "tiny", "argv": ["sh", "-c", f'echo "$GREETING $1 {TOLD}"; cat; exit 3', "x", "$(id) 'q'"],
        "env": {"GREETING": "good day"}, "stdin": "from outside", "ok_exit_codes": [3],
        "network": "bridge", "pull": "never",
    }  # fmt: skip
    logged = make_task(payload, kind="container")
    logged.task.resources = Resources(cpu=0.5, memory=64_000_000, pids=7)
    logged.task.index, logged.task.total = 1, 3

    assert await kind.run(logged.task) == Succeeded({"exit_code": 3})
    assert logged.of("stdout") == ["good day $(id) 'q' 1 1 of 3 /work/.hourhand-progress", "from outside"]
    [asked] = [call for call in calls(pretender) if call.startswith("run")]
    for words in (
        "--network bridge", "--pull never", "--cap-drop ALL", "--security-opt no-new-privileges", "--pids-limit 7",
        "--memory 64000000b", "--cpus 0.5", "--user 65534:65534", "--interactive", "--workdir /work",
    ):  # fmt: skip
        assert words in asked
    assert "good day" not in asked, "what a job is given is not for the list of processes"


async def test_without_a_wish_there_is_no_network(pretender, open_kind, make_task):
    kind = await open_kind(str(pretender))
    await kind.run(make_task({"image": "tiny", "argv": ["true"]}, kind="container").task)
    assert any("--network none" in call for call in calls(pretender))


async def test_without_a_wish_a_container_has_a_limit_of_memory_as_programs_have(pretender, open_kind, make_task):
    kind = await open_kind(str(pretender), memory_bytes_max=123_000_000)
    await kind.run(make_task({"image": "tiny", "argv": ["true"]}, kind="container").task)
    kind = await open_kind(str(pretender))
    await kind.run(make_task({"image": "tiny", "argv": ["true"]}, kind="container").task)
    set_, half = [call for call in calls(pretender) if call.startswith("run")]
    assert "--memory 123000000b --memory-swap 123000000b" in set_
    assert f"--memory {usable_memory() // 2}b" in half


async def test_an_engine_that_cannot_start_the_container_is_told_apart_from_the_program(
    pretender, open_kind, make_task
):
    kind = await open_kind(str(pretender))
    outcome = await kind.run(make_task({"image": "missing"}, kind="container").task)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.NOT_STARTED
    assert outcome.error.splitlines() == ["the container could not be started: no such image", "Trying to pull …"]
    outcome = await kind.run(make_task({"image": "tiny", "argv": ["false"]}, kind="container").task)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.EXIT_CODE


async def test_a_cancelled_container_is_gone_when_that_is_told(pretender, open_kind, make_task, until, alive):
    kind = await open_kind(str(pretender))
    line = 'trap "" TERM; echo $$; while :; do sleep 0.05; done'
    logged = make_task({"image": "tiny", "argv": ["bash", "-c", line]}, kind="container")
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout"))
    pid = int(logged.of("stdout")[0])
    assert alive(pid)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not alive(pid)
    assert list((pretender.parent / "state").iterdir()) == []


# --- a real engine ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    words, why = real_engine(tmp_path_factory.mktemp("image"))
    if words is None:
        pytest.skip(why)
    yield words
    subprocess.run([*words, "rmi", "--force", IMAGE], capture_output=True, timeout=60, check=False)


async def test_a_real_container_runs_with_what_it_was_given_and_no_more(engine, open_kind, make_task):
    kind = await open_kind(*engine, run_as="nobody")
    line = 'echo "$GREETING $1 $HOURHAND_ATTEMPT"; cat; id -u; echo left > /work/here && cat /work/here; exit 3'
    payload = {
        "image": IMAGE, "argv": ["/bin/sh", "-c", line, "x", "$(id)"], "env": {"GREETING": "good day"}, "stdin": "in\n",
        "ok_exit_codes": [3], "pull": "never",
    }  # fmt: skip
    logged = make_task(payload, kind="container")
    outcome = await kind.run(logged.task)
    assert (outcome, logged.of("stderr")) == (Succeeded({"exit_code": 3}), [])
    assert logged.of("stdout") == ["good day $(id) 1", "in", "65534", "left"]


async def test_a_real_container_says_how_far_it_has_come(engine, open_kind, make_task):
    kind = await open_kind(*engine, run_as="nobody")
    line = 'echo "40 halfway" > "$HOURHAND_PROGRESS_FILE"; sleep 3'
    logged = make_task({"image": IMAGE, "argv": ["/bin/sh", "-c", line], "pull": "never"}, kind="container")
    told = []
    logged.task.progress = lambda percent, message: told.append((percent, message))
    assert await kind.run(logged.task) == Succeeded({"exit_code": 0})
    assert told == [(40, "halfway")]


async def test_a_real_container_leaves_files_where_it_is_told(engine, open_kind, make_task):
    kind = await open_kind(*engine, run_as="nobody")
    line = 'echo kept > "$HOURHAND_OUTPUT_DIR/report.txt"; echo $?'
    logged = make_task({"image": IMAGE, "argv": ["/bin/sh", "-c", line], "pull": "never"}, kind="container")
    kept = {}

    async def keep(folder):
        assert folder.stat().st_uid == (folder / "report.txt").stat().st_uid, "else it would be taken for a stranger's"
        kept.update({file.name: file.read_text() for file in folder.iterdir()})

    logged.task.keep_outputs = keep
    assert await kind.run(logged.task) == Succeeded({"exit_code": 0})
    assert (logged.of("stdout"), kept) == (["0"], {"report.txt": "kept\n"})


@pytest.mark.parametrize(("declared", "default"), [(32_000_000, None), (None, 32_000_000)], ids=["declared", "default"])
async def test_a_real_container_ends_at_its_limit_of_memory(engine, open_kind, make_task, declared, default):
    kind = await open_kind(*engine, run_as="nobody", memory_bytes_max=default)
    hog = "x=$(/bin/busybox head -c 200000000 /dev/zero | /bin/busybox tr '\\0' x); echo ${#x}"
    logged = make_task({"image": IMAGE, "argv": ["/bin/sh", "-c", hog], "pull": "never"}, kind="container")
    logged.task.resources = declared and Resources(memory=declared)
    outcome = await kind.run(logged.task)
    assert isinstance(outcome, Failed)
    assert outcome.result == {"exit_code": 137}
    assert logged.of("stdout") == []


async def test_a_real_container_that_ignores_its_end_is_removed(engine, open_kind, make_task, until):
    kind = await open_kind(*engine, run_as="nobody")
    line = 'trap "" TERM; echo here; while :; do sleep 1; done'
    logged = make_task({"image": IMAGE, "argv": ["/bin/sh", "-c", line], "pull": "never"}, kind="container")
    running = asyncio.create_task(kind.run(logged.task))
    await until(lambda: logged.of("stdout") == ["here"], 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    left = subprocess.run(
        [*engine, "ps", "--all", "--format", "json"], capture_output=True, text=True, check=True
    ).stdout
    assert str(logged.task.run_id) not in json.dumps(left)


async def test_an_image_that_is_not_there_is_told(engine, open_kind, make_task):
    kind = await open_kind(*engine)
    payload = {"image": "localhost/hourhand-no-such-image:1", "pull": "never"}
    outcome = await kind.run(make_task(payload, kind="container").task)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.NOT_STARTED
