"""Imports point one way, name only what pyproject.toml installs, and architectures are named in one place."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.house.source import PACKAGES, ROOT, Module, modules

DEFERRED = re.compile(rf"pagemill\.({'|'.join(PACKAGES)})(\.\w+)+(:\w+)?")  # the argument of import_module and the like
DISTRIBUTIONS = {
    "PIL": "pillow",
    "yaml": "pyyaml",
    "pydantic_core": "pydantic",
    "markdown_it": "markdown-it-py",
    "huggingface_hub": "huggingface-hub",
}

ARCHITECTURES = re.compile(r"llama|qwen|gemma|\bphi|mistral|mixtral|gpt-?2|pixtral|lightonocr", re.IGNORECASE)
NAMING_ALLOWED = {  # the tables of architectures; tokenizers, whose kinds and pre-splits have the same names in files
    "decoder/archs.py",
    "vision/archs.py",
    "decoder/tokenizer/tokenizer.py",
    "decoder/tokenizer/pretokenizers.py",
    "decoder/tokenizer/bpe.py",
    "decoder/tokenizer/spm.py",
    "decoder/tokenizer/vocabulary.py",
}
LLVM_NAMES = {"phi"}  # the instruction


def imported(module: Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of everything a module imports, at its top, in functions, or by name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DEFERRED.fullmatch(node.value):
            yield node.lineno, node.value


def room(name: str) -> str:
    """The room that a dotted name leads to: "vision" for pagemill.vision.spec; other packages are rooms of their own."""
    return name.removeprefix("pagemill.").split(".")[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    wrong = [
        f"{module.path}:{line} imports {name}"
        for module in modules(package)
        for line, name in imported(module)
        if name.startswith(".") or room(name) in {*PACKAGES, "tests", "samples"}.difference(allowed)
    ]
    assert wrong == []


def test_imported_packages_are_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: found for name, found in project["optional-dependencies"].items() if name != "dev"}
    declared, optional = names_of(project["dependencies"]), names_of([one for found in extras.values() for one in found])
    known = {"pagemill", *sys.stdlib_module_names}
    wrong = [
        f"{module.path}:{line} imports {name}"
        for module in modules(*PACKAGES)
        for line, name in imported(module)
        if (top := name.split(".")[0]) not in known
        and (distribution := DISTRIBUTIONS.get(top, top)) not in declared
        and (distribution not in optional or line in top_lines(module))  # an extra's is imported when it is asked for
    ]
    assert wrong == []


def names_of(requirements: list[str]) -> set[str]:
    """The distributions that requirements name."""
    return {re.split(r"[^\w-]", requirement)[0].lower() for requirement in requirements}


def top_lines(module: Module) -> set[int]:
    """Lines of imports that are done when the module is."""
    return {node.lineno for node in module.tree.body if isinstance(node, ast.Import | ast.ImportFrom)}


def names_and_values(module: Module) -> Iterator[tuple[int, str]]:
    """(line, text) of identifiers and of strings that are values; prose, which has spaces, may name what it likes."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Constant(value=str(text)) if not re.search(r"\s", text):
                yield node.lineno, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.keyword(arg=str(name)):
                yield node.value.lineno, name


def test_architectures_are_named_in_their_tables_only() -> None:
    wrong = [
        f"{module.path}:{line}: {text}"
        for module in modules(*PACKAGES)
        if module.path not in NAMING_ALLOWED
        for line, text in names_and_values(module)
        if ARCHITECTURES.search(text) and text not in LLVM_NAMES
    ]
    assert wrong == []


def test_only_the_command_line_prints_and_exits() -> None:
    wrong = [
        f"{module.path}:{node.lineno} calls {called}"
        for module in modules(*PACKAGES)
        if not module.path.startswith("jobs/cli/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and (called := ast.unparse(node.func)) in ("print", "sys.exit", "exit")
        and not any(keyword.arg == "file" for keyword in node.keywords)  # a stream that the caller gave
    ]
    assert wrong == []
