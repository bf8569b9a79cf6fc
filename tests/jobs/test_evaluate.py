"""Measuring: against jiwer on random strings, against figures worked out by hand, and from the command line."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import jiwer
import pytest

from pagemill.jobs.cli import app as cli
from pagemill.jobs.errors import ConfigError, InputError
from pagemill.jobs.evaluate.comparing import compare, measure
from pagemill.jobs.evaluate.evaluate import Errors, PageScore, confusions, count_errors, count_misread, score_page
from pagemill.jobs.evaluate.intervals import calibrate, difference_interval, rate_interval
from pagemill.jobs.evaluate.normalisers import MEANINGS, NORMALISERS, normaliser
from pagemill.jobs.evaluate.page_tests import PageTest, normalise, read_tests, run_tests, score_of, starts, summarise
from pagemill.jobs.evaluate.readings import Transcript, Transcripts, match, names_in, read_run, read_truth
from pagemill.jobs.evaluate.tables import find_tables
from pagemill.jobs.evaluate.tesseract import read_with_tesseract
from pagemill.pipeline.page import PageRef, PageText
from pagemill.pipeline.sinks import SourceDocument, write_document

ROOT = Path(__file__).parents[2]


def as_they_are(text: str) -> str:
    return text


def random_text(source: random.Random, alphabet: str, longest: int) -> str:
    return "".join(source.choices(alphabet, k=source.randint(1, longest))).strip() or "a"


@pytest.mark.parametrize("alphabet", ["ab ", "abcdefgh  ", "äöü漢字🙂 x"])
def test_errors_equal_those_of_jiwer_on_random_strings(alphabet: str) -> None:
    source = random.Random(5)
    for _ in range(300):
        truth, read = random_text(source, alphabet, 60), random_text(source, alphabet, 60)
        theirs = jiwer.process_characters(truth, read)
        mine = count_errors(truth, read)
        assert mine == Errors(theirs.substitutions, theirs.deletions, theirs.insertions, len(truth))
        assert mine.rate == theirs.cer
        words = jiwer.process_words(truth, read)
        assert count_errors(truth.split(), read.split()).rate == words.wer


def test_errors_of_many_pages_equal_those_of_jiwer() -> None:
    source = random.Random(6)
    pages = [(random_text(source, "abc ", 40), random_text(source, "abc ", 40)) for _ in range(50)]
    run = Transcripts("run", {"d": {number: Transcript(read) for number, (_, read) in enumerate(pages, 1)}})
    measured = measure({"d": {number: truth for number, (truth, _) in enumerate(pages, 1)}}, run, as_they_are)
    truths, reads = [truth for truth, _ in pages], [read for _, read in pages]
    assert measured.characters.rate == pytest.approx(jiwer.cer(truths, reads), abs=0)
    assert measured.words.rate == pytest.approx(jiwer.wer(truths, reads), abs=0)


def test_an_empty_truth_page_counts_what_was_invented() -> None:
    score = score_page("d", 1, "", "invented")
    assert (score.characters, score.characters.rate) == (Errors(0, 0, 8, 0), None)
    run = Transcripts("run", {"d": {1: Transcript("invented"), 2: Transcript("abcd")}})
    measured = measure({"d": {1: "", 2: "abcd"}}, run, as_they_are)
    assert (measured.characters.rate, measured.invented, measured.mean_page_rate) == (2.0, 8, 0.0)


@pytest.mark.parametrize(
    ("truth", "read", "misread", "moved"),
    [
        ("a b c d", "a b c d", 0, 0),
        ("a b c d", "c d a b", 0, 4),  # two columns in the other order
        ("a1 b1 a2 b2 a3 b3", "a1 a2 a3 b1 b2 b3", 0, 4),
        ("a b c d", "a x c d", 1, 0),
        ("a b c d", "a c d", 1, 0),
        ("a b c d", "c x a b", 1, 3),
        ("", "a b", 2, 0),
    ],
)
def test_order_errors_are_told_from_misreadings(truth: str, read: str, misread: int, moved: int) -> None:
    score = score_page("d", 1, truth, read)
    assert (score.misread_words, score.moved_words) == (misread, moved)
    assert score.words.count == misread + moved


def test_misread_words_are_never_more_than_word_errors() -> None:
    source = random.Random(7)
    for _ in range(500):
        truth, read = (source.choices("abcdef", k=source.randint(0, 12)) for _ in range(2))
        assert count_misread(truth, read) <= count_errors(truth, read).count
        shuffled = source.sample(truth, len(truth))
        assert count_misread(truth, shuffled) == 0


def test_confusions_join_neighbouring_edits_and_leave_out_long_ones() -> None:
    assert confusions("modern corn", "modem com") == {("rn", "m"): 2}
    assert confusions("a, b", "a. b") == {(",", "."): 1}
    assert confusions("ab", "axb") == {("", "x"): 1}
    assert confusions("keep all of this", "keep") == {}


# Intervals and calibration


def test_an_interval_holds_the_rate_and_is_the_same_each_time() -> None:
    source = random.Random(8)
    errors = [Errors(source.randint(0, 9), 0, 0, 100) for _ in range(40)]
    rate = sum(one.count for one in errors) / 4000
    low, high = rate_interval(errors) or (1.0, 0.0)
    assert 0 < low < rate < high < 0.09
    assert rate_interval(errors) == (low, high)
    deviation = math.sqrt(sum((one.count / 100 - rate) ** 2 for one in errors)) / 40  # the standard error of the mean
    assert (high - low) == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_an_interval_of_equal_pages_is_a_point_and_of_two_pages_none() -> None:
    assert rate_interval([Errors(1, 0, 0, 10)] * 5) == (0.1, 0.1)
    assert rate_interval([Errors(1, 0, 0, 10)] * 2) is None
    assert rate_interval([Errors(0, 0, 1, 0)] * 5) is None


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    source = random.Random(9)
    first = [Errors(source.randint(0, 50), 0, 0, 100) for _ in range(40)]
    second = [Errors(one.substitutions + 1, 0, 0, 100) for one in first]
    assert difference_interval(first, second) == pytest.approx((0.01, 0.01))


def scored(log_prob: float | None, errors: int) -> PageScore:
    score = score_page("d", 1, "x" * 100, "x" * (100 - errors), mean_log_prob=log_prob)
    assert score.characters.count == errors
    return score


def test_confidence_that_foretells_errors_is_told_from_confidence_that_does_not() -> None:
    good = calibrate([scored(-0.01 * errors, errors) for errors in range(20)])
    assert good is not None
    assert good.rank_correlation == pytest.approx(-1.0)
    assert good.miss_detection == 1.0
    assert [one.pages for one in good.bins] == [4] * 5
    assert good.gap < 0.01
    bad = calibrate([scored(-0.01 * ((7 * errors) % 20), errors) for errors in range(20)])
    assert bad is not None
    assert abs(bad.rank_correlation or 1) < 0.5
    assert calibrate([scored(None, 1)] * 10) is None
    flat = calibrate([scored(-0.1, errors) for errors in range(5)])
    assert flat is not None
    assert (flat.rank_correlation, flat.miss_detection) == (None, 0.5)


# What is compared with what


def test_pages_that_do_not_match_up_are_listed_and_in_no_figure() -> None:
    truth = {"a.pdf": {1: "one", 2: "two", 3: "three"}, "gone.pdf": {1: "gone"}}
    run = Transcripts(
        "run", {"a": {1: Transcript("one"), 2: Transcript("two"), 4: Transcript("four")}, "new": {1: Transcript("new")}}
    )
    matched = match(truth, run)
    assert [(pair.document, pair.page) for pair in matched.pairs] == [("a.pdf", 1), ("a.pdf", 2)]
    assert matched.unread == (("a.pdf", 3), ("gone.pdf", 1))
    assert matched.untold == (("a.pdf", 4), ("new", 1))
    assert measure(truth, run, as_they_are).characters == Errors(0, 0, 0, 6)


@pytest.mark.parametrize(
    ("wanted", "documents", "found"),
    [
        (["a.pdf"], ["a.pdf"], {"a.pdf": "a.pdf"}),
        (["a.pdf"], ["a"], {"a.pdf": "a"}),
        (["a"], ["a.pdf"], {"a": "a.pdf"}),
        (["a"], ["a.pdf", "a.png"], {}),
        (["a.pdf"], ["a.pdf", "a"], {"a.pdf": "a.pdf"}),
        (["a.pdf", "a.png"], ["a"], {}),
        (["d/a.pdf"], ["a.pdf"], {}),
        (["1890.05"], ["1890.05"], {"1890.05": "1890.05"}),
    ],
)
def test_documents_are_found_by_name_or_not_at_all(wanted: list[str], documents: list[str], found: Mapping[str, str]) -> None:
    assert names_in(wanted, documents) == found


def test_a_run_is_read_from_jsonl_or_else_text_or_else_markdown(tmp_path: Path) -> None:
    record = {"document": "sub/a.pdf", "page": 2, "text": "from jsonl\n", "status": "looped", "mean_log_prob": -0.5}
    (tmp_path / "sub").mkdir()
    (tmp_path / ".pagemill").mkdir()
    (tmp_path / ".pagemill/x.jsonl").write_text("not an output")
    (tmp_path / "sub/a.jsonl").write_text(json.dumps(record) + "\n")
    (tmp_path / "sub/a.txt").write_text("from text")
    (tmp_path / "b.txt").write_text("one\n\ftwo\n")
    (tmp_path / "c.md").write_text(
        "<!-- page 1 -->\n\nfirst\n\n<!-- page 2: failed: no: page -->\n\n<!-- page 3 -->\n\nthird\n"
    )
    (tmp_path / "d.md").write_text("all of it\n\n<!-- a comment of the model -->\n")
    (tmp_path / "e.md").write_text("<!-- blank: no ink -->\n")
    assert read_run(tmp_path).documents == {
        "sub/a.pdf": {2: Transcript("from jsonl", "looped", -0.5)},
        "b": {1: Transcript("one"), 2: Transcript("two")},
        "c": {1: Transcript("first", "ok"), 2: Transcript("", "failed"), 3: Transcript("third", "ok")},
        "d": {1: Transcript("all of it\n\n<!-- a comment of the model -->")},
        "e": {1: Transcript("", "blank")},
    }
    assert read_run(tmp_path / "b.txt").documents == {"b": {1: Transcript("one"), 2: Transcript("two")}}


@pytest.mark.parametrize("per", ["document", "page"])
def test_every_kind_of_output_is_read_as_the_same_pages(tmp_path: Path, per: Literal["document", "page"]) -> None:
    texts = ["first page", "", "third page\n\nof two paragraphs"]
    refs = [PageRef("hash", number, "a.pdf") for number in range(3)]
    pages = [PageText(ref, text, "ok" if text else "blank") for ref, text in zip(refs, texts, strict=True)]
    document = SourceDocument(name="sub/a", label="sub/a.pdf", content=Path("a.pdf"), content_hash="hash", pages=3)
    for kind in ("jsonl", "dolma", "text", "markdown"):
        write_document(tmp_path / kind, document, pages, [kind], per)
        (found,) = read_run(tmp_path / kind).documents.values()
        assert {number: reading.text for number, reading in found.items()} == dict(enumerate(texts, 1)), kind
        assert names_in(["sub/a.pdf"], read_run(tmp_path / kind).documents), kind


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing there"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(InputError, match="found none"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="found none"):
        read_truth(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"page": 1}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:1"):
        read_run(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"document": "a", "page": 1, "text": "x"}\n' * 2)
    with pytest.raises(InputError, match="once"):
        read_run(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xff")
    with pytest.raises(InputError, match="UTF-8"):
        read_truth(tmp_path)


# Normalisers

CASES = {
    "markdown": ("# A **bold** word", "A bold word"),
    "nfc": ("e\u0301", "é"),
    "nfkc": ("Ａ①", "A1"),
    "ligatures": ("ﬁſh", "fish"),
    "quotes": ("‘a’ “b” „c« ’", '\'a\' "b" "c" \''),
    "dashes": ("a–b—c−d", "a-b-c-d"),
    "hyphens": ("trans-\n  port and well-known, 1914-\n18", "transport and well-known, 1914-\n18"),
    "accents": ("Ängström é", "Angstrom e"),
    "case": ("Straße", "strasse"),
    "punctuation": ("a, b. (c)", "a b c"),
    "lines": ("one\n\n two\nthree", "one two three"),
    "whitespace": ("a   b\t c \n\n\n d", "a b c\nd"),
}


def test_every_normaliser_has_a_case_and_a_meaning() -> None:
    assert CASES.keys() == NORMALISERS.keys() == MEANINGS.keys()


@pytest.mark.parametrize("name", NORMALISERS)
def test_normalisers(name: str) -> None:
    text, expected = CASES[name]
    assert normaliser([name])(text) == expected
    assert normaliser([name])(expected) == expected
    assert normaliser([])(text) == text


def test_normalisers_are_applied_in_one_order_and_unknown_ones_told() -> None:
    text = "# Trans-\nport  “X”\n"
    assert normaliser(["lines", "hyphens", "markdown"])(text) == normaliser(["markdown", "hyphens", "lines"])(text)
    with pytest.raises(ConfigError, match="'spaces'"):
        normaliser(["spaces"])


# Page tests in olmOCR-bench's format


def page_test(kind: str, **fields: object) -> PageTest:
    return PageTest("cases", "id", "a.pdf", 1, kind, fields)


PAGE = "# The **mill**\n\nClean rags went in at the top; sheets came out – below.\n\nPage 7\n"
PIPES = "| year | rags | paper |\n|---|---|---|\n| 1890 | 10 | 20 |\n| 1891 | 11 | 21 |\n"
HTML = (
    "<table><tr><th>year</th><th colspan=2>tons</th></tr><tr><th></th><th>rags</th><th>paper</th></tr>"
    "<tr><td rowspan=2>1890</td><td>10</td><td>20</td></tr><tr><td>11</td><td>21</td></tr></table>"
)


@pytest.mark.parametrize(
    ("page", "kind", "fields", "outcome"),
    [
        (PAGE, "present", {"text": "Clean rags went in"}, "passed"),
        (PAGE, "present", {"text": "The mill Clean rags"}, "passed"),
        (PAGE, "present", {"text": "Clean rugs went in"}, "failed"),
        (PAGE, "present", {"text": "Clean rugs went in", "max_diffs": 2}, "passed"),
        (PAGE, "present", {"text": "clean rags"}, "failed"),
        (PAGE, "present", {"text": "clean rags", "case_sensitive": False}, "passed"),
        (PAGE, "present", {"text": "came out - below"}, "passed"),
        (PAGE, "present", {"text": "a phrase with spaces"}, "failed"),
        ("\n", "present", {"text": "a phrase with spaces"}, "failed"),
        ("\n", "absent", {"text": "a phrase with spaces"}, "passed"),
        (PAGE, "absent", {"text": "Page 7"}, "failed"),
        (PAGE, "absent", {"text": "Page 7", "first_n": 20}, "passed"),
        (PAGE, "absent", {"text": "Page 7", "last_n": 20}, "failed"),
        (PAGE, "absent", {"text": "Page 7", "first_n": 5, "last_n": 10}, "failed"),
        (PAGE, "absent", {"text": "Page 8"}, "passed"),
        (PAGE, "order", {"before": "Clean rags", "after": "came out"}, "passed"),
        (PAGE, "order", {"before": "came out", "after": "Clean rags"}, "failed"),
        (PAGE, "order", {"before": "Clean rugs", "after": "came our", "max_diffs": 1}, "passed"),
        (PAGE, "order", {"before": "Clean rugs", "after": "came out"}, "failed"),
        (PIPES, "table", {"cell": "11", "up": "10", "left": "1891", "right": "21"}, "passed"),
        (PIPES, "table", {"cell": "11", "top_heading": "rags", "left_heading": "1891"}, "passed"),
        (PIPES, "table", {"cell": "11", "top_heading": "paper"}, "failed"),
        (PIPES, "table", {"cell": "11", "down": "12"}, "failed"),
        (PIPES, "table", {"cell": "99"}, "failed"),
        (PIPES, "table", {"cell": "11", "ignore_markdown_tables": True}, "failed"),
        (PIPES + HTML, "table", {"cell": "11", "left": "1890", "ignore_markdown_tables": True}, "passed"),
        (HTML, "table", {"cell": "11", "left": "1890", "up": "10", "right": "21"}, "passed"),
        (HTML, "table", {"cell": "21", "top_heading": "tons", "left_heading": "1890"}, "passed"),
        (HTML, "table", {"cell": "21", "top_heading": "paper"}, "passed"),
        (HTML, "table", {"cell": "20", "left": "1890"}, "failed"),
        (PAGE, "table", {"cell": "11"}, "failed"),
        (PAGE, "baseline", {}, "passed"),
        ("...", "baseline", {}, "failed"),
        ("word " + "ab" * 40, "baseline", {}, "failed"),
        (PAGE + "漢", "baseline", {}, "failed"),
        (PAGE + "漢", "baseline", {"check_disallowed_characters": False}, "passed"),
        ("![a picture](x.png)", "baseline", {"max_length": 0}, "failed"),
        ("![a picture](x.png)", "baseline", {"max_length": 0, "max_length_skips_image_alt_tags": True}, "passed"),
        (PAGE, "math", {"math": "x^2"}, "not supported"),
        (PAGE, "footnote", {"marker": "1"}, "not supported"),
    ],
)
def test_page_tests(page: str, kind: str, fields: dict[str, object], outcome: str) -> None:
    (result,) = run_tests([page_test(kind, **fields)], Transcripts("run", {"a": {1: Transcript(page)}}))
    assert result.outcome == outcome, result.why
    assert bool(result.why) == (outcome != "passed")


def test_fuzzy_starts_are_those_of_a_naive_search() -> None:
    source = random.Random(10)
    for _ in range(60):
        text, wanted = random_text(source, "abc", 25), random_text(source, "abc", 6)
        most = source.randint(0, 2)
        naive = {
            start
            for start in range(len(text) + 1)
            if any(count_errors(wanted, text[start:end]).count <= most for end in range(start, len(text) + 1))
        }
        assert set(starts(wanted, text, most).tolist()) == naive, (text, wanted, most)


def test_a_page_without_output_fails_its_tests_and_is_listed() -> None:
    tests = [page_test("present", text="x"), page_test("math", math="x"), page_test("absent", text="y")]
    results = run_tests(tests, Transcripts("run", {"other": {1: Transcript("x")}}))
    assert [result.outcome for result in results] == ["unread", "not supported", "unread"]
    outcomes = summarise(results)["cases"]
    assert score_of(outcomes) == 0.0
    assert score_of({"not supported": 3}) is None


def test_the_benchmarks_folders_need_not_be_the_runs() -> None:
    test = PageTest("multi", "id", "multi_column/a_pg3.pdf", 1, "present", {"text": "here"})
    for name in ("multi_column/a_pg3.pdf", "multi_column/a_pg3", "pdfs/multi_column/a_pg3.pdf", "a_pg3"):
        assert run_tests([test], Transcripts("run", {name: {1: Transcript("here")}}))[0].outcome == "passed", name
    twice = Transcripts("run", {"x/a_pg3": {1: Transcript("here")}, "y/a_pg3": {1: Transcript("here")}})
    assert run_tests([test], twice)[0].outcome == "unread"


def test_test_files_are_read_by_category_and_bad_lines_told(tmp_path: Path) -> None:
    fields = {"pdf": "a.pdf", "page": 1, "id": "one", "type": "present", "text": "x", "max_diffs": 0, "checked": "verified"}
    (tmp_path / "old_scans.jsonl").write_text(json.dumps(fields) + "\n\n")
    (test,) = read_tests(tmp_path)
    assert (test.source, test.document, test.page, test.text("text")) == ("old_scans", "a.pdf", 1, "x")
    for wrong, says in (
        ({"text": " "}, "expected text in text"),
        ({"pdf": None, "page": "x"}, "page"),
        ({"type": "order"}, "before"),
    ):
        (tmp_path / "bad.jsonl").write_text(json.dumps(fields | wrong))
        with pytest.raises(InputError, match=rf"bad\.jsonl:1: .*{says}"):
            read_tests(tmp_path / "bad.jsonl")


def test_text_is_normalised_for_tests() -> None:
    assert normalise("**a** <b>b</b><br/>__c__  *d*\n“e”—‘f’ e\u0301") == "a b c d \"e\"-'f' é"


def test_empty_neighbours_and_nested_and_unclosed_tables() -> None:
    (pipes,) = find_tables("| a | | |\n|---|---|---|\n| 1 | 2 | |\n")
    assert pipes.beside((0, 0), 0, 1) == ""
    assert pipes.beside((1, 2), 0, 1) is None
    outer, inner = find_tables("<table><tr><td>o<table><tr><td>i</td></tr></table></td><td>p")
    assert inner.cells == {(0, 0): "i"}
    assert outer.cells[0, 1] == "p"
    (huge,) = find_tables('<table><tr><td colspan="99999999">x</td></tr></table>')
    assert len(huge.cells) == 1000


# The command


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Truth, two runs of it, and tests."""
    (tmp_path / "truth").mkdir()
    (tmp_path / "truth/a.pdf.txt").write_text("modern corn\n\fsecond page here\n\f\n\fnever read\n")
    for name, texts in {
        "one": ["modem corn", "here second page", ""],
        "two": ["modern corn", "second page", "invented"],
    }.items():
        (tmp_path / name).mkdir()
        records = [
            {"document": "a.pdf", "page": page, "text": text, "status": "ok" if text else "blank", "mean_log_prob": -0.1 * page}
            for page, text in enumerate(texts, 1)
        ]
        (tmp_path / name / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tests = [
        {"pdf": "a.pdf", "page": 1, "id": "t1", "type": "present", "text": "modern corn"},
        {"pdf": "a.pdf", "page": 2, "id": "t2", "type": "math", "math": "x"},
        {"pdf": "b.pdf", "page": 1, "id": "t3", "type": "absent", "text": "x"},
    ]
    (tmp_path / "tests.jsonl").write_text("".join(json.dumps(test) + "\n" for test in tests))
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["pagemill", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    said = capsys.readouterr()
    return int(exit_.value.code or 0), said.out, said.err


def test_the_report_for_people(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("eval", "--truth", desk / "truth", "--tests", desk / "tests.jsonl", desk / "one", desk / "two")
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")
    assert "overlooked: nothing" in out
    assert "truth without a reading: 1 pages, in no figure: a.pdf page 4" in out
    assert "misread 1, in another order 2" in out
    assert "rn → m 1" in out
    assert f"== {desk / 'two'} against {desk / 'one'}, on 3 pages" in out
    assert "2 pages better, 1 worse" in out
    assert "not supported: 1 of type math" in out
    assert "unread: 1 pages, in no figure: b.pdf page 1" in out or "unread: 1 pages" in out


def test_the_report_for_machines(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--truth", desk / "truth", "--tests", desk / "tests.jsonl", "--normalise", "case", desk / "one", desk / "two")
    code, out, _ = call(monkeypatch, capsys, "eval", "--json", *arguments)
    report = json.loads(out)
    assert code == 0
    one, two = report["runs"]
    assert report["overlooked"] == ["case"]
    assert one["characters"]["errors"] == sum(page["characters"]["errors"] for page in one["pages"])
    assert two["invented_characters"] == 8
    assert one["unread"] == [["a.pdf", 4]]
    (comparison,) = report["comparisons"]
    assert (comparison["pages"], comparison["better"], comparison["worse"]) == (3, 2, 1)
    assert report["page_tests"][str(desk / "two")]["categories"]["tests"] == {
        "score": 0.5,
        "passed": 1,
        "not supported": 1,
        "unread": 1,
    }


def test_a_picture_is_drawn(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        picture = desk / f"picture.{suffix}"
        code, _, err = call(monkeypatch, capsys, "eval", "--truth", desk / "truth", desk / "one", "--plot", picture)
        assert (code, err) == (0, "")
        assert picture.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("one",), 3, "--truth DIR or --tests FILE"),
        (("--truth", "nowhere", "one"), 4, "expected a folder of truth files"),
        (("--truth", "truth", "nowhere"), 4, "found nothing there"),
        (("--truth", "truth", "--normalise", "spaces", "one"), 3, "'spaces'"),
        (("--truth", "truth", "one", "--plot", "x.gif"), 3, ".png"),
        (("--tests", "tests.jsonl", "one", "--plot", "x.png"), 3, "--truth"),
        (("--truth", "other", "one"), 4, "named after documents"),
        (("--truth", "truth", "one", "--tesseract", "documents"), 4, "expected the program tesseract"),
    ],
)
def test_wrong_questions_are_told(
    desk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    monkeypatch.chdir(desk)
    monkeypatch.setenv("PATH", str(desk))
    (desk / "other").mkdir()
    (desk / "other/z.txt").write_text("z")
    found, _, err = call(monkeypatch, capsys, "eval", *arguments)
    assert (found, says in err) == (code, True), err


def test_tesseract_reads_the_same_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tesseract"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfrom PIL import Image\n"
        "print(Image.open(sys.argv[1]).size, *sys.argv[2:], end='\\n\\f')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    run = read_with_tesseract(ROOT / "samples/documents", "deu")
    assert {name: len(pages) for name, pages in run.documents.items()}["mill.pdf"] == 7
    assert all(reading.text.endswith(") stdout -l deu") for pages in run.documents.values() for reading in pages.values())
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no data for deu')\n")
    with pytest.raises(InputError, match="no data for deu"):
        read_with_tesseract(ROOT / "samples/documents", "deu")


def test_comparison_is_on_the_pages_that_both_have() -> None:
    truth = {"a": {1: "aaaa", 2: "bbbb", 3: "cccc"}}
    first = measure(truth, Transcripts("1", {"a": {1: Transcript("aaaa"), 2: Transcript("xxxx")}}), as_they_are)
    other = measure(truth, Transcripts("2", {"a": {2: Transcript("bbbx"), 3: Transcript("")}}), as_they_are)
    found = compare(first, other)
    assert (found.pages, found.better, found.difference) == (1, 1, -0.75)
    assert (found.only_first, found.only_other) == ((("a", 1),), (("a", 3),))
