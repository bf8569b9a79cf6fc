"""Where a run can be killed with -9: named points of a page's life, each as a patch of the process that is to die."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
from collections.abc import Callable
from typing import Any

from pagemill.jobs.ledger.ledger import Ledger
from pagemill.jobs.ledger.store import PageStore
from pagemill.jobs.run.outputs import DocumentOutputs
from pagemill.pipeline.render.producer import Producer
from pagemill.vision.child import Child


def die() -> None:
    """Ends this process as kill -9 does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Countdown:
    """Says when a moment has come for the nth time."""

    def __init__(self, times: int) -> None:
        self._left = times

    def __call__(self) -> bool:
        self._left -= 1
        return self._left == 0


def after_claim(is_time: Countdown) -> None:
    _wrap(Ledger, "claim", after=lambda: die() if is_time() else None)


def in_the_record(is_time: Countdown) -> None:
    """Mid-write: the rows are in the transaction, which is not committed."""
    put = PageStore.put

    def dying_put(store: PageStore, pages: Any) -> None:
        if is_time():
            database: sqlite3.Connection = store._db
            database.set_trace_callback(lambda statement: die() if statement.lower() == "commit" else None)
        put(store, pages)

    PageStore.put = dying_put  # type: ignore[method-assign]


def before_finish(is_time: Countdown) -> None:
    _wrap(Ledger, "finish", before=lambda: die() if is_time() else None)


def after_finish(is_time: Countdown) -> None:
    _wrap(Ledger, "finish", after=lambda: die() if is_time() else None)


def before_the_outputs(is_time: Countdown) -> None:
    _wrap(DocumentOutputs, "settle", before=lambda: die() if is_time() else None)


def in_an_output(is_time: Countdown) -> None:
    """Mid-write: half of the file has reached the disk under its temporary name."""
    fsync = os.fsync

    def dying_fsync(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and is_time():
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()
        fsync(descriptor)

    os.fsync = dying_fsync


def after_rename(is_time: Countdown) -> None:
    replace = os.replace

    def dying_replace(*arguments: Any, **named: Any) -> None:
        replace(*arguments, **named)
        if is_time():
            die()

    os.replace = dying_replace


def in_the_renderer(is_time: Countdown) -> None:
    """The rendering child dies with a page in its hands; the run goes on."""
    ask = Child.ask

    def killing_ask(child: Child, request: object) -> None:
        ask(child, request)
        if is_time() and child._process is not None:
            child._process.kill()

    Child.ask = killing_ask  # type: ignore[method-assign]


def with_the_renderer(is_time: Countdown) -> None:
    """The run dies while pages are being rendered; its children must not outlive it."""
    _wrap(Producer, "_dispatch", after=lambda: die() if is_time() else None)


POINTS: dict[str, Callable[[Countdown], None]] = {
    "after claim": after_claim,
    "with the renderer": with_the_renderer,
    "in the renderer": in_the_renderer,
    "mid-write of records": in_the_record,
    "before finish": before_finish,
    "after finish": after_finish,
    "before the outputs": before_the_outputs,
    "mid-write of an output": in_an_output,
    "after rename": after_rename,
}


def _wrap(
    owner: type, name: str, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None
) -> None:
    call = getattr(owner, name)

    def wrapped(*arguments: Any, **named: Any) -> Any:
        before()
        result = call(*arguments, **named)
        after()
        return result

    setattr(owner, name, wrapped)
