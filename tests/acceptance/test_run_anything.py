"""The guide to running anything: its files are written, its commands are run, and they print what it says."""

import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import BIN, Up, clean_environment

from seen_folders import seen_folder

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "run-anything.md"
PLUGIN = ROOT / "examples" / "plugins" / "shout-perl" / "shout.pl"
IMAGE = "localhost/hourhand-guide:1"
FENCE = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`:\n\n)?(?:^<!-- needs: (?P<needs>[^>]*) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Step(NamedTuple):
    section: str
    needs: str
    commands: str
    prints: str


def files() -> dict[str, str]:
    return {found["file"]: found["text"] for found in FENCE.finditer(GUIDE.read_text()) if found["file"]}


def steps() -> list[Step]:
    """Each block of commands with what it prints, in the order of the page."""
    made: list[Step] = []
    for section in re.split(r"^## ", GUIDE.read_text(), flags=re.MULTILINE)[1:]:
        for found in FENCE.finditer(section):
            if found["language"] == "sh":
                made.append(Step(section.partition("\n")[0], found["needs"] or "", found["text"], ""))
            elif found["language"] == "text":
                made[-1] = made[-1]._replace(prints=found["text"])
    return made


class Engine(NamedTuple):
    words: list[str]
    why_not: str


def engine_with_image(folder: Path) -> Engine:
    """An engine that has the guide's image and has run it."""
    busybox, why = shutil.which("busybox"), "there is neither podman nor docker, or no busybox to make an image of"
    for words in (["podman"], ["podman", "--runtime", "runc"], ["docker"]) if busybox else ():
        if shutil.which(words[0]) is None:
            continue
        packed = folder / "image.tar"
        with tarfile.open(packed, "w") as image:
            image.add(str(busybox), "bin/echo")
        limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--network", "none"]
        try:
            for command in (["import", str(packed), IMAGE], ["run", "--rm", *limits, IMAGE, "/bin/echo", "here"]):
                done = subprocess.run([*words, *command], capture_output=True, text=True, timeout=60, check=False)
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            return Engine(words, "")
        why = f"{' '.join(words)} cannot run a container here: {done.stderr.strip()[-200:]}"
    return Engine([], why)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    found = engine_with_image(tmp_path_factory.mktemp("image"))
    yield found
    if found.words:
        subprocess.run([*found.words, "rmi", "--force", IMAGE], capture_output=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory, engine: Engine) -> Iterator[Up]:
    folder = Path(tmp_path_factory.mktemp("guide"))
    with seen_folder("hh-guide-") as plugins:
        shutil.copy(PLUGIN, plugins / PLUGIN.name)
        (plugins / PLUGIN.name).chmod(0o755)
        for name, text in files().items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text.replace("/opt/plugins", str(plugins)))
        settings = {
            "PYTHONPATH": str(folder),
            "HOURHAND_CONFIG": str(folder / "hourhand.toml"),
            "HOURHAND_KINDS_CONTAINER_ENGINE": ",".join(engine.words) or "/nowhere/podman",
        }
        with Up(folder, arguments=["--import", "tasks"], environment=settings) as up:
            yield up


def run(up: Up, commands: str) -> tuple[str, str]:
    environment = clean_environment(HOURHAND_HOME=str(up.home), HOURHAND_PORT=str(up.port))
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=up.folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{commands}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.section)
def test_every_example_prints_what_the_guide_says(step: Step, up: Up, engine: Engine) -> None:
    if "engine" in step.needs and not engine.words:
        pytest.skip(engine.why_not)
    # What goes wrong is told on stderr, before the exit code is printed.
    said, told = run(up, step.commands)
    assert (told + said if step.prints.startswith("hourhand: ") else said) == step.prints


def test_without_an_engine_a_container_waits_and_explain_says_so(up: Up, engine: Engine) -> None:
    if engine.words:
        pytest.skip("there is an engine, which the example above has used")
    assert "container" in explained(up, '--kind container --payload \'{"image": "a"}\'')


def test_a_language_that_nobody_has_waits_and_explain_says_so(up: Up) -> None:
    told = explained(up, '--kind script --payload \'{"source": "x", "language": "cobol"}\'')
    assert "script:cobol" in told


def explained(up: Up, options: str) -> str:
    job = run(up, f"hourhand job create waits {options}")[0].strip()
    return run(up, f"hourhand run explain {up.client().wait_for_start(job).run_id}")[0]


def test_a_job_that_names_what_was_not_uploaded_is_refused(up: Up) -> None:
    payload = '{"artifact": "no-such-thing", "entry": "run"}'
    said, told = run(up, f"hourhand job create none --kind script --payload '{payload}' || echo \"exit code $?\"")
    assert said == "exit code 2\n"
    assert "/payload/artifact: there is no artifact no-such-thing" in told
