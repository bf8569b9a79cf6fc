"""Tables that programs keep in documents, between a pair of comments."""

from __future__ import annotations

from pathlib import Path


def put_between(document: Path, name: str, text: str) -> None:
    """Replace what stands between `<!-- NAME -->` and `<!-- end of NAME -->`.  Refuses a document without them."""
    first, last = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, opening, rest = document.read_text("utf-8").partition(first)
    _, closing, after = rest.partition(last)
    if not opening or not closing:
        raise SystemExit(f"{document}: expected the comments {first.strip()} and {last.strip()}, found none; add them")
    document.write_text(f"{before}{first}\n{text.strip()}\n{last}{after}", "utf-8")
