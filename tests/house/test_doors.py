"""Rooms have doors: what others may use is in a room's face, files form no circles, functions take few parameters."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from tests.house.source import PACKAGES, ROOT, Module, modules

MOST_PARAMETERS = 6
KERNELS = ("decoder/kernels/tiles/", "decoder/kernels/drivers/")  # signatures that LLVM and numba demand
MANY_PARAMETERS = {  # may only shrink
    "decoder/engine.py Engine.__init__",
    "decoder/kernels/ops/matmul.py matmul",
    "decoder/network/recorder.py Recorder.__init__",
    "decoder/weights/panel_store.py _panel",
}
JOBS_ROOMS = ("settings", "models", "inputs", "ledger", "run", "watch", "evaluate", "review", "cli")


def imports(module: Module) -> Iterator[str]:
    """Dotted names below pagemill that a module imports, in functions too; not those for type checkers alone."""
    hidden = {
        id(node)
        for branch in ast.walk(module.tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in hidden and (node.module or "").startswith("pagemill."):
            yield str(node.module).removeprefix("pagemill.")


def dotted(module: Module) -> str:
    return module.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_import_each_other_through_their_faces(package: str) -> None:
    others = set(PACKAGES) - {package}
    wrong = [
        f"{module.path} imports {name}"
        for module in modules(package)
        if module.path != f"{package}/__init__.py"
        for name in imports(module)
        if name.split(".")[0] in others and "." in name
    ]
    assert wrong == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_face_shows_type_checkers_what_it_exports(package: str) -> None:
    (face,) = [module for module in modules(package) if module.path == f"{package}/__init__.py"]
    shown = {alias.asname for node in ast.walk(face.tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    exported = importlib.import_module(f"pagemill.{package}").__all__
    assert shown - {None} == set(exported)
    assert {name for name in exported if (ROOT / package / f"{name}.py").exists()} == set(), "a submodule would hide the name"
    assert all(hasattr(importlib.import_module(f"pagemill.{package}"), name) for name in exported)


def test_files_form_no_circles() -> None:
    known = {dotted(module) for module in modules(*PACKAGES)}
    graph = {dotted(module): {name for name in imports(module) if name in known} for module in modules(*PACKAGES)}
    assert list(circles(graph)) == []


def circles(graph: dict[str, set[str]]) -> Iterator[frozenset[str]]:
    """Groups of files that all lead to each other."""
    reach = {name: reachable(graph, name) for name in graph}
    seen: set[str] = set()
    for name in graph:
        group = frozenset(other for other in reach[name] if name in reach[other])
        if group and name not in seen:
            seen |= group
            yield group


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        for name in graph[left.pop()] - found:
            found.add(name)
            left.append(name)
    return found


def test_functions_take_few_parameters() -> None:
    many = {
        f"{module.path} {name}"
        for module in modules(*PACKAGES)
        if not module.path.startswith(KERNELS)
        for name, node in functions(module.tree)
        if len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - name.count(".") > MOST_PARAMETERS
    }
    assert many == MANY_PARAMETERS, "split what grew; take what shrank off the list"


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """(name, function), a method as Class.method."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, ast.FunctionDef))


def test_the_rooms_of_jobs_point_one_way() -> None:
    order = {room: index for index, room in enumerate(JOBS_ROOMS)}
    climbs = set()
    for module in modules("jobs"):
        here = module.path.split("/")[1]
        for name in imports(module):
            there = name.split(".")[1] if name.startswith("jobs.") else ""
            if here in order and there in order and order[there] > order[here]:
                climbs.add((here, there))
    assert climbs == set()
