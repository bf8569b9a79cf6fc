"""What lies in the project: known entries at the top, links that lead somewhere, nothing of one machine."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house.source import ROOT, tracked_files

TOP = {
    ".ci", ".gitattributes", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md",
    "config.yaml", "decoder", "docs", "jobs", "pagemill", "pipeline", "pyproject.toml", "samples", "tests", "vision",
}  # fmt: skip
LARGEST_BYTES = 25_000_000  # what a sample model's checkpoint may take
MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home|Users|tmp)/\w|pypi\.org|pythonhosted\.org|simple/\s")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")


def texts() -> dict[str, str]:
    """Tracked files that are text."""
    found = {}
    for name in tracked_files():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content[:4096]:
            found[name] = content.decode("utf-8", "replace")
    return found


def test_top_level_holds_known_entries_only() -> None:
    assert {name.split("/", 1)[0] for name in tracked_files()} - TOP == set()


def test_no_file_is_huge() -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in tracked_files()}
    assert {name: size for name, size in sizes.items() if size > LARGEST_BYTES} == {}


def test_no_file_names_a_machine_or_a_registry() -> None:
    here = [str(place) + "/" for place in (ROOT, ROOT.parent, Path.home()) if len(place.parts) > 1]
    wrong = []
    for name, text in texts().items():
        if name == "tests/house/test_tree.py" or name.startswith("tests/oracles/"):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if MACHINE.search(line) or any(place in line for place in here):
                wrong.append(f"{name}:{number}: {line.strip()[:100]}")
    assert wrong == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name, text in texts().items()
        if name.endswith(".md")
        for target in LINK.findall(text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []
