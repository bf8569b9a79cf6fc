"""Two judgements that keep a page's status truthful: is there ink at all, and has the model begun to repeat itself.

Both lean to one side on purpose.  A page with a single page number is not blank, and a ledger with sixty equal rows is not
a loop: what is wrongly kept costs seconds, what is wrongly dropped is lost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

TILE_PX = 32
PAPER_STRIDE = 4  # every fourth pixel, 64 of a tile, is enough for a median
CONTRAST_LEVELS = 24.0  # pencil is about 30 levels from its paper, paper texture below 10
NOISE_FACTOR = 6.0  # normal noise exceeds it once in 500 million pixels
MEDIAN_DEVIATION = 0.6745  # of normal noise, in standard deviations
BLACK_LEVELS = 40.0
BLEED_LEVELS = 56.0  # ink on this side is darker than its paper by 60 and more, a pencil by 30 and more
MIRRORED_RATIO = 4.0
FEWEST_LINES = 3
LINE_PX = 6
BLANK_MARK_PX = 8  # the smallest digit of a page number covers about 20 px at 130 dpi

LONGEST_PERIOD_TOKENS = 512
LOOP_TOKENS = 512
LOOP_REPEATS = 64
LOOP_REPEATED_TOKENS = 2048
LOOP_LONG_REPEATS = 6
ENDING_REPEATS = 8


@dataclass(frozen=True, slots=True)
class Ink:
    """What was measured on a page.

    mark_px: pixels that differ from their tile's paper by more than ``contrast``, in any channel, darker or lighter.
    paper_step: the largest difference between the papers of neighbouring tiles: a photograph or a border, not a gradient.
    contrast: the difference that counts, in levels of 255; it rises with the noise of the paper.
    strength: the difference that all but a hundredth of the marks stay below: 255 for black on white.
    paper: the page's median level.
    left_spread, right_spread: how far the ends of its lines stray from each other, pixels; 0 for fewer than three lines.
    """

    mark_px: int
    paper_step: float
    contrast: float
    strength: float = 0.0
    paper: float = 255.0
    left_spread: float = 0.0
    right_spread: float = 0.0

    @property
    def is_blank(self) -> bool:
        """True for plain paper of any colour, also noisy or shaded; false as soon as anything could be a letter."""
        return self.mark_px < BLANK_MARK_PX and self.paper_step < self.contrast

    @property
    def is_bleed(self) -> bool:
        """True for nothing but faint lines that are flush right and ragged left, as writing from left to right looks from
        behind.  Faint writing that may be this side's own, a pencil's for example, is not."""
        is_faint = self.mark_px >= BLANK_MARK_PX and self.strength < BLEED_LEVELS and self.paper_step < self.contrast
        return is_faint and self.left_spread > MIRRORED_RATIO * max(self.right_spread, 1.0)

    @property
    def measures(self) -> dict[str, float]:
        """By name, as reports give them."""
        return {name: round(float(value), 1) for name, value in asdict(self).items()}


def why_blank(ink: Ink, *, skip_bleed: bool = True) -> str:
    """Why a page is not worth reading, with what was measured; "" for one that is."""
    if ink.is_blank and ink.paper <= BLACK_LEVELS:
        return f"no ink on the page, which is black ({ink.mark_px} marked pixels, paper at {ink.paper:.0f} of 255)"
    if ink.is_blank:
        return f"no ink on the page ({ink.mark_px} marked pixels)"
    if skip_bleed and ink.is_bleed:
        return (
            f"only what shines through from the other side (marks of {ink.strength:.0f} levels of 255, line ends straying "
            f"{ink.left_spread:.0f} px left, {ink.right_spread:.0f} px right)"
        )
    return ""


def measure_ink(pixels: NDArray[np.uint8]) -> Ink:
    """Look for marks.  pixels: (height, width, 3) uint8.

    The paper of each 32 x 32 tile is its median, so that shading and yellowing are no ink; white letters on black are.
    """
    tiles = _tiles(pixels)  # (tile rows, tile columns, tile, tile, 3)
    sample = tiles[:, :, ::PAPER_STRIDE, ::PAPER_STRIDE].reshape(*tiles.shape[:2], -1, 3)
    paper = np.partition(sample, sample.shape[2] // 2, axis=2)[:, :, sample.shape[2] // 2]  # (tile rows, tile columns, 3)
    level = paper[:, :, None, None]
    difference = np.maximum(tiles, level) - np.minimum(tiles, level)
    noise = float(np.median(difference[:, :, ::PAPER_STRIDE, ::PAPER_STRIDE])) / MEDIAN_DEVIATION
    contrast = max(CONTRAST_LEVELS, NOISE_FACTOR * noise)
    marked: NDArray[np.bool_] = np.any(difference >= contrast, axis=-1)
    marks = int(np.count_nonzero(marked))
    strength = float(np.percentile(difference.max(axis=-1)[marked], 99)) if marks else 0.0
    is_faint = marks >= BLANK_MARK_PX and strength < BLEED_LEVELS
    spreads = _line_ends(_page(marked)) if is_faint else (0.0, 0.0)
    steps = [float(np.abs(np.diff(paper.astype(np.int16), axis=axis)).max(initial=0)) for axis in (0, 1)]
    return Ink(marks, max(steps), contrast, strength, float(np.median(paper)), *spreads)


def is_blank(pixels: NDArray[np.uint8]) -> bool:
    """``measure_ink(pixels).is_blank``."""
    return measure_ink(pixels).is_blank


class LoopDetector:
    """Notices that a sequence of tokens has become periodic.  One ``push`` a token, a few microseconds each.

    For every period p up to 512 it counts how many of the last tokens equal the token p before them.  The run of period p
    (its first turn included) is a loop at max(512, min(64 p, 2048), 6 p) tokens:

    - 512 at least: a rule or a line of dot leaders is one token over and over, 300 characters in bad cases;
    - 64 repeats of a short period: a ledger page has up to sixty rows, all of them "do." in bad cases;
    - 2048 tokens, half of the usual cap, for periods between a row and a paragraph: a grid of empty cells repeats by rows;
    - six repeats of anything longer: no page has one paragraph six times, looping models do.

    Counting loops ("1. 2. 3. ...") are not periodic and end at the token cap, as truncated.
    """

    def __init__(self) -> None:
        periods = np.arange(1, LONGEST_PERIOD_TOKENS + 1)
        self._needed = np.maximum(
            np.maximum(LOOP_TOKENS, np.minimum(LOOP_REPEATS * periods, LOOP_REPEATED_TOKENS)), LOOP_LONG_REPEATS * periods
        )
        self._needed -= periods  # the first turn has nothing before it to equal
        self._runs = np.zeros(LONGEST_PERIOD_TOKENS, np.int64)
        self._tokens = np.full(4 * LONGEST_PERIOD_TOKENS, -1, np.int64)  # newest first, from self._start on
        self._start = len(self._tokens) - LONGEST_PERIOD_TOKENS
        self._count = 0

    def push(self, token_id: int) -> bool:
        """Add a token.  True when the sequence has become a loop."""
        before = self._tokens[self._start : self._start + LONGEST_PERIOD_TOKENS]
        self._runs += 1
        self._runs *= before == token_id
        self._count += 1
        self._remember(token_id)
        return bool((self._runs >= self._needed).any())

    @property
    def period_tokens(self) -> int:
        """The period that has repeated longest at the end of the sequence; 0 where nothing repeats."""
        return int(self._runs.argmax()) + 1 if self._runs.any() else 0

    @property
    def ends_in_loop(self) -> bool:
        """Did a sequence that ran into its cap end repeating: eight turns or more, over half of its length?

        For naming the reason of a page that has to end anyway; too eager to stop one.
        """
        period = self.period_tokens
        covered = int(self._runs[period - 1]) + period if period else 0
        return period > 0 and covered >= ENDING_REPEATS * period and 2 * covered >= self._count

    def _remember(self, token_id: int) -> None:
        """Put the token in front; move the window back to the end of its buffer when it reaches the beginning."""
        if self._start == 0:
            keep = LONGEST_PERIOD_TOKENS - 1
            self._tokens[-keep:] = self._tokens[:keep].copy()
            self._start = len(self._tokens) - keep
        self._start -= 1
        self._tokens[self._start] = token_id


def _line_ends(marked: NDArray[np.bool_]) -> tuple[float, float]:
    """How far the left and the right ends of lines stray, as mean absolute deviations from their medians, pixels.

    marked: (height, width).  Lines are runs of rows with marks.
    """
    is_line = marked.any(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_line, [False]))))
    lefts, rights = [], []
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        columns = np.flatnonzero(marked[start:end].any(axis=0))
        if end - start >= LINE_PX:
            lefts.append(columns[0])
            rights.append(columns[-1])
    if len(lefts) < FEWEST_LINES:
        return 0.0, 0.0
    left, right = (float(np.abs(ends - np.median(ends)).mean()) for ends in (np.array(lefts), np.array(rights)))
    return left, right


def _page(tiles: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Put tiles together again: (rows, columns, tile, tile) to (height, width)."""
    rows, columns, height, width = tiles.shape
    return tiles.swapaxes(1, 2).reshape(rows * height, columns * width)


def _tiles(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut into tiles, the last row and column repeated to fill them: (rows, columns, tile, tile, 3)."""
    height, width = pixels.shape[:2]
    padded = np.pad(pixels, ((0, -height % TILE_PX), (0, -width % TILE_PX), (0, 0)), mode="edge")
    rows, columns = padded.shape[0] // TILE_PX, padded.shape[1] // TILE_PX
    return padded.reshape(rows, TILE_PX, columns, TILE_PX, 3).swapaxes(1, 2)
