import pytest

from hourhand.job_kinds.command_payload import command_faults


def found(payload):
    return [(fault.pointer, fault.code) for fault in command_faults(payload)]


def test_a_right_payload_has_no_faults():
    payload = {"argv": ["a", "-b", "$(id)"], "env": {"A": "1"}, "cwd": "in/side", "stdin": "", "ok_exit_codes": [0, 3]}
    assert found(payload) == []
    assert found({"argv": ["true"]}) == []


@pytest.mark.parametrize("argv", [[], "ls -l", None, 3, {}])
def test_argv_must_be_a_list(argv):
    assert found({"argv": argv}) == [("/argv", "argv-must-be-list")]


def test_argv_is_required():
    assert found({}) == [("/argv", "argv-must-be-list")]


def test_a_command_line_comes_with_a_hint_of_the_list():
    [fault] = command_faults({"argv": "ls -l"})
    assert '["ls", "-l"]' in (fault.hint or "")


def test_all_faults_are_found_at_once():
    payload = {"argv": ["", 3, "a\0"], "enw": {}, "cwd": 1, "stdin": 2, "ok_exit_codes": [0, 256, True, "1"]}
    assert found(payload) == [
        ("/enw", "unknown-field"),
        ("/argv/1", "wrong-type"),
        ("/argv/2", "nul-byte"),
        ("/argv/0", "program-required"),
        ("/cwd", "wrong-type"),
        ("/stdin", "wrong-type"),
        ("/ok_exit_codes/1", "invalid-exit-code"),
        ("/ok_exit_codes/2", "invalid-exit-code"),
        ("/ok_exit_codes/3", "invalid-exit-code"),
    ]
    assert command_faults(payload)[0].hint == "did you mean 'env'?"


@pytest.mark.parametrize(
    "name", ["", "A=B", "LD_PRELOAD", "LD_X", "PYTHONPATH", "PYTHONSTARTUP", "PATH", "HOURHAND_RUN_ID"]
)
def test_variables_that_are_not_the_jobs_to_set_are_refused(name):
    [(pointer, code)] = found({"argv": ["x"], "env": {name: "v"}})
    assert (pointer, code) == (f"/env/{name}", "env-reserved")


def test_variables_must_be_strings_without_nul():
    assert found({"argv": ["x"], "env": {"A": 1, "B": "\0", "C\0": "", "a/~": None}}) == [
        ("/env/A", "wrong-type"),
        ("/env/B", "nul-byte"),
        ("/env/C\0", "nul-byte"),
        ("/env/a~1~0", "wrong-type"),
    ]
    assert found({"argv": ["x"], "env": []}) == [("/env", "wrong-type")]


@pytest.mark.parametrize("cwd", ["/etc", "..", "a/../../b"])
def test_a_folder_outside_the_work_folder_is_refused(cwd):
    assert found({"argv": ["x"], "cwd": cwd}) == [("/cwd", "cwd-outside-workdir")]
    [fault] = command_faults({"argv": ["x"], "cwd": cwd})
    assert "without a leading / and without .." in fault.message, "a path with .. is relative, and yet wrong"


def test_an_empty_list_of_exit_codes_is_refused():
    assert found({"argv": ["x"], "ok_exit_codes": []}) == [("/ok_exit_codes", "invalid-exit-code")]


def test_a_shell_needs_a_grant():
    for argv in ("ls | wc", ["ls"]):
        [fault] = command_faults({"argv": argv, "shell": True})
        assert (fault.pointer, fault.code) == ("/shell", "shell-forbidden")
        assert "kinds.allow_shell" in (fault.hint or "")


def test_a_granted_shell_takes_one_line():
    assert command_faults({"argv": "ls | wc", "shell": True}, allow_shell=True) == []
    assert command_faults({"argv": ["ls"], "shell": False}, allow_shell=True) == []
    for argv, code in ((["ls"], "wrong-type"), (" ", "program-required"), ("a\0", "nul-byte"), (None, "wrong-type")):
        [fault] = command_faults({"argv": argv, "shell": True}, allow_shell=True)
        assert (fault.pointer, fault.code) == ("/argv", code)
    [fault] = command_faults({"argv": "ls", "shell": "yes"}, allow_shell=True)
    assert (fault.pointer, fault.code) == ("/shell", "wrong-type")
