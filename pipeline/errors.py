"""What can go wrong with one page or one document.  Every page that ends in one of these is ``failed(reason)``.

PageError                 .retry: may another attempt end differently?
├── Unreadable            not a document, damaged, truncated, empty, missing
│   └── PasswordNeeded    encrypted, and the password is missing or wrong
├── Replaced              the file is no longer the one that was looked at
├── TooLarge              more pixels, pages or memory than the limits allow
├── Degenerate            no area, or too thin for a letter
├── Crashed               the child process that worked on the page died
├── TimedOut              the child process took longer than the limit and was stopped
└── Unreachable           its server cannot be reached
"""

from __future__ import annotations

from typing import ClassVar


class PageError(Exception):
    """A page or document that cannot be used.  The message says what, expected, found and what to do.

    Messages hold no times, addresses or process numbers: they end in outputs, which must be the same in every run.
    """

    retry: ClassVar[bool] = False


class Unreadable(PageError):
    """The file, or this page of it, is missing, empty, damaged or not a document."""


class PasswordNeeded(Unreadable):
    """The document is encrypted and no password, or a wrong one, was given."""


class Replaced(PageError):
    """The file changed since it was hashed."""


class TooLarge(PageError):
    """The page or document exceeds a limit on pixels, pages or memory."""


class Degenerate(PageError):
    """The page has no area, or a side too short to hold a letter."""


class Crashed(PageError):
    """The child process died while it worked on the page; other pages are not affected."""

    retry: ClassVar[bool] = True


class TimedOut(PageError):
    """The child process did not finish the page within the limit and was stopped; a busy machine may be the cause."""

    retry: ClassVar[bool] = True


class Unreachable(PageError):
    """The document's server does not answer, or breaks off."""

    retry: ClassVar[bool] = True
