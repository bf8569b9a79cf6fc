"""Files and functions stay small, and public names say what they are for."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.house.source import PACKAGES, Module, modules

LONGEST_FILE, LONGEST_FUNCTION, LONGEST_KERNEL = 400, 60, 90
KERNELS = "decoder/kernels/"

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(module: Module) -> Iterator[Function]:
    """Every function, nested ones too."""
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


@pytest.mark.parametrize("folder", [*PACKAGES, "tests"])
def test_every_module_has_a_docstring(folder: str) -> None:
    assert [module.path for module in modules(folder) if not ast.get_docstring(module.tree)] == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_public_names_have_docstrings(folder: str) -> None:
    missing = [
        f"{module.path}:{node.lineno} {node.name}"
        for module in modules(folder)
        for node in public(module.tree)
        if not ast.get_docstring(node)
    ]
    assert missing == []


def public(scope: ast.Module | ast.ClassDef) -> Iterator[Function | ast.ClassDef]:
    """Classes, functions and methods without a leading underscore."""
    for node in scope.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node)


@pytest.mark.parametrize("folder", PACKAGES)
def test_files_are_short(folder: str) -> None:
    lengths = {module.path: module.text.count("\n") for module in modules(folder)}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_FILE} == {}


@pytest.mark.parametrize("folder", PACKAGES)
def test_functions_are_short(folder: str) -> None:
    wrong = []
    for module in modules(folder):
        limit = LONGEST_KERNEL if module.path.startswith(KERNELS) else LONGEST_FUNCTION
        for node in functions(module):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > limit:
                wrong.append(f"{module.path}:{node.lineno} {node.name}: {lines} lines, at most {limit}")
    assert wrong == []


@pytest.mark.parametrize("folder", PACKAGES)
def test_only_packages_have_a_list_of_exports(folder: str) -> None:
    assert [m.path for m in modules(folder) if "\n__all__" in m.text and not m.path.endswith("__init__.py")] == []
