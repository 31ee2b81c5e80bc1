"""Rules of the house that can be checked: floors, purity, size, no traces of a builder's machine."""

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hourhand

SOURCE = Path(hourhand.__file__).parent
ROOT = SOURCE.parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))
MODEL = sorted((SOURCE / "model").glob("*.py"))
TEXTS = sorted(path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)

LINES_MAX = 500
FUNCTION_LINES_MAX = 70


def shown(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def dotted(node: ast.expr) -> str:
    """The name that is called: "datetime.now", "random.random"."""
    match node:
        case ast.Attribute(value=owner, attr=name):
            return f"{dotted(owner)}.{name}"
        case ast.Name(id=name):
            return name
        case _:
            return "?"


def test_imports_go_down_the_floors() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    command = [str(program)] if program.exists() else [shutil.which("lint-imports") or "lint-imports"]
    checked = subprocess.run(
        [*command, "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        cwd=ROOT, env={"PYTHONPATH": str(SOURCE.parent), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout[-3000:] + checked.stderr[-2000:]


@pytest.mark.parametrize("path", MODEL, ids=shown)
def test_the_model_awaits_nothing(path: Path) -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert [node.lineno for node in ast.walk(tree_of(path)) if isinstance(node, waiting)] == []


@pytest.mark.parametrize("path", MODEL, ids=shown)
def test_the_model_asks_no_clock_no_chance_and_nothing_outside(path: Path) -> None:
    forbidden = re.compile(
        r"(^|\.)(now|utcnow|today)$|^time\.|^random\.|^secrets\.|^os\.|^asyncio\.|(^|\.)uuid[147]$|^open$|^print$|^input$"
    )
    calls = [
        f"{node.lineno}: {dotted(node.func)}"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and forbidden.search(dotted(node.func))
    ]
    assert calls == []


@pytest.mark.parametrize("path", MODEL, ids=shown)
def test_the_model_imports_no_way_to_the_outside(path: Path) -> None:
    outside = {"asyncio", "os", "random", "secrets", "socket", "subprocess", "time", "threading", "asyncpg", "aiohttp"}
    imported = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported & outside == set()


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    sizes = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: size for name, size in sizes.items() if size >= LINES_MAX} == {}


def test_no_function_is_too_long_to_be_read_at_once() -> None:
    sizes = {
        f"{shown(path)}:{function.lineno} {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in MODULES
        for function in functions_of(path)
    }
    assert {name: size for name, size in sizes.items() if size >= FUNCTION_LINES_MAX} == {}


def test_every_module_says_what_it_is_for() -> None:
    assert [shown(path) for path in MODULES if path.stat().st_size and not ast.get_docstring(tree_of(path))] == []


def test_no_file_mentions_a_path_of_the_machine_it_was_written_on() -> None:
    own = re.compile(r"/home/\w|/Users/\w|/ro{2}t/|[A-Z]:\\Users")
    found = [
        f"{shown(path)}: {match[0]}"
        for path in TEXTS
        if (match := own.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    assert found == []
