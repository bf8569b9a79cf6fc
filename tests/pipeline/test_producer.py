"""Pages arrive in order; a crash, a hang or a swelling child costs its page and nothing else; nobody outlives the parent.

The child's side is replaced by ``Answers`` below, which a child imports by name; its page number says what happens.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from pagemill.pipeline.errors import Crashed, PageError, TimedOut, TooLarge, Unreadable
from pagemill.pipeline.page import PageFailure, PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.producer import Producer
from pagemill.pipeline.render.renderer import RenderRequest
from tests.pipeline.inputs import page_object, page_tree, pdf_bytes, save

GOOD, SEGFAULT, EXIT, HANG, SWELL, SPIN, HARMED, RAISE = 0, 1, 2, 3, 4, 5, 6, 7

ANSWERS = """
    import ctypes, os, time
    import numpy as np
    from pagemill.pipeline.errors import Unreadable
    from pagemill.pipeline.page import PageImage

    class Answers:
        def __init__(self):
            self.served = 0

        def __call__(self, request):
            what = request.ref.page % 10
            print("x" * 100_000, flush=True)
            if what == 1: ctypes.string_at(0)
            if what == 2: os._exit(3)
            if what == 3: time.sleep(1000)
            if what == 4: np.ones(1 << 40, np.uint8)
            if what == 5:
                while True: pass
            if what == 6 and self.served: os.abort()
            if what == 7: raise RuntimeError("odd file")
            self.served += 1
            pixels = np.full((4, 4, 3), request.ref.page % 256, np.uint8)
            return PageImage(request.ref, pixels, str(os.getpid()), None, 0.0)
"""

Start = Callable[..., Producer]


def requests(*pages: int) -> list[RenderRequest]:
    return [RenderRequest(PageRef("hash", page, "a.pdf"), Path("/in/a.pdf"), RenderSettings()) for page in pages]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts producers whose children answer as ``ANSWERS`` says; closes them."""
    (tmp_path / "fake_answers.py").write_text(textwrap.dedent(ANSWERS))
    monkeypatch.syspath_prepend(str(tmp_path))
    started: list[Producer] = []

    def producer(**options: object) -> Producer:
        started.append(Producer(answerer="fake_answers:Answers", **options))  # type: ignore[arg-type]
        return started[-1]

    yield producer
    for one in started:
        one.close()


def render(producer: Producer, *pages: int) -> list[PageImage | PageFailure]:
    return list(producer.render(requests(*pages)))


def outcome(result: PageImage | PageFailure) -> int | type[PageError]:
    return type(result.error) if isinstance(result, PageFailure) else int(result.pixels[0, 0, 0])


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("page", "expected"),
    [(SEGFAULT, Crashed), (EXIT, Crashed), (SWELL, TooLarge), (RAISE, Unreadable), (HARMED, 6)],
    ids=["segfault", "exit", "swell", "exception", "harmed by an earlier page"],
)
def test_bad_page_fails_alone(start: Start, workers: int, page: int, expected: object) -> None:
    results = render(start(workers=workers), 10, page, 20, page, 30)
    assert [result.ref.page for result in results] == [10, page, 20, page, 30]
    assert [outcome(result) for result in results] == [10, expected, 20, expected, 30]


@pytest.mark.parametrize("page", [HANG, SPIN])
def test_hanging_page_is_stopped(start: Start, page: int) -> None:
    results = render(start(timeout_seconds=0.5), 10, page, 20)
    assert [outcome(result) for result in results] == [10, TimedOut, 20]
    assert isinstance(results[1], PageFailure)
    assert str(results[1].error) == "page cannot be rendered: not finished within 0.5 s and stopped"
    assert results[1].error.retry


def test_memory_limit_holds(start: Start) -> None:
    results = render(start(memory_bytes=64 << 20), SWELL)
    assert outcome(results[0]) is TooLarge


def test_one_child_serves_many_pages(start: Start) -> None:
    results = render(start(), *range(0, 100, 10))
    assert len({result.image_hash for result in results if isinstance(result, PageImage)}) == 1


def test_requests_are_taken_only_as_far_ahead_as_allowed(start: Start) -> None:
    taken: list[int] = []

    def endless() -> Iterator[RenderRequest]:
        for page in range(0, 10_000, 10):
            taken.append(page)
            yield requests(page)[0]

    rendered = start(ahead=3, workers=2).render(endless())
    assert not taken
    for delivered in range(1, 6):
        next(rendered)
        assert len(taken) <= delivered + 3


