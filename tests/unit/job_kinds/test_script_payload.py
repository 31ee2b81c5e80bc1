import pytest

from hourhand.job_kinds.script_payload import language_of, need_of, script_faults

DIGEST = "sha256:" + "ab" * 32


def faults(payload):
    return [(fault.pointer, fault.code) for fault in script_faults(payload)]


@pytest.mark.parametrize(
    "payload",
    [
        {"source": "echo hi", "language": "bash"},
        {"source": "print(1)", "language": "python", "args": ["--x", "$(id)"], "env": {"A": "1"}, "stdin": "in"},
        {"source": "x", "language": "lua5.4", "cwd": "a/b", "ok_exit_codes": [0, 3]},
        {"artifact": "backup", "entry": "bin/run.py", "args": ["1"]},
        {"artifact": DIGEST, "argv": ["./server", "--once"]},
        {"artifact": f"backup@{DIGEST}", "entry": "run", "language": "ruby"},
        {"artifact": "backup.sh"},
    ],
)
def test_a_good_payload_has_no_faults(payload):
    assert faults(payload) == []


@pytest.mark.parametrize(
    ("payload", "free", "taken"),
    [
        ({"source": "x", "language": "bash"}, ["script.py", "_script.sh"], ["script.sh", "script.sh/a", "output"]),
        ({"source": "x", "language": "lua"}, ["script.sh"], ["script"]),
        ({"source": "x", "language": "bash", "cwd": "script.sh"}, ["script.sh/a"], ["_script.sh", "script.sh"]),
        ({"source": "x", "language": "bash", "cwd": "a/b"}, ["a/c", "b"], ["a", "a/b"]),
        ({"artifact": "x", "cwd": "a"}, ["a", "script.sh"], ["artifact", "artifact/main.py"]),
    ],
)
def test_secret_files_do_not_take_the_place_of_the_script(payload, free, taken):
    reference = {"secret": "KEY"}
    for path in free:
        assert faults({**payload, "secret_files": {path: reference}}) == []
    for path in taken:
        pointer = "/secret_files/" + path.replace("/", "~1")
        assert faults({**payload, "secret_files": {path: reference}}) == [(pointer, "path-reserved")]


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({}, [("/source", "source-required"), ("/language", "language-required")]),
        ({"source": " \n", "language": "bash"}, [("/source", "source-required")]),
        ({"source": 1, "language": "bash"}, [("/source", "wrong-type")]),
        ({"source": "a\0", "language": "bash"}, [("/source", "nul-byte")]),
        ({"source": "a", "language": "Bash"}, [("/language", "unknown-language")]),
        ({"source": "a", "language": ["bash"]}, [("/language", "wrong-type")]),
        ({"source": "a", "language": "../x"}, [("/language", "unknown-language")]),
        ({"source": "a", "language": "bash", "entry": "x"}, [("/entry", "field-not-allowed")]),
        ({"source": "a", "language": "bash", "artifact": "x"}, [("/artifact", "source-or-artifact")]),
        (
            {"source": "", "artifact": "x", "entry": "/etc/passwd", "argv": ["a", 1]},
            [
                ("/artifact", "source-or-artifact"),
                ("/argv", "entry-or-argv"),
                ("/entry", "entry-outside-artifact"),
                ("/argv/1", "wrong-type"),
            ],
        ),
        ({"source": 1, "artifact": "."}, [
            ("/artifact", "source-or-artifact"), ("/source", "wrong-type"), ("/artifact", "invalid-artifact")
        ]),
        ({"source": "a", "language": "bash", "args": "x"}, [("/args", "wrong-type")]),
        ({"source": "a", "language": "bash", "args": ["x", 1]}, [("/args/1", "wrong-type")]),
        ({"source": "a", "language": "bash", "args": ["\0"]}, [("/args/0", "nul-byte")]),
        ({"source": "a", "language": "bash", "env": {"LD_PRELOAD": "x"}}, [("/env/LD_PRELOAD", "env-reserved")]),
        ({"source": "a", "language": "bash", "cwd": "/etc"}, [("/cwd", "cwd-outside-workdir")]),
        ({"source": "a", "language": "bash", "ok_exit_codes": [256]}, [("/ok_exit_codes/0", "invalid-exit-code")]),
        ({"artifact": "../x", "entry": "run"}, [("/artifact", "invalid-artifact")]),
        ({"artifact": "sha256:12", "entry": "run"}, [("/artifact", "invalid-artifact")]),
        ({"artifact": 5}, [("/artifact", "wrong-type")]),
        ({"artifact": "x", "entry": "../run"}, [("/entry", "entry-outside-artifact")]),
        ({"artifact": "x", "entry": "/run"}, [("/entry", "entry-outside-artifact")]),
        ({"artifact": "x", "entry": "a", "argv": ["b"]}, [("/argv", "entry-or-argv")]),
        ({"artifact": "x", "argv": "b"}, [("/argv", "argv-must-be-list")]),
        ({"artifact": "x", "argv": ["b"], "args": ["c"]}, [("/args", "field-not-allowed")]),
    ],
)  # fmt: skip
def test_every_fault_is_told_with_its_place(payload, expected):
    assert faults(payload) == expected


def test_all_faults_are_told_at_once():
    assert [pointer for pointer, _ in faults({"sauce": 1, "language": 2, "env": 3, "stdin": 4})] == [
        "/sauce", "/source", "/language", "/env", "/stdin",
    ]  # fmt: skip


def test_another_word_for_a_language_is_told_the_right_one():
    [fault] = script_faults({"source": "a", "language": "javascript"})
    assert fault.hint == "did you mean 'node'?"


@pytest.mark.parametrize(
    ("payload", "language"),
    [
        ({"source": "a", "language": "perl"}, "perl"),
        ({"artifact": "x", "entry": "a/Run.PY"}, "python"),
        ({"artifact": "x", "entry": "run.R"}, "r"),
        ({"artifact": "x", "entry": "run.py", "language": "pypy"}, "pypy"),
        ({"artifact": "x", "entry": "server"}, None),
        ({"artifact": "x", "argv": ["run.py"]}, None),
    ],
)
def test_the_language_is_said_or_seen_in_the_suffix(payload, language):
    assert language_of(payload) == language
    assert need_of(payload) == ("script" if language is None else f"script:{language}")
