"""Renders pages in child processes, a few ahead of whoever reads them, and hands them over in the order of submission.

A page's crash, hang or memory blow-up becomes its PageFailure and touches no other page.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self

from pagemill.pipeline.documents.content import Content
from pagemill.pipeline.documents.documents import MEMORY_BYTES, RENDERER, error_of
from pagemill.pipeline.errors import PageError
from pagemill.pipeline.page import PageFailure, PageImage, PageRef
from pagemill.pipeline.render.renderer import RenderRequest
from pagemill.pipeline.trace import NO_TRACE, Trace
from pagemill.vision import Child, ChildFailure

PAGE_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class _Rendering:
    """A page that was submitted and not yet handed over."""

    request: RenderRequest
    result: PageImage | PageFailure | None = None
    is_cancelled: bool = False
    began: float = field(default_factory=time.perf_counter)


class Producer:
    """A stage from RenderRequest to PageImage or PageFailure.

    workers: child processes.  ahead: pages that may be under way, those that wait to be taken among them.
    timeout_seconds, memory_bytes: of one page.  answerer: the child's side, replaced in tests.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        ahead: int = 4,
        timeout_seconds: float = PAGE_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        answerer: str = RENDERER,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._ahead = max(ahead, 1)
        self._idle = [
            Child(answerer, timeout_seconds=timeout_seconds, memory_bytes=memory_bytes) for _ in range(max(workers, 1))
        ]
        self._trace, self._tracks = trace, {child: f"render {number + 1}" for number, child in enumerate(self._idle)}
        self._pages: deque[_Rendering] = deque()  # in the order of submission
        self._queued: deque[_Rendering] = deque()  # those of them that no child has yet
        self._busy: dict[Child, _Rendering] = {}
        self._opened: dict[Child, Content] = {}
        for child in self._idle:
            child.start()  # an interpreter takes half a second: before the first page is due

    @property
    def room(self) -> int:
        """How many more pages may be under way."""
        return max(0, self._ahead - len(self._pages))

    def submit(self, request: RenderRequest) -> PageRef:
        """Render a page, as soon as a child is free."""
        page = _Rendering(request)
        self._pages.append(page)
        self._queued.append(page)
        self._dispatch()
        return request.ref

    def step(self) -> list[PageImage | PageFailure]:
        """The pages that are ready, in order: one that is not holds back those behind it."""
        self._collect()
        self._dispatch()
        ready: list[PageImage | PageFailure] = []
        while self._pages and (self._pages[0].is_cancelled or self._pages[0].result is not None):
            page = self._pages.popleft()
            if page.result is not None and not page.is_cancelled:
                ready.append(page.result)
        return ready

    def wait(self, seconds: float) -> None:
        """Wait until a child answers or has run out of time, at most so many seconds."""
        connections = [child.connection for child in self._busy if child.connection is not None]
        if connections:
            wait(connections, min([seconds, *(child.seconds_left for child in self._busy)]))

    def cancel(self, ref: PageRef) -> None:
        """Drop a page; a child that is at it goes on, and its answer is dropped."""
        for page in self._pages:
            page.is_cancelled |= page.request.ref == ref
        self._queued = deque(page for page in self._queued if not page.is_cancelled)

    def render(self, requests: Iterable[RenderRequest]) -> Iterator[PageImage | PageFailure]:
        """All pages, in order; a request is taken from the iterable only when there is room for it."""
        waiting = iter(requests)
        is_exhausted = False
        while not is_exhausted or self._pages:
            while self.room and not is_exhausted:
                request = next(waiting, None)
                is_exhausted = request is None
                if request is not None:
                    self.submit(request)
            ready = self.step()
            yield from ready
            if not ready:
                self.wait(PAGE_SECONDS)

    def close(self) -> None:
        """End the child processes."""
        for child in [*self._idle, *self._busy]:
            child.close()
        for pages in (self._pages, self._queued, self._busy):
            pages.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _collect(self) -> None:
        """Take the answers that have arrived."""
        for child, page in list(self._busy.items()):
            reply = child.reply()
            if reply is not None:
                page.result = _result(page.request.ref, reply)
                self._trace.add(self._tracks[child], str(page.request.ref), page.began, time.perf_counter())
                del self._busy[child]
                self._idle.append(child)

    def _dispatch(self) -> None:
        """Give idle children the next pages, each preferably of the document that it has open."""
        while self._idle and self._queued:
            page = self._queued.popleft()
            content = page.request.content
            child = next((child for child in self._idle if self._opened.get(child) == content), self._idle[0])
            self._idle.remove(child)
            self._opened[child] = content
            self._busy[child] = page
            page.began = time.perf_counter()  # a trace shows the rendering, not the queue
            child.ask(page.request)


def _result(ref: PageRef, reply: object) -> PageImage | PageFailure:
    if isinstance(reply, ChildFailure):
        reply = error_of(reply)
    if isinstance(reply, PageError):
        return PageFailure(ref, reply)
    assert isinstance(reply, PageImage)
    return reply
