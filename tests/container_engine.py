"""A real container engine for tests, where the machine has one that can run a container, and an image for it."""

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

IMAGE = f"localhost/hourhand-test-tiny:{os.getpid()}"
"""One for each test process: whoever ends first removes his own."""


def real_engine(folder: Path) -> tuple[list[str] | None, str]:
    """The command of an engine that has just run a container made from a static busybox; else why there is none."""
    busybox = shutil.which("busybox")
    if busybox is None:
        return None, "there is no busybox to make an image of"
    packed = folder / "tiny.tar"
    with tarfile.open(packed, "w") as image:
        image.add(busybox, "bin/busybox")
        for name in ("sh", "echo", "cat", "id", "sleep", "touch", "true", "wget"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            image.addfile(link)
        for name in ("tmp", "work"):
            made = tarfile.TarInfo(name)
            made.type, made.mode = tarfile.DIRTYPE, 0o777
            image.addfile(made)
    why = "there is neither podman nor docker"
    for words in (["podman"], ["podman", "--runtime", "runc"], ["docker"]):
        if shutil.which(words[0]) is None:
            continue
        try:
            done = subprocess.run([*words, "import", packed, IMAGE], capture_output=True, timeout=60, check=False)
            limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none"]
            trial = [*words, "run", "--rm", *limits, IMAGE, "/bin/true"]
            done = subprocess.run(trial, capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            why = f"{words[0]} did not answer in time"
            continue
        if done.returncode == 0:
            return words, ""
        why = f"{' '.join(words)} cannot run a container here: {done.stderr.strip()[-200:]}"
    return None, why
