"""One child process that answers one request at a time, and may crash, hang or swell without harm to its parent.

Not a process pool: one crash breaks a pool and loses every task in it.  The child is a fresh interpreter (no fork, and
unlike multiprocessing's spawn it never imports the program that started it), so it starts fast and small.  It ends by
itself when its parent does, even by kill -9: it sees the end of the connection.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

START_SECONDS = 60.0
CLOSE_SECONDS = 2.0
ANSWERS_PER_PROCESS = 500  # then a fresh one: bounds what the libraries leak
MEMORY_EXIT = 86  # exit code of a child that stopped itself over its memory limit
READY = "ready"

_MAIN = "import sys; from pagemill.vision.child_main import main; main(*sys.argv[1:])"

FailureKind = Literal["crashed", "timed out", "memory", "error"]


@dataclass(frozen=True, slots=True)
class ChildFailure:
    """Why a request has no answer.  memory: it needs more than the limit.  error: the answerer raised an exception."""

    kind: FailureKind
    message: str


class Child:
    """A process that is started when it is asked, replaced when it dies, and asked again where the fault may not be the page's.

    answerer: "module:name" of a callable without arguments whose result maps a request to a reply; both are picklable.
    timeout_seconds, memory_bytes: of one request.
    """

    def __init__(self, answerer: str, *, timeout_seconds: float, memory_bytes: int) -> None:
        self._answerer = answerer
        self._timeout_seconds = timeout_seconds
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._request: object | None = None
        self._ready = False
        self._deadline = 0.0
        self._answers = 0

    @property
    def connection(self) -> Connection | None:
        """What to wait on while a request is unanswered."""
        return self._connection if self._request is not None else None

    @property
    def seconds_left(self) -> float:
        """Until the request in flight times out."""
        return max(0.0, self._deadline - time.monotonic())

    def start(self) -> None:
        """Start the process now, so that the first request does not wait for it."""
        if self._process is not None:
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, self._answerer, str(theirs.fileno()), str(self._memory_bytes)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(),
                start_new_session=True,  # Ctrl-C is the parent's to handle
            )
        self._connection = Connection(ours.detach())
        self._ready, self._answers = False, 0
        self._deadline = time.monotonic() + START_SECONDS

    def ask(self, request: object) -> None:
        """Send a request; one at a time."""
        assert self._request is None
        if self._answers >= ANSWERS_PER_PROCESS:
            self._stop()
        self._request = request
        self._send()

    def reply(self) -> object | None:
        """The answer to the request in flight, a ChildFailure if the child died or ran out of time, None while it works."""
        assert self._connection is not None
        try:
            while self._connection.poll(0):
                message = self._connection.recv()
                if self._ready:
                    return self._answered(message)
                self._ready = True
                self._deadline = time.monotonic() + self._timeout_seconds
        except (EOFError, OSError):
            return self._died()
        if time.monotonic() < self._deadline:
            return None
        was_ready = self._ready
        self._stop(kill=True)
        if not was_ready:
            return self._failed("crashed", f"the child process did not start within {START_SECONDS:g} s")
        return self._failed("timed out", f"not finished within {self._timeout_seconds:g} s and stopped")

    def wait(self) -> object:
        """The answer, however long it takes."""
        while (reply := self.reply()) is None:
            assert self._connection is not None
            self._connection.poll(self.seconds_left)
        return reply

    def close(self) -> None:
        """End the process; a request in flight is dropped."""
        self._request = None
        self._stop()

    def _send(self) -> None:
        """Send the request, to a fresh process where the present one died idle."""
        for _ in range(2):
            self.start()
            assert self._connection is not None
            try:
                self._connection.send(self._request)
            except OSError:
                self._stop()
                continue
            if self._ready:
                self._deadline = time.monotonic() + self._timeout_seconds
            return

    def _answered(self, reply: object) -> object:
        self._request = None
        self._answers += 1
        return reply

    def _died(self) -> object | None:
        """Explain the death, or ask a fresh process if this one had answered before: an earlier request may have harmed it."""
        assert self._process is not None
        had_answered = self._answers > 0
        code = self._stop()
        if had_answered:
            self._send()
            return None
        return self._failed(*_cause_of_death(code, self._memory_bytes))

    def _failed(self, kind: FailureKind, message: str) -> ChildFailure:
        self._request = None
        return ChildFailure(kind, message)

    def _stop(self, *, kill: bool = False) -> int:
        """End the process if there is one, and reap it.  Returns its exit code, 0 where there was none."""
        if self._process is None or self._connection is None:
            return 0
        if kill:
            self._process.kill()
        self._connection.close()  # a living child ends at once when it sees this
        try:
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process, self._connection = None, None
        return code


def _cause_of_death(code: int, memory_bytes: int) -> tuple[FailureKind, str]:
    limit = f"{memory_bytes / 2**30:.1f} GiB"
    if code == MEMORY_EXIT:
        return "memory", f"more than {limit} of memory is needed"
    if code < 0:
        name = signal.Signals(-code).name
        return "crashed", f"the child process died by {name}: its input is damaged, or needs more than {limit} of memory"
    return "crashed", f"the child process ended with exit code {code}"


def _environment() -> dict[str, str]:
    """This process's environment with its import path, and one thread per numeric library."""
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
