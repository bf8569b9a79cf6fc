"""Files at addresses, through fsspec: http(s) files; files, folders and globs of s3:// and other stores that list.

Credentials and endpoints of s3:// come from the usual AWS variables and files.  fsspec is loaded where an address is used.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from pagemill.jobs.errors import InputError
from pagemill.jobs.inputs.origins import copy_bounded
from pagemill.jobs.settings.addresses import WEB, protocol, shown_url
from pagemill.pipeline import PageError, Unreachable, Unreadable

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

LISTING = frozenset({"s3", "memory"})  # memory: fsspec's own, within one process
TRIES = 3
WAIT_SECONDS = 1.0  # before the second try; doubles
CONNECT_SECONDS, SILENCE_SECONDS = 30.0, 60.0
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file at an address: an ``Origin``."""

    url: str
    sleep: Callable[[float], None] = time.sleep

    @property
    def label(self) -> str:
        """The address without credentials; a query, which may hold some, is replaced by its hash."""
        return shown_url(self.url)

    @property
    def file_name(self) -> str:
        """The last part of its path."""
        path = urlsplit(self.url).path if protocol(self.url) in WEB else self.url
        return PurePosixPath(unquote(path)).name or "document"

    def fetch(self, target: BinaryIO, limit_bytes: int) -> None:
        """Download it, tried again where the network may be at fault.  Raises PageError."""
        for attempt in range(TRIES):
            if attempt:
                self.sleep(WAIT_SECONDS * 2 ** (attempt - 1))
                target.seek(0)
                target.truncate()
            try:
                self._download(target, limit_bytes)
                return
            except PageError:
                raise
            except Exception as error:  # each store raises types of its own
                refusal = _refusal(error)
                if refusal:
                    raise Unreadable(f"{refusal} {self.label}") from error
                cause, last = type(error).__name__, error
        raise Unreachable(f"{self.label} cannot be fetched after {TRIES} tries ({cause}); check the network") from last

    def _download(self, target: BinaryIO, limit_bytes: int) -> None:
        files, path = connect(self.url)
        is_web = protocol(self.url) in WEB
        size = None if is_web else files.info(path)["size"]  # over the web a short answer is an error by itself
        with files.open(path, "rb", **({"block_size": 0} if is_web else {})) as source:
            copied = copy_bounded(cast(BinaryIO, source), target, limit_bytes)
        if size is not None and copied != size:
            raise OSError(f"expected {size} bytes, found {copied}")


def find_remote(url: str, is_document: Callable[[str], bool]) -> list[tuple[Remote, PurePosixPath]]:
    """The files at an address, each with its place below it; none where there are none.  Raises InputError."""
    kind = protocol(url)
    if kind in WEB:  # nothing to list, and "?" begins a query
        one = Remote(url)
        return [(one, PurePosixPath(one.file_name))]
    if kind not in LISTING or "::" in url:
        known = ", ".join(f"{name}://" for name in sorted(WEB | LISTING - {"memory"}))
        raise InputError(f"{shown_url(url)}: expected an address with {known}, found {kind}://; fetch the files first")
    try:
        return _list(url, is_document)
    except InputError:
        raise
    except Exception as error:  # each store raises types of its own
        raise InputError(
            f"{shown_url(url)}: expected files, found {type(error).__name__}: {error}; check address, network and credentials"
        ) from error


def _refusal(error: BaseException) -> str:
    """What is wrong for good, "" where another try may end better.  fsspec says "not found" of any trouble on the web."""
    while error.__cause__ is not None and isinstance(error, FileNotFoundError):
        error = error.__cause__
    status = getattr(error, "status", None)
    if isinstance(error, PermissionError) or status in (401, 403):
        return "no permission: check the credentials of"
    return "check the address, nothing is at" if isinstance(error, FileNotFoundError) or status in (404, 410) else ""


def _list(url: str, is_document: Callable[[str], bool]) -> list[tuple[Remote, PurePosixPath]]:
    files, path = connect(url)
    if _MAGIC.search(path):
        base = PurePosixPath(path[: _MAGIC.search(path).start()] + "x").parent  # type: ignore[union-attr]
        paths = [one for one in files.glob(path) if files.isfile(one)]
    elif files.isfile(path):
        return [(Remote(files.unstrip_protocol(path)), PurePosixPath(PurePosixPath(path).name))]
    else:
        base = PurePosixPath(path)
        paths = files.find(path)
    found = []
    for one in sorted(map(str, paths)):
        place = PurePosixPath(one).relative_to(base)
        if is_document(place.name) and not any(part.startswith((".", "~$")) for part in place.parts):
            found.append((Remote(files.unstrip_protocol(one)), place))
    return found


def connect(url: str) -> tuple[AbstractFileSystem, str]:
    """The store and the path in it.  Raises InputError where its package is missing."""
    import fsspec

    options: dict[str, object] = {}
    if protocol(url) in WEB:
        import aiohttp

        options["client_kwargs"] = {
            "timeout": aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        }
    try:
        return cast("tuple[AbstractFileSystem, str]", fsspec.url_to_fs(url, **options))
    except ImportError as error:
        raise InputError(f"{shown_url(url)}: expected the package for {protocol(url)}://, found none: {error}") from error
