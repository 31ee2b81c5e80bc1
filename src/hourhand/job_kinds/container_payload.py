"""What the payload of a container job may say, and every fault it can have. Pure: runs in the API."""

import re
from collections.abc import Mapping
from typing import Any, Final

from hourhand.job_kinds.command_payload import command_faults
from hourhand.job_kinds.payload_checks import pointer_to, unknown_fields, wrong_type
from hourhand.model.errors import Fault

FIELDS: Final = ("image", "argv", "env", "stdin", "ok_exit_codes", "network", "pull", "workdir")
NETWORKS: Final = ("none", "bridge")
PULLS: Final = ("missing", "always", "never")
_IMAGE: Final = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,255}")
_WORKDIR: Final = re.compile(r"/[^\0]{0,255}")
_LIKE_A_COMMAND: Final = ("env", "stdin", "ok_exit_codes")


def container_faults(payload: Mapping[str, Any]) -> list[Fault]:
    faults = unknown_fields(payload, FIELDS)
    faults += _image_faults(payload)
    if "argv" in payload and payload["argv"] != []:
        faults += [fault for fault in command_faults({"argv": payload["argv"]}) if fault.code != "program-required"]
    faults += command_faults({"argv": ["x"], **{name: payload[name] for name in _LIKE_A_COMMAND if name in payload}})
    faults += _line_faults(payload.get("env"))
    for name, allowed in (("network", NETWORKS), ("pull", PULLS)):
        if name in payload and payload[name] not in allowed:
            faults.append(Fault(f"/{name}", "unknown-value", f"must be {' or '.join(allowed)}", allowed=allowed))
    workdir = payload.get("workdir")
    if "workdir" in payload and not (isinstance(workdir, str) and _WORKDIR.fullmatch(workdir) and ":" not in workdir):
        faults.append(Fault("/workdir", "invalid-workdir", "must be an absolute path inside the container"))
    return faults


def _image_faults(payload: Mapping[str, Any]) -> list[Fault]:
    if "image" not in payload:
        return [Fault("/image", "image-required", "is required: the image to run, such as docker.io/library/alpine:3")]
    if not isinstance(payload["image"], str):
        return [wrong_type("/image", "a string", payload["image"])]
    if not _IMAGE.fullmatch(payload["image"]):
        return [Fault("/image", "invalid-image", "is not the name of an image: registry/name:tag or name@sha256:…")]
    return []


def _line_faults(env: Any) -> list[Fault]:
    """Engines read variables line by line."""
    return [
        Fault(pointer_to("env", name), "env-reserved", "must be one line: containers are given their variables by line")
        for name, value in (env.items() if isinstance(env, Mapping) else ())
        if isinstance(value, str) and re.search(r"[\r\n]", f"{name}{value}")
    ]
