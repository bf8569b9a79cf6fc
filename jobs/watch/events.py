"""Events of the file system: they bring the next scan forward, and decide nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RETRY_EVENTS_SECONDS = 30.0

_log = logging.getLogger("pagemill")


@contextmanager
def file_events(roots: Sequence[Path], wanted: bool) -> Iterator[Callable[[float], bool]]:
    """Yields a wait: so many seconds, or until something may have changed, which it answers with True."""
    changed, stop = threading.Event(), threading.Event()

    def wait(seconds: float) -> bool:
        came = changed.wait(seconds)
        changed.clear()
        return came

    thread = threading.Thread(target=_listen, args=(roots, changed, stop), name="events", daemon=True)
    if wanted:
        thread.start()
    try:
        yield wait
    finally:
        stop.set()
        if wanted:
            thread.join(timeout=10.0)


def _listen(roots: Sequence[Path], changed: threading.Event, stop: threading.Event) -> None:
    """Sets ``changed`` after events.  Where there are none to be had, scans go on alone and this tries again later."""
    from watchfiles import watch

    is_logged = False
    while not stop.is_set():
        there = [root for root in roots if root.is_dir()]
        try:
            for _ in watch(*there, stop_event=stop, rust_timeout=1000, yield_on_timeout=True) if there else ():
                if _:
                    changed.set()
                if len(there) < sum(root.is_dir() for root in roots) or not all(root.is_dir() for root in there):
                    break  # a folder came back, or went: listen anew
        except Exception as error:  # whatever the system's notifier raises, scans do without it
            if not is_logged:
                _log.warning("no events of the file system (%s); scanning by the clock alone", error)
                is_logged = True
        stop.wait(RETRY_EVENTS_SECONDS if is_logged else 1.0)
