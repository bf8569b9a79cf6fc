"""The child process's side of ``child.Child``: receive a request, answer it, again, until the parent is gone.

Imports neither numba nor the engine unless the answerer does.  A second thread reads the requests, so that the end of the
connection stops even a child that hangs.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import queue
import resource
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from pagemill.vision.child import MEMORY_EXIT, READY, ChildFailure

WATCH_SECONDS = 0.05
PROC_PIDTASKINFO, TASKINFO_BYTES = 4, 96  # <libproc.h>; the second of its 64-bit fields is the resident size


def serve(connection: Connection, answer: Callable[[object], object]) -> None:
    """Answer requests for ever; the process ends when the connection does."""
    requests: queue.SimpleQueue[object] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    connection.send(READY)
    while True:
        connection.send(_reply(answer, requests.get()))


def _reply(answer: Callable[[object], object], request: object) -> object:
    """The answer, or why there is none."""
    try:
        return answer(request)
    except MemoryError:
        return ChildFailure("memory", "more memory is needed than the limit")
    except Exception as error:  # libraries raise any type on hostile input
        return ChildFailure("error", f"{type(error).__name__}: {error}")


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
    module, _, name = answerer.partition(":")
    answer = getattr(importlib.import_module(module), name)()
    _limit_memory(int(memory_bytes))
    _silence()  # not before: an error above has to be seen
    serve(Connection(int(descriptor)), answer)
