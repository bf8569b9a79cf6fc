"""The child process's side: receive a request, answer it, again, until the parent is gone.

Started by ``child.Child``, which calls ``main``.  Imports neither numba nor the engine.  A second thread reads the
requests, so that the end of the connection stops even a child that hangs.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from PIL import Image

from pagemill.pipeline.child import MEMORY_EXIT, READY
from pagemill.pipeline.documents.documents import Document, InspectRequest, open_document
from pagemill.pipeline.errors import PageError, TooLarge, Unreadable
from pagemill.pipeline.page import PageImage, PageRef
from pagemill.pipeline.render.preprocess import RenderSettings

WATCH_SECONDS = 0.05
PROC_PIDTASKINFO, TASKINFO_BYTES = 4, 96  # <libproc.h>; the second of its 64-bit fields is the resident size


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """One page to render."""

    ref: PageRef
    settings: RenderSettings
    password: str | None = None


class Renderer:
    """Answers inspect and render requests; keeps the last document open, since its next page is likely to follow."""

    def __init__(self) -> None:
        self._opened: tuple[Path, str | None] | None = None
        self._document: Document | None = None

    def __call__(self, request: InspectRequest | RenderRequest) -> int | PageImage:
        """The page count, or the page."""
        if isinstance(request, InspectRequest):
            return self._open(request.path, request.password).pages
        started = time.perf_counter()
        document = self._open(request.ref.document, request.password)
        if request.ref.page >= document.pages:
            raise Unreadable(f"page {request.ref.page + 1} does not exist: found {document.pages} pages; the file has changed")
        page = document.render(request.ref.page, request.settings)
        image_hash = hashlib.sha256(repr(page.pixels.shape).encode() + b"\n")
        image_hash.update(page.pixels.data)
        seconds = time.perf_counter() - started
        return PageImage(
            request.ref, page.pixels, image_hash.hexdigest(), page.dpi, seconds, page.geometry, page.objects, page.mended
        )

    def _open(self, path: Path, password: str | None) -> Document:
        """The document, from the last request where it is the same."""
        if self._document is not None and self._opened == (path, password):
            return self._document
        if self._document is not None:
            self._document.close()
        self._document = None
        self._document, self._opened = open_document(path, password), (path, password)
        return self._document


def serve(connection: Connection, answer: Callable[[object], object]) -> None:
    """Answer requests for ever; the process ends when the connection does."""
    requests: queue.SimpleQueue[object] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    connection.send(READY)
    while True:
        connection.send(_reply(answer, requests.get()))


def _reply(answer: Callable[[object], object], request: object) -> object:
    """The answer, or the PageError that says why there is none."""
    try:
        return answer(request)
    except PageError as error:
        return error
    except MemoryError:
        return TooLarge("rendering needs more memory than its limit")
    except Exception as error:  # the libraries raise any type on hostile files
        return Unreadable(f"page cannot be rendered ({type(error).__name__}: {error})")


def _receive(connection: Connection, requests: queue.SimpleQueue[object]) -> None:
    """Pass requests on; stop the process, whatever it is doing, when the parent is gone."""
    try:
        while True:
            requests.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)


def _silence() -> None:
    """Send output nowhere: the libraries print warnings about every damaged file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _limit_memory(limit_bytes: int) -> None:
    """Hold this process to ``limit_bytes`` beyond what it has now, and keep it from writing core files."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + limit_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    else:  # macOS accepts the limit and ignores it
        threading.Thread(target=_watch_memory, args=(limit_bytes,), daemon=True).start()


def _watch_memory(limit_bytes: int) -> None:
    """End the process when its resident size exceeds the limit."""
    libproc = ctypes.CDLL("/usr/lib/libproc.dylib")
    info = (ctypes.c_uint64 * (TASKINFO_BYTES // 8))()
    while True:
        found = libproc.proc_pidinfo(os.getpid(), PROC_PIDTASKINFO, ctypes.c_uint64(0), info, TASKINFO_BYTES)
        if found == TASKINFO_BYTES and info[1] > limit_bytes:
            os._exit(MEMORY_EXIT)
        time.sleep(WATCH_SECONDS)


def main(answerer: str, descriptor: str, memory_bytes: str) -> None:
    """Serve the callable named ``answerer`` over the socket ``descriptor``."""
    Image.MAX_IMAGE_PIXELS = None  # preprocess.image_size has the limit
    module, _, name = answerer.partition(":")
    answer = getattr(importlib.import_module(module), name)()
    _limit_memory(int(memory_bytes))
    _silence()  # not before: an error above has to be seen
    serve(Connection(int(descriptor)), answer)
