"""``pagemill eval``: how well runs read, against a truth or by page tests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from pagemill.jobs.cli.options import split_names
from pagemill.jobs.errors import ConfigError, InputError
from pagemill.jobs.evaluate.comparing import Comparison, RunScores, compare_all, measure
from pagemill.jobs.evaluate.evaluate import Errors, PageScore
from pagemill.jobs.evaluate.intervals import LEVEL, Interval
from pagemill.jobs.evaluate.normalisers import normaliser
from pagemill.jobs.evaluate.page_tests import CheckedTest, read_tests, run_tests, score_of, summarise
from pagemill.jobs.evaluate.readings import Transcripts, read_run, read_truth
from pagemill.jobs.evaluate.tesseract import read_with_tesseract

MOST_LISTED = 20  # in the tables; --json has all


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure.  tesseract: the folder of the documents, to be read by it too."""

    truth: Annotated[
        Path | None,
        typer.Option(help="A folder of NAME.txt for each document, pages separated by form feeds.", show_default=False),
    ] = None
    tests: Annotated[
        Path | None, typer.Option(help="Page tests of olmOCR-bench: a .jsonl file or a folder of them.", show_default=False)
    ] = None
    normalise: Annotated[
        str,
        typer.Option(
            help="What to overlook, any of markdown,nfc,nfkc,ligatures,quotes,dashes,hyphens,accents,case,punctuation,"
            "lines,whitespace.  [default: nothing]",
            show_default=False,
        ),
    ] = ""
    tesseract: Annotated[
        Path | None, typer.Option(help="A folder of the documents, for Tesseract to read beside.", show_default=False)
    ] = None
    languages: Annotated[str, typer.Option(help="Of Tesseract.")] = "eng"
    worst: Annotated[int, typer.Option(min=0, help="How many pages and confusions to list.")] = 10
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON, on standard output.")] = False
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture (.png, .svg, .pdf); needs the extra: plot.", show_default=False)
    ] = None

    @property
    def normalisations(self) -> tuple[str, ...]:
        """What to overlook, by name."""
        return tuple(split_names(self.normalise) or ())


def command(
    outputs: Annotated[
        list[Path],
        typer.Argument(metavar="OUTPUT...", help="Output folders or files; the first is what others are compared with."),
    ],
    wanted: Wanted,
) -> int:
    """``pagemill eval``: returns 0 whatever the figures are."""
    if wanted.truth is None and wanted.tests is None:
        raise ConfigError(["expected --truth DIR or --tests FILE, found neither; say what to measure the outputs against"])
    if wanted.plot is not None and wanted.truth is None:
        raise ConfigError(["--plot: expected --truth DIR too: page tests have no picture"])
    overlook = normaliser(wanted.normalisations)
    runs = [read_run(output) for output in outputs]
    if wanted.tesseract is not None:
        runs.append(read_with_tesseract(wanted.tesseract, wanted.languages))
    measured: list[RunScores] = []
    if wanted.truth is not None:
        read = read_truth(wanted.truth)
        measured = [measure(read, run, overlook) for run in runs]
        _refuse_strangers(measured, wanted.truth)
    tested = _test(runs, wanted.tests) if wanted.tests is not None else {}
    comparisons = compare_all(measured)
    if wanted.plot is not None:
        from pagemill.jobs.cli.plotting import draw  # matplotlib, where it is installed

        draw(measured, wanted.plot)
    if wanted.as_json:
        print(json.dumps(_record(measured, comparisons, tested, wanted), ensure_ascii=False, indent=1))
    else:
        _print_report(measured, comparisons, tested, wanted)
    return 0


def _refuse_strangers(measured: Sequence[RunScores], truth: Path) -> None:
    strangers = [run.name for run in measured if not run.scores]
    if strangers:
        raise InputError(
            f"expected outputs of the documents in {truth}, found none in {', '.join(strangers)}; "
            "truth files are named after documents: mill.pdf.txt or mill.txt for mill.pdf"
        )


def _test(runs: Sequence[Transcripts], path: Path) -> dict[str, list[CheckedTest]]:
    tests = read_tests(path)
    return {run.name: run_tests(tests, run) for run in runs}


