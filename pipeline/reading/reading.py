"""One reading of a page, from the tokens as they come to its text, status and confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pagemill.decoder import Event, Tokenizer
from pagemill.pipeline.page import Attempt, PageStatus
from pagemill.pipeline.reading.confidence import word_confidences
from pagemill.pipeline.reading.postprocess import to_markdown
from pagemill.pipeline.reading.quality import LoopDetector
from pagemill.pipeline.reading.recovery import BEST_FIRST, Rung

BROKEN = "broken: the model's logits are not numbers: the weights may be damaged"
PART_NAMES = ("upper half", "lower half")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an attempt came to.  trouble: the status, or "broken"; what the settings name to retry on."""

    attempt: Attempt
    trouble: str
    text: str
    word_confidences: tuple[int, ...]
    encode_seconds: float
    decode_seconds: float

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better: by status, then by mean log-prob, which misleads where the text is not right."""
        attempt = self.attempt
        may_be_right = attempt.status in ("ok", "low_confidence")
        return BEST_FIRST.index(attempt.status), -(attempt.mean_log_prob or 0.0) if may_be_right else 0.0


@dataclass(slots=True, eq=False)
class Decoding:
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
        """Add a token.  True when the decoding has ended by it."""
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
        """The Markdown of the tokens."""
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


def joined(parts: Sequence[Decoding], rung: Rung, turn: int, low_confidence: float) -> Reading:
    """The reading that ended parts of a page make, in order; as good as the worst of them.

    turn: by how many degrees the page was turned.  low_confidence: as in ``Recovery``.
    """
    texts = [part.text() for part in parts]
    words = [confidence for part, text in zip(parts, texts, strict=True) for confidence in part.confidences(text)]
    text = "\n\n".join(text for text in texts if text.strip())
    log_probs = [log_prob for part in parts for log_prob in part.log_probs]
    mean = sum(log_probs) / len(log_probs) if log_probs else None
    status, reason, trouble = _worst(parts)
    if status == "ok":
        status, reason = _doubted(text, mean, low_confidence)
        trouble = status
    encoded, decoded = sum(part.encode_seconds for part in parts), sum(part.decode_seconds for part in parts)
    attempt = Attempt(
        status, reason, len(log_probs), mean, turn, rung.scale, rung.temperature, len(parts), seconds=encoded + decoded
    )
    return Reading(attempt, trouble, text, tuple(words), encoded, decoded)


def _worst(parts: Sequence[Decoding]) -> tuple[PageStatus, str, str]:
    """(status, reason, trouble) of the part that went worst, the first of those."""
    worst = max(range(len(parts)), key=lambda index: (BEST_FIRST.index(parts[index].status or "failed"), -index))
    part = parts[worst]
    reason = f"{PART_NAMES[worst]}: {part.reason}" if len(parts) > 1 and part.reason else part.reason
    return part.status or "failed", reason, part.trouble


def _doubted(text: str, mean: float | None, low_confidence: float) -> tuple[PageStatus, str]:
    """(status, reason) of a text that ended well."""
    if not text:
        return "blank", "the model found no text"
    if mean is not None and math.exp(mean) < low_confidence:
        return "low_confidence", f"the model was not sure: confidence {math.exp(mean):.3f}, below {low_confidence:g}"
    return "ok", ""
