"""One reading of a page, from the tokens as they come to its text, status and confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagemill.decoder import Event, Tokenizer
from pagemill.pipeline.page import PageStatus
from pagemill.pipeline.reading.confidence import word_confidences
from pagemill.pipeline.reading.postprocess import to_markdown
from pagemill.pipeline.reading.quality import LoopDetector
from pagemill.pipeline.reading.recovery import BEST_FIRST

BROKEN = "broken: the model's logits are not numbers: the weights may be damaged"
PART_NAMES = ("upper half", "lower half")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an attempt came to.  trouble: the status, or "broken"; what the settings name to retry on."""

    text: str
    status: PageStatus
    reason: str
    trouble: str
    tokens: int
    mean_log_prob: float | None
    word_confidences: tuple[int, ...]
    encode_seconds: float
    decode_seconds: float

    @property
    def sureness(self) -> float:
        """Comparable among readings that may be right; equal among those that are not, where confidence misleads."""
        return self.mean_log_prob or 0.0 if self.status in ("ok", "low_confidence") else 0.0


@dataclass(slots=True, eq=False)
class Run:
    """An image that is being decoded; the whole page or a half of it."""

    tokenizer: Tokenizer
    loop: LoopDetector = field(default_factory=LoopDetector)
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    status: PageStatus | None = None
    reason: str = ""
    trouble: str = ""
    started: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Is there a status?"""
        return self.status is not None

    def take(self, event: Event) -> bool:
        """Add a token.  True when the run has ended by it."""
        if event.finish == "broken":
            self.fail(BROKEN, "broken")
            return True
        self.log_probs.append(event.log_prob)
        if event.finish != "stop":
            self.tokens.append(event.token)
        if self.loop.push(event.token):
            self._end("looped", f"the last {self.loop.period_tokens} tokens repeat")
        elif event.finish == "stop":
            self._end("ok", "")
        elif event.finish is not None:
            limit = "max_tokens" if event.finish == "length" else "the context"
            loops = ", and its end repeats" if self.loop.ends_in_loop else ""
            self._end("truncated", f"{limit} was reached after {len(self.tokens)} tokens{loops}")
        return self.has_ended

    def fail(self, reason: str, trouble: str = "failed") -> None:
        """End without a text."""
        self._end("failed", reason)
        self.trouble = trouble

    def text(self) -> str:
        """What was read, tidied."""
        return "" if self.status == "failed" else to_markdown(self.tokenizer.decode(self.tokens))

    def confidences(self, text: str) -> tuple[int, ...]:
        """Percent for each word of the text."""
        detokenizer = self.tokenizer.detokenizer()
        pieces: list[tuple[str, float]] = []
        waiting = 0.0  # of tokens that end within a character
        for token, log_prob in zip(self.tokens, self.log_probs, strict=False):
            waiting += log_prob
            if piece := detokenizer.push(token):
                pieces.append((piece, waiting))
                waiting = 0.0
        pieces.append((detokenizer.flush(), waiting))
        return word_confidences(text, pieces)

    def _end(self, status: PageStatus, reason: str) -> None:
        self.status, self.reason, self.trouble = status, reason, status


def together(runs: Sequence[Run], low_confidence: float) -> Reading:
    """The reading that ended runs make, in order; as good as the worst of them."""
    texts = [run.text() for run in runs]
    words = [confidence for run, text in zip(runs, texts, strict=True) for confidence in run.confidences(text)]
    worst = max(range(len(runs)), key=lambda index: (BEST_FIRST.index(runs[index].status or "failed"), -index))
    status, reason, trouble = runs[worst].status or "failed", runs[worst].reason, runs[worst].trouble
    if len(runs) > 1 and reason:
        reason = f"{PART_NAMES[worst]}: {reason}"
    text = "\n\n".join(text for text in texts if text.strip())
    log_probs = [log_prob for run in runs for log_prob in run.log_probs]
    mean = sum(log_probs) / len(log_probs) if log_probs else None
    if status == "ok" and not text:
        status, reason, trouble = "blank", "the model found no text", "blank"
    elif status == "ok" and mean is not None and math.exp(mean) < low_confidence:
        status = trouble = "low_confidence"
        reason = f"the model was not sure: confidence {math.exp(mean):.3f}, below {low_confidence:g}"
    encoded, decoded = sum(run.encode_seconds for run in runs), sum(run.decode_seconds for run in runs)
    return Reading(text, status, reason, trouble, len(log_probs), mean, tuple(words), encoded, decoded)
