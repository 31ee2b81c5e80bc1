import asyncio
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hourhand.job_kinds.interpreters import USUAL, find_interpreters, find_program
from hourhand.job_kinds.programs import ProgramRunner, ProgramSettings
from hourhand.job_kinds.script import ScriptKind, ScriptSettings
from hourhand.job_kinds.work_folders import Account, account_for
from hourhand.model.outcome import Failed, Succeeded
from hourhand.model.states import Reason
from hourhand.ports.job_kind import SlotClass

NOBODY = Account("nobody", 65534, 65534)
ECHOES = {
    "bash": 'read -r line; echo "$1|$GREETING|$line|$HOURHAND_ATTEMPT"; echo oops >&2; exit 3',
    "sh": 'read -r line; echo "$1|$GREETING|$line|$HOURHAND_ATTEMPT"; echo oops >&2; exit 3',
    "python": "import os, sys\nline = input()\nprint(sys.argv[1], os.environ['GREETING'], line, "
    "os.environ['HOURHAND_ATTEMPT'], sep='|')\nprint('oops', file=sys.stderr)\nsys.exit(3)",
    "node": "const line = require('fs').readFileSync(0, 'utf8').trim();\n"
    "console.log([process.argv[2], process.env.GREETING, line, process.env.HOURHAND_ATTEMPT].join('|'));\n"
    "console.error('oops');\nprocess.exit(3);",
    "perl": "my $line = <STDIN>; chomp $line; "
    'print join("|", $ARGV[0], $ENV{GREETING}, $line, $ENV{HOURHAND_ATTEMPT}), "\\n"; print STDERR "oops\\n"; exit 3;',
    "ruby": "line = STDIN.gets.chomp\nputs [ARGV[0], ENV['GREETING'], line, ENV['HOURHAND_ATTEMPT']].join('|')\n"
    "warn 'oops'\nexit 3",
    "php": "<?php $line = trim(fgets(STDIN)); echo join('|', [$argv[1], getenv('GREETING'), $line, "
    'getenv(\'HOURHAND_ATTEMPT\')]), "\\n"; fwrite(STDERR, "oops\\n"); exit(3);',
    "r": "line <- readLines('stdin', n = 1)\ncat(commandArgs(TRUE)[1], Sys.getenv('GREETING'), line, "
    "Sys.getenv('HOURHAND_ATTEMPT'), sep = '|')\ncat('\\n')\nmessage('oops')\nquit(status = 3)",
}
HERE = find_interpreters({}, os.environ["PATH"], account_for("nobody"))


@pytest.fixture
async def kind(tmp_path):
    made = []

    async def make(**settings):
        kind = ScriptKind(ProgramRunner(ProgramSettings(grace_seconds=0.2)), ScriptSettings(**settings))
        await kind.open()
        made.append(kind)
        return kind

    yield make
    for each in made:
        await each.close()


@pytest.mark.parametrize(
    "language",
    [
        pytest.param(each, marks=[] if each in HERE else pytest.mark.skip(f"there is no {USUAL[each][0]} here"))
        for each in USUAL
    ],
)
async def test_a_script_of_each_language_gets_what_it_was_given(language, kind, make_task):
    payload = {
        "source": ECHOES[language], "language": language, "args": ["it's $(id) \"quoted\""],
        "env": {"GREETING": "hello"}, "stdin": "from outside\n", "ok_exit_codes": [3],
    }  # fmt: skip
    logged = make_task(payload, kind="script", attempt=2)
    script = await kind()

    assert await script.run(logged.task) == Succeeded({"exit_code": 3})
    assert logged.of("stdout") == ['it\'s $(id) "quoted"|hello|from outside|2']
    assert logged.of("stderr") == ["oops"]


async def test_the_languages_of_the_issue_are_really_run_here():
    assert {"bash", "python", "node", "perl"} <= HERE.keys()


async def test_a_failed_script_names_its_file_and_line(kind, make_task):
    script = await kind()
    outcome = await script.run(make_task({"source": "x = 1\nboom()\n", "language": "python"}, kind="script").task)

    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.EXIT_CODE
    assert "script.py" in outcome.error
    assert "line 2" in outcome.error


