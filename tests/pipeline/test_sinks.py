"""Outputs: their bytes, their names, and that what ``put`` and ``write_durably`` return from survives a kill."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path, PurePath

import pytest

from pagemill.pipeline.durable import temp_path, write_durably
from pagemill.pipeline.page import PageRef, PageText
from pagemill.pipeline.sinks import SINKS, Per, SourceDocument, output_names_of, write_document
from pagemill.pipeline.sinks.names import output_names

HASH = "ab" * 32
HOSTILE = "\U00010348 \u202eevil\u2066 \x0c\x00 <b>&amp;\u2028 \ud800 end"


def of(label: str, pages: int = 4, name: str = "scan") -> SourceDocument:
    return SourceDocument(label, Path("/in/scan.pdf"), HASH, pages, name=name)


def ref(page: int) -> PageRef:
    return PageRef(HASH, page, "scan.pdf")


PAGES = (
    PageText(
        ref(0),
        "# One\n\n**first** page",
        "ok",
        tokens=7,
        mean_log_prob=-0.25,
        timings={"decode": 1.5},
        provenance={"model": "m"},
    ),
    PageText(ref(1), "", "blank", "no ink: 0 px"),
    PageText(ref(2), "", "failed", "PDF --> gone\nbad"),
    PageText(ref(3), "cut", "truncated", "token cap of 64", tokens=64, mean_log_prob=-1.0),
)


def test_text_has_one_form_feed_between_pages() -> None:
    assert SINKS["text"].render(of("scan.pdf"), PAGES).decode() == "One\n\nfirst page\n\f\f\fcut\n"


def test_markdown_names_pages_and_never_hides_a_failure() -> None:
    assert SINKS["markdown"].render(of("scan.pdf"), PAGES).decode() == (
        "<!-- page 1 -->\n\n# One\n\n**first** page\n\n<!-- page 2: blank: no ink: 0 px -->\n\n"
        "<!-- page 3: failed: PDF - -&gt; gone bad -->\n\n<!-- page 4: truncated: token cap of 64 -->\n\ncut\n"
    )


def test_markdown_of_one_good_page_is_the_page() -> None:
    assert SINKS["markdown"].render(of("scan.png", 1), PAGES[:1]) == b"# One\n\n**first** page\n"


def test_jsonl_has_one_line_a_page() -> None:
    lines = [json.loads(line) for line in SINKS["jsonl"].render(of("a/scan.pdf"), PAGES).decode().splitlines()]
    assert [line["page"] for line in lines] == [1, 2, 3, 4]
    assert [line["status"] for line in lines] == ["ok", "blank", "failed", "truncated"]
    assert lines[0] == {
        "document": "a/scan.pdf",
        "page": 1,
        "text": "# One\n\n**first** page",
        "status": "ok",
        "reason": "",
        "tokens": 7,
        "mean_log_prob": -0.25,
        "blocks": [],
        "attempts": [],
        "measures": {},
        "picture": None,
        "provenance": {"model": "m"},
        "timings": {"decode": 1.5, "attempts": [], "finished_at": None},
    }
    assert lines[1]["mean_log_prob"] is None


SUFFIXES = [sink.suffix for sink in SINKS.values()]
COUNTED = {
    "text": lambda content: content.count("\f") + 1,
    "markdown": lambda content: content.count("<!-- page"),
    "html": lambda content: content.count("<section "),
    "jsonl": lambda content: content.count("\n"),
    "dolma": lambda content: len(json.loads(content)["attributes"]["pdf_page_numbers"]),
    "hocr": lambda content: content.count('"ocr_page"'),
    "alto": lambda content: content.count("<Page "),
    "mets": lambda content: content.count('TYPE="page"'),
}


@pytest.mark.parametrize("name", COUNTED)
def test_every_sink_keeps_the_page_count_of_hostile_text(name: str) -> None:
    pages = [PageText(ref(page), HOSTILE, "ok", tokens=1, mean_log_prob=float("nan")) for page in range(3)]
    assert COUNTED[name](SINKS[name].render(of("scan.pdf", 3), pages).decode()) == 3


@pytest.mark.parametrize("name", SINKS)
def test_every_page_shows_in_every_sink(name: str) -> None:
    pages = [PageText(ref(page), f"word{page}", "ok", tokens=1) for page in range(3)]
    shown = [pages[:1], pages[1:2], pages[2:]] if SINKS[name].scope == "page" else [pages[:1], pages[:2], pages]
    files = {SINKS[name].render(of("scan.pdf", 3), some) for some in [*shown, shown[-1]]}
    assert len(files) == 3


@pytest.mark.parametrize("name", ["text", "markdown", "jsonl"])
def test_plain_outputs_of_a_document_without_pages_are_empty(name: str) -> None:
    assert len(SINKS[name].render(of("scan.pdf", 0), [])) <= 1


@pytest.mark.parametrize(("per", "count"), [("document", 1), ("page", 4)])
@pytest.mark.parametrize("name", SINKS)
def test_files_are_one_a_document_or_one_a_page(name: str, per: Per, count: int) -> None:
    found = output_names_of("a/scan", [name], per, 4)
    fixed = {"page": 4, "document": 1}
    assert len(found) == fixed.get(SINKS[name].scope, count)
    assert len(set(found)) == len(found)
    assert found[0].endswith(SINKS[name].suffix)


def test_dolma_spans_are_the_pages() -> None:
    record = json.loads(SINKS["dolma"].render(of("a/scan.pdf"), PAGES))
    assert {"id", "text", "source", "added", "created", "metadata", "attributes"} == record.keys()
    spans = record["attributes"]["pdf_page_numbers"]
    assert [page for _, _, page in spans] == [1, 2, 3, 4]
    assert [record["text"][start:end] for start, end, _ in spans] == ["# One\n\n**first** page\n", "", "", "cut\n"]


def test_boxes_of_the_model_leave_texts_clean_and_go_into_blocks() -> None:
    page = PageText(ref(0), "![title](10,20,900,60) # One\n\n![text](10,80,900,500) two\nlines", "ok")
    assert SINKS["markdown"].render(of("scan.png", 1), [page]) == b"# One\n\ntwo\nlines\n"
    assert SINKS["text"].render(of("scan.png", 1), [page]) == b"One\n\ntwo\nlines\n"
    blocks = json.loads(SINKS["jsonl"].render(of("scan.png", 1), [page]))["blocks"]
    assert blocks == [
        {"label": "title", "box": [10, 20, 900, 60], "text": "# One"},
        {"label": "text", "box": [10, 80, 900, 500], "text": "two\nlines"},
    ]


@pytest.mark.parametrize(
    "hostile",
    ["<script>alert(1)</script>", '<table onclick="x()"><tr><td><script>alert(1)</script></td></tr></table>',
     "![x](http://elsewhere.example/a.png)", "[x](javascript:alert(1))", '<img src="x" onerror="x()">'],
)  # fmt: skip
def test_html_runs_nothing_and_loads_nothing(hostile: str) -> None:
    content = SINKS["html"].render(of("scan.png", 1), [PageText(ref(0), hostile, "ok")]).decode()
    assert "<script" not in content
    assert "<img" not in content
    assert "javascript:" not in content.replace("(javascript:", "")
    assert "<table onclick" not in content


def test_html_keeps_tables() -> None:
    text = '<table><tr><td colspan="2">a & b<td>c</table>\n\n| d | e |\n|---|---|\n| f | g |'
    content = SINKS["html"].render(of("scan.png", 1), [PageText(ref(0), text, "ok")]).decode()
    assert '<td colspan="2">a &amp; b' in content
    assert "<td>f</td>" in content
    assert content.count("<table>") == content.count("</table>") == 2


def test_every_sink_has_its_own_suffix() -> None:
    assert len({sink.suffix for sink in SINKS.values()}) == len(SINKS)


def test_write_document_writes_each_format_and_no_temp_file(tmp_path: Path) -> None:
    files = write_document(tmp_path, of("scan.pdf", name="deep/er/scan"), PAGES, ["text", "jsonl"])
    assert [file.name for file in files] == ["deep/er/scan.txt", "deep/er/scan.jsonl"]
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["scan.jsonl", "scan.txt"]


class Killed(BaseException):
    """Stands for kill -9: nothing may clean up behind it."""


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_killed_write_leaves_the_old_file_whole_and_the_next_write_no_temp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / ("n" * 250)
    write_durably(path, b"old")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, call, killed)
        with pytest.raises(Killed):
            write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert temp_path(path).exists()
    write_durably(path, b"newer")
    assert path.read_bytes() == b"newer"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_write_syncs_the_file_before_its_name_and_the_folder_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        events.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", lambda old, new: (replace(old, new), events.append("rename")))
    write_durably(tmp_path / "new folder" / "a", b"x")
    assert events == ["sync folder", "sync file", "rename", "sync folder"]


def names(*inputs: str) -> list[str]:
    """Output names of inputs that are mirrored as they are."""
    found = output_names({Path("/in") / name: PurePath(name) for name in inputs}, SUFFIXES)
    return [found[Path("/in") / name] for name in inputs]


def test_name_mirrors_the_input_without_its_extension() -> None:
    assert names("scan.pdf", "deep/er/scan.TIFF", "letter 1912.05", "-dash.png") == [
        "scan",
        "deep/er/scan",
        "letter 1912.05",
        "-dash",
    ]


@pytest.mark.parametrize(
    "inputs",
    [
        ("scan.pdf", "scan.png"),
        ("scan.pdf", "SCAN.PDF", "Scan.Pdf"),
        ("\u00e4.pdf", "a\u0308.pdf"),
        ("stra\u00dfe.pdf", "STRASSE.pdf"),
        ("a\nb.pdf", "a\tb.pdf", "a_b.pdf"),
        ("x.pdf", "x.png", "x.pdf.pdf"),
        ("x.md/page.pdf", "x.pdf"),
        ("n" * 251 + ".pdf", "n" * 250 + "m.pdf", "n" * 251 + ".png"),
        ("\u00e4" * 125 + ".pdf", "\u00e4" * 125 + ".png"),
        (os.fsdecode(b"\xff.pdf"), os.fsdecode(b"\xff.png"), os.fsdecode(b"\xfe.pdf")),
        ("\U0001f4dc.pdf", " .pdf", "trailing .pdf", "trailing..pdf"),
    ],
    ids=["extension", "case", "accents", "sharp s", "control", "chain", "folder", "long", "long accents", "undecodable", "odd"],
)
def test_no_two_inputs_share_an_output(inputs: tuple[str, ...], tmp_path: Path) -> None:
    found = names(*inputs)
    folded = {os.fsencode(name).lower() for name in found}
    assert len(folded) == len(inputs)
    assert names(*reversed(inputs)) == found[::-1]
    for name in found:
        assert all(len(os.fsencode(part)) + len(".jsonl") <= 255 for part in name.split("/"))
        write_durably(tmp_path / (name + ".md"), os.fsencode(name))
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == len(inputs)


def test_files_of_one_name_from_two_folders_stay_apart() -> None:
    found = output_names({Path("/a/scan.pdf"): PurePath("scan.pdf"), Path("/b/scan.pdf"): PurePath("scan.pdf")}, SUFFIXES)
    assert len(set(found.values())) == 2
    assert all(name.startswith("scan.pdf-") for name in found.values())


@pytest.mark.parametrize("place", ["/etc/passwd", "../up.pdf", "a/../../b.pdf", ""])
def test_name_outside_the_output_folder_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="inside the output folder"):
        output_names({Path("/in/x.pdf"): PurePath(place)}, SUFFIXES)
