"""Who holds a lease, and whether that process still lives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Owner:
    """One run of one process.

    host: machine and pid namespace, within which pids mean something.  process_start: distinguishes a reused pid, "" where
    the system does not say.
    """

    worker: str
    host: str
    boot: str
    pid: int
    process_start: str


def this_process() -> Owner:
    """The owner that this process is."""
    host, boot, pid = _host(), _boot(), os.getpid()
    start = _process_start(pid)
    return Owner(f"{host}:{boot[:8]}:{pid}:{start or os.urandom(4).hex()}", host, boot, pid, start)


def is_dead(owner: Owner, here: Owner) -> bool:
    """True when ``owner`` surely cannot come back; False when it lives or cannot be seen from ``here``."""
    if owner.host != here.host:
        return False
    if owner.boot != here.boot:
        return True
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it lives, as another user
        pass
    return owner.process_start != _process_start(owner.pid)


def _host() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}{namespace and '/' + namespace}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        pass
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    return ""


def _process_start(pid: int) -> str:
    """Ticks from boot to the process's start; "" where /proc does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
