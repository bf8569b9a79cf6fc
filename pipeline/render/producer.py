"""Renders pages in child processes, a few ahead of whoever reads them, and hands them over in the order of request.

A page's crash, hang or memory blow-up becomes its PageFailure and touches no other page.  Never more than ``ahead`` pages
are in flight or waiting, and a reference is taken from the iterable only when it is about to be rendered.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

from pagemill.pipeline.child import ANSWERER, Child
from pagemill.pipeline.documents.documents import MEMORY_BYTES
from pagemill.pipeline.errors import PageError
from pagemill.pipeline.page import PageFailure, PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings
from pagemill.pipeline.render.worker import RenderRequest
from pagemill.pipeline.trace import NO_TRACE, Trace

PAGE_SECONDS = 60.0


@dataclass(slots=True)
class _Page:
    """A page taken from the references and not yet handed over."""

    ref: PageRef
    result: PageImage | PageFailure | None = None
    began: float = field(default_factory=time.perf_counter)


class Producer:
    """Page images of ``refs``, in order.  Iterate it, or ``poll`` it from a loop that has other work; close it at the end.

    workers: child processes.  ahead: pages rendered beyond the one last handed over.  timeout_seconds, memory_bytes: of one
    page.  password_of: a document's password.  answerer: the child's side, replaced in tests.
    """

    def __init__(
        self,
        refs: Iterable[PageRef],
        settings: RenderSettings,
        *,
        workers: int = 1,
        ahead: int = 4,
        timeout_seconds: float = PAGE_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        password_of: Callable[[Path], str | None] = lambda document: None,
        answerer: str = ANSWERER,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._refs = iter(refs)
        self._password_of = password_of
        self._settings = settings
        self._ahead = max(ahead, 1)
        self._exhausted = False
        self._pages: deque[_Page] = deque()
        self._idle = [
            Child(answerer, timeout_seconds=timeout_seconds, memory_bytes=memory_bytes) for _ in range(max(workers, 1))
        ]
        self._trace, self._tracks = trace, {child: f"render {number + 1}" for number, child in enumerate(self._idle)}
        self._busy: dict[Child, _Page] = {}
        self._opened: dict[Child, Path] = {}
        for child in self._idle:
            child.start()

    @property
    def done(self) -> bool:
        """Has every page been handed over?"""
        return self._exhausted and not self._pages

    @property
    def pending(self) -> int:
        """How many pages are being rendered or wait to be taken."""
        return len(self._pages)

    def poll(self, timeout: float | None = 0.0) -> PageImage | PageFailure | None:
        """The next page in order; None when it is not ready within ``timeout`` seconds (None: for ever), or when done."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self._collect()
            self._dispatch()
            if self._pages and (result := self._pages[0].result) is not None:
                self._pages.popleft()
                self._dispatch()
                return result
            now = time.monotonic()
            if self.done or (end is not None and now >= end):
                return None
            limits = [child.seconds_left for child in self._busy] + ([] if end is None else [end - now])
            wait([child.connection for child in self._busy if child.connection is not None], min(limits))

    def close(self) -> None:
        """End the child processes; pages not handed over are dropped."""
        for child in [*self._idle, *self._busy]:
            child.close()
        self._exhausted = True
        self._pages.clear()
        self._busy.clear()

    def __iter__(self) -> Iterator[PageImage | PageFailure]:
        while (result := self.poll(None)) is not None:
            yield result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _collect(self) -> None:
        """Take the answers that have arrived."""
        for child, page in list(self._busy.items()):
            reply = child.reply()
            if reply is None:
                continue
            page.result = PageFailure(page.ref, reply) if isinstance(reply, PageError) else _image(reply)
            name = f"{page.ref.document.name}, page {page.ref.page + 1}"
            self._trace.add(self._tracks[child], name, page.began, time.perf_counter())
            del self._busy[child]
            self._idle.append(child)

    def _dispatch(self) -> None:
        """Give idle children the next pages, each preferably of the document that it has open."""
        while self._idle and len(self._pages) < self._ahead and not self._exhausted:
            ref = next(self._refs, None)
            if ref is None:
                self._exhausted = True
                return
            child = next((child for child in self._idle if self._opened.get(child) == ref.document), self._idle[0])
            self._idle.remove(child)
            self._opened[child] = ref.document
            self._busy[child] = _Page(ref)
            self._pages.append(self._busy[child])
            child.ask(RenderRequest(ref, self._settings, self._password_of(ref.document)))


def _image(reply: object) -> PageImage:
    assert isinstance(reply, PageImage)
    return reply