def test_step_does_not_wait_and_room_is_what_is_not_under_way(start: Start) -> None:
    producer = start(ahead=3)
    producer.submit(requests(HANG)[0])
    began = time.perf_counter()
    assert (producer.step(), producer.room) == ([], 2)
    assert time.perf_counter() - began < 0.2


def test_cancelled_pages_do_not_come_out_and_hold_nobody_back(start: Start) -> None:
    producer = start(ahead=4, timeout_seconds=0.5)
    for request in requests(HANG, 10, 20, 30):
        producer.submit(request)
    for cancelled in (HANG, 20):
        producer.cancel(PageRef("hash", cancelled))
    came: list[PageImage | PageFailure] = []
    while producer.room < 4:
        producer.wait(10.0)
        came += producer.step()
    assert [outcome(one) for one in came] == [10, 30]


def test_nothing_asked_is_nothing_rendered(start: Start) -> None:
    assert render(start()) == []


@pytest.mark.parametrize("page", [GOOD, HANG, SPIN])
def test_close_leaves_no_process(start: Start, page: int) -> None:
    before = set(psutil.Process().children())
    producer = start(workers=2)
    for request in requests(10, page):
        producer.submit(request)
    producer.wait(10.0)
    assert set(psutil.Process().children()) - before
    producer.close()
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize("page", [GOOD, HANG, SPIN])
def test_children_end_when_the_parent_is_killed(start: Start, tmp_path: Path, page: int) -> None:
    script = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from pathlib import Path
        from pagemill.pipeline.page import PageRef
        from pagemill.pipeline.render.preprocess import RenderSettings
        from pagemill.pipeline.render.producer import Producer
        from pagemill.pipeline.render.renderer import RenderRequest
        producer = Producer(answerer="fake_answers:Answers")
        requests = [RenderRequest(PageRef("h", page), Path("a"), RenderSettings()) for page in (10, {page})]
        pages = producer.render(requests)
        print(next(pages).image_hash, flush=True)
        if {page}: next(pages)
        sys.stdin.read()
    """
    paths = os.pathsep.join(path for path in sys.path if path)
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert parent.stdout is not None
    assert parent.stdin is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    gone, _ = psutil.wait_procs([child], timeout=10)
    assert gone or child.status() == psutil.STATUS_ZOMBIE  # whoever inherits it reaps it
    parent.stdout.close()
    parent.stdin.close()


def test_child_imports_no_engine() -> None:
    names = "numba", "llvmlite", "pagemill.decoder.engine", "pagemill.vision.encoder", "tokenizers"
    modules = "pagemill.vision.child_main, pagemill.pipeline.render.renderer"
    code = f"import sys, {modules}; print([name for name in {names!r} if name in sys.modules])"
    paths = os.pathsep.join(path for path in sys.path if path)
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert found.stdout.strip() == "[]"


def test_real_documents_come_through_in_order(tmp_path: Path) -> None:
    mixed = [
        (save(tmp_path, "a.pdf", pdf_bytes([(300, 400)] * 2)), 0),
        (save(tmp_path, "b.png", Image.new("RGB", (300, 200), "white")), 0),
        (save(tmp_path, "c.pdf", page_tree("3 0 R null", 2, page_object("0 0 300 300"))), 1),
        (tmp_path / "a.pdf", 1),
        (tmp_path / "a.pdf", 2),
        (tmp_path / "absent.pdf", 0),
        (save(tmp_path, "d.pdf", b""), 0),
        (tmp_path / "b.png", 0),
    ]
    requests = [RenderRequest(PageRef("h", page), path, RenderSettings()) for path, page in mixed]
    with Producer() as producer:
        results = list(producer.render(requests))
    shapes = [result.pixels.shape[:2] if isinstance(result, PageImage) else type(result.error) for result in results]
    assert shapes == [(1120, 840), (224, 308), Unreadable, (1120, 840), Unreadable, Unreadable, Unreadable, (224, 308)]
    read = [replace(one, content=one.content.read_bytes()) for one in requests[:4] if isinstance(one.content, Path)]
    with Producer() as producer:  # the same from bytes, without a file
        again = list(producer.render(read))
    assert [one.image_hash for one in again if isinstance(one, PageImage)] == [
        one.image_hash for one in results[:4] if isinstance(one, PageImage)
    ]
    assert isinstance(again[2], PageFailure)
    first, last = results[1], results[-1]
    assert isinstance(first, PageImage)
    assert isinstance(last, PageImage)
    assert first.image_hash == last.image_hash
    assert (first.pixels == 255).all()
    assert first.pixels.dtype == np.uint8