def _print_report(
    measured: Sequence[RunScores], comparisons: Sequence[Comparison], tested: dict[str, list[CheckedTest]], wanted: Wanted
) -> None:
    if measured:
        overlooked = ", ".join(wanted.normalisations) or "nothing: every character counts, line breaks too"
        print(f"overlooked: {overlooked}\n")
        _print_rows(
            ("run", "pages", "CER", f"{LEVEL:.0f} %", "WER", f"{LEVEL:.0f} %", "mean page", "invented"), map(_row, measured)
        )
    for run in measured:
        print(f"\n== {run.name}")
        _print_run(run, wanted.worst)
    for comparison in comparisons:
        _print_comparison(comparison, wanted.worst)
    for name, results in tested.items():
        _print_tests(name, results)


def _row(run: RunScores) -> tuple[str, ...]:
    return (
        *(run.name, str(len(run.scores))),
        *(_percent(run.characters.rate), _span(run.characters_interval)),
        *(_percent(run.words.rate), _span(run.words_interval)),
        *(_percent(run.mean_page_rate), str(run.invented)),
    )


def _print_run(run: RunScores, worst: int) -> None:
    chars = run.characters
    print(f"characters: {_edits(chars)} of {chars.length}")
    print(f"words: {_edits(run.words)} of {run.words.length}; misread {run.misread_words}, in another order {run.moved_words}")
    statuses = Counter(score.status for score in run.scores if score.status)
    if statuses:
        print("pages: " + ", ".join(f"{count} {status}" for status, count in sorted(statuses.items())))
    _print_pages("truth without a reading", run.unread)
    _print_pages("readings without a truth", run.untold)
    pages = run.worst(worst)
    if pages:
        print("worst pages")
        _print_rows(("", "page", "errors", "CER", "misread", "moved", "status"), map(_page_row, pages))
    confused = run.confused(worst)
    if confused:
        print("confusions: " + ", ".join(f"{_shown(truth)} → {_shown(read)} {times}" for truth, read, times in confused))
    if run.calibration is not None:
        _print_calibration(run)


def _print_calibration(run: RunScores) -> None:
    found = run.calibration
    assert found is not None
    print(
        f"confidence: rank correlation of log-prob and CER {_number(found.rank_correlation)}, detects the worse half of pages "
        f"with {_number(found.miss_detection)} (0.5 is guessing), gap to accuracy {_percent(found.gap)}, {found.pages} pages"
    )
    rows = [(str(one.pages), _percent(one.confidence), _percent(one.accuracy)) for one in found.bins]
    _print_rows(("pages", "confidence", "accuracy"), rows)


def _print_comparison(comparison: Comparison, worst: int) -> None:
    print(f"\n== {comparison.other} against {comparison.first}, on {comparison.pages} pages that both have")
    print(
        f"CER {_signed(comparison.difference)} {_span(comparison.interval, signed=True)}; "
        f"{comparison.better} pages better, {comparison.worse} worse"
    )
    _print_pages(f"only in {comparison.first}", comparison.only_first)
    _print_pages(f"only in {comparison.other}", comparison.only_other)
    changes = comparison.changes[:worst]
    if changes:
        rows = [
            (one.document, str(one.page), str(one.before), str(one.after), f"{one.after - one.before:+d}") for one in changes
        ]
        _print_rows(("", "page", "errors", "then", "change"), rows)


def _print_tests(name: str, results: Sequence[CheckedTest]) -> None:
    print(f"\n== page tests: {name}")
    categories = summarise(results)
    rows = [_test_row(source, outcomes) for source, outcomes in sorted(categories.items())]
    _print_rows(("category", "score", "passed", "failed", "unread", "not supported"), rows)
    scores = [score for outcomes in categories.values() if (score := score_of(outcomes)) is not None]
    if scores:
        print(f"mean of {len(scores)} categories: {_percent(sum(scores) / len(scores))}")
    unchecked = Counter(result.test.type for result in results if result.outcome == "not supported")
    if unchecked:
        print("not supported: " + ", ".join(f"{count} of type {kind}" for kind, count in sorted(unchecked.items())))
    _print_pages(
        "unread", sorted({(result.test.document, result.test.page) for result in results if result.outcome == "unread"})
    )
    failed = [result for result in results if result.outcome == "failed"]
    for result in failed[:MOST_LISTED]:
        print(f"  {result.test.id} ({result.test.document}, page {result.test.page}): {result.why}")
    if len(failed) > MOST_LISTED:
        print(f"  ... and {len(failed) - MOST_LISTED} more failed; --json lists all")


