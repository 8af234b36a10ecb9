"""The scheduler decides and does nothing else; each of its modules fits in a head."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_runtime.scheduler

FOLDER = Path(gpu_runtime.scheduler.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))
FORBIDDEN = {"torch", "ray", "numpy", "asyncio", "time", "random"}
IMPURE = FORBIDDEN | {"datetime", "threading", "os", "uuid", "secrets", "socket", "subprocess", "logging"}
MODULE_LINES_MAX, FUNCTION_LINES_MAX = 250, 60

by_name = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@by_name
def test_a_module_imports_no_clock_no_chance_no_tensor_and_no_world(module):
    names = imported(ast.parse(module.read_text()))
    assert not {name.split(".")[0] for name in names} & IMPURE
    ours = {name for name in names if name.startswith("gpu_runtime")}
    assert all(name.startswith(("gpu_runtime.scheduler", "gpu_runtime.protocol.ids")) for name in ours)


def test_importing_the_scheduler_loads_none_of_the_heavy_packages():
    code = "import sys, gpu_runtime.scheduler.invariants; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & (FORBIDDEN - {"time"})  # the interpreter itself loads time


@by_name
def test_a_module_fits_on_a_few_screens_and_says_what_it_is(module):
    text = module.read_text()
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    assert ast.get_docstring(ast.parse(text))


@by_name
def test_a_function_fits_on_one_screen(module):
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX, node.name


def test_the_scan_finds_what_it_looks_for():
    assert imported(ast.parse("import time\nfrom random import Random")) == {"time", "random"}
    assert len(MODULES) > 10
