"""How people write inputs and places: addresses such as s3://bucket/folder, and lists of inputs as @file."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import urlsplit

WEB = frozenset({"http", "https"})
LIST_SIGN = "@"
_URL = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)


def is_url(text: str) -> bool:
    """Is this an address, and not the name of a file?"""
    return _URL.match(text) is not None


def protocol(url: str) -> str:
    """What stands before the "://"."""
    found = _URL.match(url)
    return found[1].lower() if found else ""


def shown_url(url: str) -> str:
    """An address without user, password and query, for people and records."""
    parts = urlsplit(url)
    if protocol(url) not in WEB:
        return url
    query = f"#{sha256(parts.query.encode()).hexdigest()[:8]}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"
