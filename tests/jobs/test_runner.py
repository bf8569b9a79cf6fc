"""The runner, driven step by step with fakes and a clock of its own."""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import pytest

from pagemill.jobs.errors import DiskFull
from pagemill.jobs.inputs.discover import Document, Found
from pagemill.jobs.ledger.ledger import Ledger
from pagemill.jobs.ledger.owner import this_process
from pagemill.jobs.run.runner import Rules, Runner, Stages
from pagemill.pipeline.errors import PageError, Replaced, Unreadable
from pagemill.pipeline.page import WHOLE_DOCUMENT, PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.renderer import RenderRequest
from pagemill.pipeline.transcriber import Transcriber
from tests.fakes import PROVENANCE, EchoReader, FakeOutputs, FakeRendering, Killed, MemoryStore, crashes


def document(name: str, pages: int, content: str | None = None, error: PageError | None = None) -> Document:
    return Document(Found(Path("/in", name), PurePath(name)), content or name, pages, error)


class Bench:
    """A job of fakes that can be run again and again, as a new process would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents = [document("a", 5), document("b", 1), document("c", 7)]
        self.store, self.outputs, self.reader = MemoryStore(), FakeOutputs(), EchoReader()
        self.errors: dict[int, list[PageError]] = {}
        self.renderings: list[FakeRendering] = []
        self.ledgers: list[Ledger] = []
        self.check: Callable[[RenderRequest], None] = lambda request: None
        self.rules = Rules("m", "s", 2, 100.0, retry=(), full_disk_wait_seconds=0.0, provenance=PROVENANCE)

    def runner(self, worker: str = "me", now: float = 0.0) -> Runner:
        ledger = Ledger(self.folder / "ledger.sqlite3", dataclasses.replace(this_process(), worker=worker))
        self.ledgers.append(ledger)
        ledger.begin(self.rules.model_hash, self.rules.settings_hash, "{}", now)
        stages = Stages(self.request, self.pages(self.reader), self.store, self.outputs)
        runner = Runner(self.documents, ledger, stages, self.rules)
        runner.start(now)
        return runner

    def pages(self, reader: EchoReader) -> Transcriber:
        self.renderings.append(FakeRendering(self.errors))
        return Transcriber(self.renderings[-1], reader, lambda request: self.check(request))

    def request(self, document: Document, ref: PageRef) -> RenderRequest:
        return RenderRequest(ref, document.found.path, RenderSettings())

    def run(self, now: float = 0.0, worker: str = "me") -> Runner:
        runner = self.runner(worker, now)
        drive(runner, now)
        return runner

    def statuses(self, runner: Runner) -> dict[tuple[str, int], str]:
        return {(ref.document_hash, ref.page): outcome.status for ref, outcome in runner.outcomes().items()}


def drive(runner: Runner, now: float = 0.0, steps: int = 1000) -> float:
    """Step until the job is done, a second a step; returns the time after it."""
    for _ in range(steps):
        if not runner.step(now):
            return now
        now += 1
    raise AssertionError(f"not done after {steps} steps")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for ledger in bench.ledgers:
        ledger.close()


def test_every_page_is_read_once_and_ends(bench: Bench) -> None:
    runner = bench.run()
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])
    assert list(bench.statuses(runner)) == [("a", page) for page in range(5)] + [("b", 0)] + [("c", page) for page in range(7)]
    assert set(bench.statuses(runner).values()) == {"ok"}


def test_batch_is_kept_full_across_documents(bench: Bench) -> None:
    bench.documents = [document(f"d{index}", 1) for index in range(12)]
    bench.run()
    assert bench.reader.most_at_once == bench.reader.slots


def test_pages_are_submitted_in_order(bench: Bench) -> None:
    bench.run()
    assert bench.reader.seen == [*range(5), 0, *range(7)]


def test_outputs_are_settled_when_a_document_is_complete_and_not_before(bench: Bench) -> None:
    bench.documents = [document("a", 9)]
    runner = bench.runner()
    now = 0.0
    while runner.step(now):
        assert bool(bench.outputs.settled) == (len(bench.store.writes) == 9)
        now += 1
    assert set(bench.outputs.settled) == {"a"}


def test_second_run_does_only_what_is_missing(bench: Bench) -> None:
    bench.run()
    bench.documents.append(document("d", 2))
    bench.store.writes.clear()
    runner = bench.run()
    assert bench.store.writes == [0, 1]
    assert (runner.snapshot(0).skipped, runner.snapshot(0).done, runner.snapshot(0).left) == (13, 2, 0)


def test_interrupted_run_gives_its_pages_back(bench: Bench) -> None:
    runner = bench.runner()
    for now in range(3):
        runner.step(now)
    assert runner.release(3) > 0
    assert bench.renderings[-1].waiting == []
    assert bench.reader.room == bench.reader.slots
    bench.reader = EchoReader()
    again = bench.run(now=4, worker="another")
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])
    assert len(bench.statuses(again)) == 13


def test_document_that_does_not_open_is_one_failed_page_among_good_ones(bench: Bench) -> None:
    bench.documents.insert(1, document("bad", 1, error=Unreadable("not a document")))
    runner = bench.run()
    assert Counter(bench.statuses(runner).values()) == Counter(ok=13, failed=1)
    assert bench.store.texts["bad", WHOLE_DOCUMENT].reason == "not a document"
    assert runner.snapshot(0).failed == 1
    assert bench.statuses(runner)["bad", WHOLE_DOCUMENT] == "failed"


def test_document_that_opens_at_last_is_read_without_asking_for_a_retry(bench: Bench) -> None:
    bench.documents = [document("x", 1, error=Unreadable("needs a password"))]
    bench.run()
    bench.documents = [document("x", 3)]
    assert bench.statuses(bench.run()) == {("x", page): "ok" for page in range(3)}


def test_failed_page_fails_alone_and_stays_failed_until_asked_for(bench: Bench) -> None:
    bench.documents = [document("a", 4)]
    bench.errors = {2: [Unreadable("page 3 cannot be loaded")]}
    expected = {("a", 0): "ok", ("a", 1): "ok", ("a", 2): "failed", ("a", 3): "ok"}
    assert bench.statuses(bench.run()) == expected
    assert bench.statuses(bench.run()) == expected
    bench.rules = dataclasses.replace(bench.rules, retry=("failed",))
    assert set(bench.statuses(bench.run()).values()) == {"ok"}


@pytest.mark.parametrize(("times", "status"), [(1, "ok"), (2, "failed")])
def test_crashed_page_is_tried_again_as_often_as_allowed(bench: Bench, times: int, status: str) -> None:
    bench.documents = [document("a", 9)]
    bench.errors = {4: crashes(times)}
    assert bench.statuses(bench.run())["a", 4] == status


def test_page_that_breaks_the_reader_fails_alone_and_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    def submit(image: PageImage, settings: object = None, submit: Callable[..., PageRef] = bench.reader.submit) -> PageRef:
        if image.ref.page == 3:
            raise ValueError("a bug")
        return submit(image)

    bench.reader.submit = submit  # type: ignore[method-assign]
    bench.documents = [document("a", 5)]
    with caplog.at_level(logging.ERROR, "pagemill"):
        statuses = bench.statuses(bench.run())
    assert Counter(statuses.values()) == Counter(ok=4, failed=1)
    assert "ValueError: a bug" in bench.store.texts["a", 3].reason
    assert caplog.records[0].exc_info


def test_statuses_of_the_reader_are_kept(bench: Bench) -> None:
    bench.documents = [document("a", 4)]
    bench.reader = EchoReader(statuses={0: "looped", 1: "truncated", 2: "blank"})
    assert list(bench.statuses(bench.run()).values()) == ["looped", "truncated", "blank", "ok"]


def test_two_names_of_one_content_are_read_once_and_written_twice(bench: Bench) -> None:
    bench.documents = [document("a", 3, "same"), document("copy of a", 3, "same")]
    bench.run()
    assert sorted(bench.store.writes) == [0, 1, 2]
    assert set(bench.outputs.settled) == {"a", "copy of a"}


def test_record_that_has_gone_is_made_again(bench: Bench) -> None:
    bench.run()
    bench.store.writes.clear()
    del bench.store.texts["c", 4]
    bench.run()
    assert bench.store.writes == [4]


def test_full_disk_that_may_not_be_waited_for_ends_the_run_and_loses_nothing(bench: Bench) -> None:
    bench.store.space = 6
    runner = bench.runner()
    with pytest.raises(DiskFull, match="disk is full"):
        drive(runner)
    runner.release(1)
    assert len(bench.statuses(runner)) == len(bench.store.writes) <= 6
    bench.store.space, bench.reader = 1 << 30, EchoReader()
    assert len(bench.statuses(bench.run(now=2))) == 13
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])


def test_full_disk_pauses_the_run_which_goes_on_by_itself(bench: Bench) -> None:
    bench.rules = dataclasses.replace(bench.rules, full_disk_wait_seconds=1000.0)
    bench.store.space = 6
    runner = bench.runner()
    now, pauses = 0.0, []
    while runner.step(now):
        if runner.pause is not None and runner.pause not in pauses:
            pauses.append(runner.pause)
        if len(pauses) == 4:
            bench.store.space = 1 << 30
        now += 1
    assert [pause.seconds for pause in pauses] == [1, 2, 4, 8]
    assert len({(pause.why, pause.since) for pause in pauses}) == 1
    assert runner.pause is None
    assert set(bench.statuses(runner).values()) == {"ok"}
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])


def test_disk_that_stays_full_ends_the_run_at_last(bench: Bench) -> None:
    bench.rules = dataclasses.replace(bench.rules, full_disk_wait_seconds=30.0)
    bench.store.space = 6
    runner = bench.runner()
    with pytest.raises(DiskFull):
        drive(runner)
    assert runner.pause is not None
    assert runner.pause.since + 15 <= runner.pause.until


def test_full_ledger_disk_loses_no_page_that_asked_for_another_attempt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.rules = dataclasses.replace(bench.rules, full_disk_wait_seconds=1000.0)
    bench.errors = {2: crashes(1)}
    runner = bench.runner()
    ledger = bench.ledgers[-1]
    failing = {"claim": 2, "give_back": 3, "finish": 2, "renew": 2}

    def sometimes(name: str) -> Callable[..., object]:
        call = getattr(ledger, name)

        def called(*arguments: object) -> object:
            failing[name] -= 1
            if failing[name] >= 0:
                raise DiskFull("the ledger's disk is full")
            return call(*arguments)

        return called

    for name in failing:
        monkeypatch.setattr(ledger, name, sometimes(name))
    drive(runner)
    assert len(bench.statuses(runner)) == 13
    assert set(bench.statuses(runner).values()) == {"ok"}
    assert all(left < 0 for left in failing.values())


def test_pages_that_end_together_are_made_durable_together(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    put = bench.store.put
    monkeypatch.setattr(bench.store, "put", lambda pages: (calls.append(len(pages)), put(pages)))
    bench.documents, bench.reader = [document("a", 500)], EchoReader(slots=16)
    runner = bench.runner()
    while runner.step(0.0):  # no time passes: only their number and the end of all work make pages durable
        assert len(bench.outputs.settled) == 0
    assert sum(calls) == 500
    assert max(calls) < 64 + 16
    assert len(calls) <= 500 // 64 + 1


def test_interrupted_run_finishes_what_has_ended(bench: Bench) -> None:
    runner = bench.runner()
    while not bench.reader.seen or not runner.snapshot(0).writing:
        runner.step(0.0)
    waiting = runner.snapshot(0).writing
    assert bench.store.writes == []
    runner.release(0.0)
    assert len(bench.statuses(runner)) == len(bench.store.writes) == waiting


def test_page_of_a_file_that_was_replaced_fails_and_is_not_mixed(bench: Bench) -> None:
    def check(request: RenderRequest) -> None:
        if (request.ref.document_hash, request.ref.page) == ("a", 3):
            raise Replaced("the file was changed or replaced during the run")

    bench.check = check
    statuses = bench.statuses(bench.run())
    assert Counter(statuses.values()) == Counter(ok=12, failed=1)
    assert "changed or replaced during the run" in bench.store.texts["a", 3].reason


def test_a_cancelled_page_comes_out_of_no_stage_and_the_others_go_on(bench: Bench) -> None:
    for steps in range(4):  # while it is rendered, while it waits for the reader, while it is read
        bench.reader = EchoReader(slots=2)
        pages = bench.pages(bench.reader)
        for number in range(3):
            pages.submit(bench.request(bench.documents[0], PageRef("a", number)))
        ended = [one for _ in range(steps) for one in pages.step()]
        pages.cancel(PageRef("a", 1))
        ended += [one for _ in range(20) for one in pages.step()]
        others = {one.ref.page for one in ended}
        assert others in ({0, 2}, {0, 1, 2} if steps > 1 else {0, 2})
        assert (pages.reading, pages.rendering, pages.room) == (0, 0, 4)


def test_page_of_a_killed_run_is_done_once_its_lease_ends(bench: Bench) -> None:
    runner = bench.runner("killed")
    runner.step(0)
    bench.reader = EchoReader()
    later = bench.runner("later", now=1)
    now = 1.0
    while not later.waits_for_others or now < 20:
        assert later.step(now)
        now += 1
    assert drive(later, now) >= 100.0
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])


def test_two_runners_share_a_job_without_doing_a_page_twice(bench: Bench) -> None:
    first, second = bench.runner("first"), bench.runner("second")
    second._stages = dataclasses.replace(second._stages, pages=bench.pages(EchoReader()))
    now, running = 0.0, True
    while running:
        running = any([first.step(now), second.step(now)])
        now += 1
    assert Counter(bench.store.writes) == Counter([*range(5), 0, *range(7)])
    assert first.snapshot(now).done
    assert second.snapshot(now).done


@pytest.mark.parametrize("moment", ["before the write", "after the write", "before the outputs"])
def test_run_killed_at_a_named_moment_leaves_nothing_undone(bench: Bench, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = bench.runner("killed")
    put, settle = bench.store.put, bench.outputs.settle

    def killing_put(pages: object) -> None:
        if len(bench.store.writes) >= 4 and moment == "before the write":
            raise Killed
        put(pages)  # type: ignore[arg-type]
        if len(bench.store.writes) >= 4 and moment == "after the write":
            raise Killed

    def killing_settle(*arguments: object) -> None:
        if moment == "before the outputs":
            raise Killed
        settle(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bench.store, "put", killing_put)
    monkeypatch.setattr(bench.outputs, "settle", killing_settle)
    with pytest.raises(Killed):
        drive(runner)
    monkeypatch.undo()
    bench.reader = EchoReader()
    again = bench.run(now=1000, worker="another")
    assert set(bench.statuses(again).values()) == {"ok"}
    assert len(bench.store.texts) == 13
    assert set(bench.outputs.settled) == {"a", "b", "c"}