async def test_lines_of_a_python_script_are_told_at_once(kind, make_task, until):
    logged = make_task({"source": "print('first')\nimport time\ntime.sleep(1000)", "language": "python"}, kind="script")
    script = await kind()
    running = asyncio.create_task(script.run(logged.task))
    await until(lambda: logged.of("stdout") == ["first"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("cwd", ["", "a", "a/./b", "script.sh", "script.sh/x"])
async def test_a_script_starts_in_the_folder_that_was_asked_for(cwd, kind, make_task):
    logged = make_task({"source": 'pwd; echo "$HOME"', "language": "bash", "cwd": cwd}, kind="script")
    script = await kind()

    assert await script.run(logged.task) == Succeeded({"exit_code": 0})
    here, home = logged.of("stdout")
    assert here == os.path.normpath(os.path.join(home, cwd))


async def test_a_script_may_leave_its_input_alone_and_be_large(kind, make_task):
    payload = {"source": "# " + "x" * 200_000 + "\necho done", "language": "bash", "stdin": "y" * 50_000}
    logged = make_task(payload, kind="script")
    script = await kind()
    assert await script.run(logged.task) == Succeeded({"exit_code": 0})
    assert logged.of("stdout") == ["done"]


async def test_text_beyond_ascii_survives(kind, make_task):
    logged = make_task({"source": "print('grüße 時')", "language": "python"}, kind="script")
    script = await kind()
    assert isinstance(await script.run(logged.task), Succeeded)
    assert logged.of("stdout") == ["grüße 時"]


async def test_only_languages_whose_interpreter_is_there_are_offered(kind):
    script = await kind(interpreters={"lua": ("no-such-lua",), "shout": ("cat", "-n")})
    offers = script.offers()

    assert "script:shout" in offers
    assert "script:lua" not in offers
    assert script.slot_class_of("script:shout") is SlotClass.PROCESS
    assert script.slot_class_of("script:lua") is SlotClass.INLINE


async def test_a_language_of_the_operator_is_run_by_its_command(kind, make_task):
    script = await kind(interpreters={"shout": ("cat", "-n")})
    logged = make_task({"source": "line", "language": "shout"}, kind="script")
    assert isinstance(await script.run(logged.task), Succeeded)
    assert logged.of("stdout") == ["     1\tline"]


async def test_a_language_that_is_not_here_is_told_so(kind, make_task):
    script = await kind()
    outcome = await script.run(make_task({"source": "x", "language": "cobol"}, kind="script").task)
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.NOT_STARTED
    assert "'cobol'" in outcome.error


@pytest.fixture
def reachable():
    """A folder to which everybody gets, unlike those of tests: nobody else's need be opened for it."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_an_interpreter_that_the_user_of_jobs_cannot_reach_does_not_count(reachable):
    hidden, open_to_all = reachable / "hidden", reachable / "open"
    for folder in (hidden, open_to_all):
        folder.mkdir()
        (folder / "lua").write_text("#!/bin/sh\n")
        (folder / "lua").chmod(0o755)
    hidden.chmod(0o700)
    open_to_all.chmod(0o755)
    stranger = Account("stranger", os.getuid() + 4242, os.getgid() + 4242)
    path = f"{hidden}:{open_to_all}"

    assert find_program("lua", path, stranger) == str(open_to_all / "lua")
    assert find_program(str(hidden / "lua"), path, stranger) is None
    assert find_program("lua", path, None) == str(hidden / "lua")
    assert find_program("lua", "/nowhere", None) is None
    link = open_to_all / "around"
    link.symlink_to(link)
    assert find_program("around", str(open_to_all), stranger) is None


async def test_what_a_script_prints_is_only_text(kind, make_task):
    fake = json.dumps({"type": "result", "state": "failed", "exit_code": 7})
    logged = make_task({"source": f"echo '{fake}'", "language": "bash"}, kind="script")
    script = await kind()
    assert await script.run(logged.task) == Succeeded({"exit_code": 0})
    assert logged.of("stdout") == [fake]
