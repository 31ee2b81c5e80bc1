import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from hourhand.job_kinds import registry
from hourhand.job_kinds.http import HttpKind
from hourhand.job_kinds.registry import KindSettings, kinds_for_checking, kinds_for_running
from hourhand.model.errors import BadConfiguration


class Echo(HttpKind):
    name = "echo"


def make_echo(settings):
    return Echo()


def make_broken(settings):
    raise RuntimeError("no licence")


@pytest.fixture
def offered(monkeypatch):
    def offer(**points):
        found = [EntryPoint(name, value, registry.GROUP) for name, value in points.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: found)

    return offer


def test_the_kinds_of_the_product_are_there():
    kinds = kinds_for_checking()
    assert sorted(kinds) == ["command", "container", "http", "python", "script"]
    assert all(kinds[name].name == name for name in kinds)


def test_checking_knows_no_handlers():
    assert kinds_for_checking()["python"].offers() == []


def test_checking_imports_nothing_slow():
    code = (
        "import sys; from hourhand.job_kinds.registry import *; kinds_for_checking(); print('aiohttp' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_api_may_refuse_private_targets_at_submission():
    payload = {"url": "http://10.0.0.1/"}
    assert kinds_for_checking()["http"].check(payload) == []
    assert kinds_for_checking(KindSettings())["http"].check(payload) != []


def test_running_loads_handlers():
    kinds = kinds_for_running(KindSettings(handler_modules=("hourhand.job_kinds.samples",)))
    assert "python:demo.hello" in kinds["python"].offers()


def test_a_package_can_bring_a_kind(offered):
    offered(echo="test_registry:make_echo")
    assert kinds_for_checking()["echo"].name == "echo"
    assert "echo" in kinds_for_running(KindSettings())


def test_a_broken_package_breaks_its_own_kind_only(offered):
    offered(echo="test_registry:make_echo", bad="test_registry:make_broken", gone="no_such_module:x")
    kinds = kinds_for_checking()
    assert kinds["echo"].name == "echo"
    assert "bad" in kinds
    with pytest.raises(BadConfiguration, match="job kind 'bad' cannot be loaded: RuntimeError: no licence"):
        kinds["bad"]


def test_an_executor_tells_all_broken_packages_at_once(offered):
    offered(bad="test_registry:make_broken", gone="no_such_module:x", other="test_registry:make_echo")
    with pytest.raises(BadConfiguration) as caught:
        kinds_for_running(KindSettings())
    assert len(caught.value.faults) == 3
    assert "job kind 'other' calls itself 'echo'" in caught.value.faults


def test_a_package_cannot_replace_a_kind_of_the_product(offered):
    offered(http="test_registry:make_broken")
    assert isinstance(kinds_for_running(KindSettings())["http"], HttpKind)


def test_an_unknown_kind_is_not_there():
    with pytest.raises(KeyError):
        kinds_for_checking()["cobol"]


def test_an_installed_package_brings_its_kind(tmp_path, monkeypatch):
    """The example as it lies in a site-packages folder: its module, and what its pyproject says of entry points."""
    example = Path(__file__).parents[3] / "examples" / "plugins" / "hourhand-shout"
    project = tomllib.loads((example / "pyproject.toml").read_text())["project"]
    shutil.copytree(example / "src" / "hourhand_shout", tmp_path / "hourhand_shout")
    facts = tmp_path / f"hourhand_shout-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"][registry.GROUP]
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (facts / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))

    kinds = kinds_for_running(KindSettings())
    assert kinds["shout"].check({"text": "hi"}) == []
    assert "shout" in kinds["shout"].offers()