def _test_row(source: str, outcomes: Counter[str]) -> tuple[str, ...]:
    counts = (str(outcomes[name]) for name in ("passed", "failed", "unread", "not supported"))
    return (source, _percent(score_of(outcomes)), *counts)


def _page_row(score: PageScore) -> tuple[str, ...]:
    errors = score.characters
    return (
        *(score.document, str(score.page), str(errors.count), _percent(errors.rate)),
        *(str(score.misread_words), str(score.moved_words), score.status),
    )


def _print_pages(title: str, pages: Sequence[tuple[str, int]]) -> None:
    """Lists pages that are in no figure."""
    if pages:
        shown = ", ".join(f"{document} page {page}" for document, page in pages[:MOST_LISTED])
        more = f" and {len(pages) - MOST_LISTED} more (--json lists all)" if len(pages) > MOST_LISTED else ""
        print(f"{title}: {len(pages)} pages, in no figure: {shown}{more}")


def _print_rows(head: tuple[str, ...], rows: Sequence[tuple[str, ...]] | map[tuple[str, ...]]) -> None:
    table = [head, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _edits(errors: Errors) -> str:
    return f"{errors.count} errors ({errors.substitutions} wrong, {errors.deletions} missing, {errors.insertions} extra)"


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.2f} %"


def _signed(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:+.2f} %"


def _span(interval: Interval | None, *, signed: bool = False) -> str:
    if interval is None:
        return "-"
    low, high = (f"{100 * end:{'+' if signed else ''}.2f}" for end in interval)
    return f"{low} to {high}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _shown(piece: str) -> str:
    return repr(piece)[1:-1].replace(" ", "␣") if piece else "∅"


def _record(
    measured: Sequence[RunScores], comparisons: Sequence[Comparison], tested: dict[str, list[CheckedTest]], wanted: Wanted
) -> dict[str, object]:
    return {
        "overlooked": list(wanted.normalisations),
        "interval_percent": LEVEL,
        "runs": [_run_record(run) for run in measured],
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "page_tests": {name: _tests_record(results) for name, results in tested.items()},
    }


def _run_record(run: RunScores) -> dict[str, object]:
    return {
        "run": run.name,
        "characters": _errors_record(run.characters, run.characters_interval),
        "words": _errors_record(run.words, run.words_interval),
        "misread_words": run.misread_words,
        "moved_words": run.moved_words,
        "mean_page_cer": run.mean_page_rate,
        "invented_characters": run.invented,
        "unread": [list(page) for page in run.unread],
        "untold": [list(page) for page in run.untold],
        "calibration": None if run.calibration is None else asdict(run.calibration),
        "confusions": [list(confusion) for confusion in run.confused(1000)],
        "pages": [
            {
                "document": score.document,
                "page": score.page,
                "status": score.status,
                "characters": _errors_record(score.characters, None),
                "words": _errors_record(score.words, None),
                "misread_words": score.misread_words,
                "moved_words": score.moved_words,
                "mean_log_prob": score.mean_log_prob,
            }
            for score in run.scores
        ],
    }


def _errors_record(errors: Errors, interval: Interval | None) -> dict[str, object]:
    record: dict[str, object] = {"rate": errors.rate, "errors": errors.count, **asdict(errors)}
    return record if interval is None else {**record, "interval": list(interval)}


def _tests_record(results: Sequence[CheckedTest]) -> dict[str, object]:
    categories = summarise(results)
    return {
        "categories": {source: {"score": score_of(outcomes), **outcomes} for source, outcomes in sorted(categories.items())},
        "tests": [{"id": one.test.id, "type": one.test.type, "outcome": one.outcome, "why": one.why} for one in results],
    }
