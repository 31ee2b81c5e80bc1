"""What the payload of a command job may say, and every fault it can have. Pure: runs in the API."""

from collections.abc import Mapping
from typing import Any, Final

from hourhand.job_kinds.payload_checks import is_integer, nul_byte, pointer_to, unknown_fields, wrong_type
from hourhand.model.errors import Fault
from hourhand.model.secret_refs import SECRET_FILES_FIELD, is_reference, reference_faults, secret_file_faults

FIELDS: Final = ("argv", "shell", "env", "cwd", "stdin", "ok_exit_codes", "secret_files")

_RESERVED_NAMES: Final = frozenset({"PATH"})
_RESERVED_BEGINNINGS: Final = ("LD_", "PYTHON", "HOURHAND_")
"""Variables that make a program load other code, or that tell it who it is."""


def command_faults(
    payload: Mapping[str, Any], allow_shell: bool = False, own_file: str | None = None, below: str = ""
) -> list[Fault]:
    """`own_file`: what the program itself lies in, in the private folder. `below`: where its `cwd` begins there."""
    faults = unknown_fields(payload, FIELDS)
    if payload.get("shell", False) is False:
        faults += _argv_faults(payload)
    else:
        faults += _shell_faults(payload, allow_shell)
    if "env" in payload:
        faults += _env_faults(payload["env"])
    if SECRET_FILES_FIELD in payload:
        cwd = payload.get("cwd", "")
        starts_in = f"{below}/{cwd}" if isinstance(cwd, str) else below
        faults += secret_file_faults(payload[SECRET_FILES_FIELD], own_file, starts_in.lstrip("/"))
    if "cwd" in payload:
        faults += _cwd_faults(payload["cwd"])
    if "stdin" in payload and not isinstance(payload["stdin"], str):
        faults.append(wrong_type("/stdin", "a string", payload["stdin"]))
    if "ok_exit_codes" in payload:
        faults += _exit_code_faults(payload["ok_exit_codes"])
    return faults


def _shell_faults(payload: Mapping[str, Any], allow_shell: bool) -> list[Fault]:
    if payload["shell"] is not True:
        return [wrong_type("/shell", "true or false", payload["shell"])]
    if not allow_shell:
        hint = 'name the program and its arguments: "argv": ["program", "argument"], or grant it by kinds.allow_shell'
        return [Fault("/shell", "shell-forbidden", "this installation hands no commands to a shell", hint)]
    line = payload.get("argv")
    if not isinstance(line, str):
        return [wrong_type("/argv", "one text for the shell, with shell: true", line)]
    if not line.strip():
        return [Fault("/argv", "program-required", "must say what to run")]
    return [nul_byte("/argv")] if "\0" in line else []


def _argv_faults(payload: Mapping[str, Any]) -> list[Fault]:
    if "argv" not in payload:
        return [Fault("/argv", "argv-must-be-list", "is required: the program and its arguments as a list")]
    argv = payload["argv"]
    if isinstance(argv, str):
        hint = f"write {argv.split()!r}; nothing is interpreted by a shell".replace("'", '"')
        return [Fault("/argv", "argv-must-be-list", "must be a list of strings, not one string", hint)]
    if not isinstance(argv, list) or not argv:
        return [Fault("/argv", "argv-must-be-list", "must be a list of at least one string")]
    faults = []
    for index, part in enumerate(argv):
        if not isinstance(part, str):
            faults.append(wrong_type(pointer_to("argv", index), "a string", part))
        elif "\0" in part:
            faults.append(nul_byte(pointer_to("argv", index)))
    if argv[0] == "":
        faults.append(Fault("/argv/0", "program-required", "must name a program"))
    return faults


def _env_faults(env: Any) -> list[Fault]:
    if not isinstance(env, Mapping):
        return [wrong_type("/env", "an object of strings", env)]
    faults = []
    for name, value in env.items():
        pointer = pointer_to("env", name)
        if not name or "=" in name:
            faults.append(Fault(pointer, "env-reserved", f"{name!r} cannot be the name of a variable"))
        elif name in _RESERVED_NAMES or name.startswith(_RESERVED_BEGINNINGS):
            hint = "give the program's full path in argv" if name == "PATH" else None
            faults.append(Fault(pointer, "env-reserved", f"{name} is set by Hourhand or by nobody", hint))
        if "\0" in name:
            faults.append(nul_byte(pointer))
        if is_reference(value):
            faults += reference_faults(value, pointer)
        elif not isinstance(value, str):
            faults.append(wrong_type(pointer, "a string", value))
        elif "\0" in value:
            faults.append(nul_byte(pointer))
    return faults


def _cwd_faults(cwd: Any) -> list[Fault]:
    if not isinstance(cwd, str):
        return [wrong_type("/cwd", "a string", cwd)]
    if "\0" in cwd:
        return [nul_byte("/cwd")]
    if cwd.startswith("/") or ".." in cwd.split("/"):
        message = "must be a path inside the attempt's private work folder: without a leading / and without .."
        return [Fault("/cwd", "cwd-outside-workdir", message, f'use "argv": ["env", "-C", "{cwd}", …] to go elsewhere')]
    return []


def _exit_code_faults(codes: Any) -> list[Fault]:
    if not isinstance(codes, list):
        return [wrong_type("/ok_exit_codes", "a list of exit codes", codes)]
    if not codes:
        return [Fault("/ok_exit_codes", "invalid-exit-code", "must name at least one exit code")]
    return [
        Fault(pointer_to("ok_exit_codes", index), "invalid-exit-code", "must be a whole number from 0 to 255")
        for index, code in enumerate(codes)
        if not is_integer(code) or not 0 <= code <= 255
    ]
