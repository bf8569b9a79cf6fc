"""How a page is read: settings that may differ from page to page."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagemill.decoder import Sampling
from pagemill.pipeline.reading.recovery import Recovery
from pagemill.vision import MULTIPLE_PX


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How pages are read.

    max_tokens: of one page's answer.  prompt_text: what follows the page in the prompt; most models want none.
    multiple_px: what image sides are rounded up to.  skip_blank: whether a page without ink is not shown to the model.
    skip_bleed: whether that is so of a page with nothing but what shines through from its other side.
    """

    max_tokens: int = 4096
    sampling: Sampling = field(default_factory=Sampling)
    prompt_text: str = ""
    multiple_px: int = MULTIPLE_PX
    skip_blank: bool = True
    skip_bleed: bool = True
    recovery: Recovery = field(default_factory=Recovery)
