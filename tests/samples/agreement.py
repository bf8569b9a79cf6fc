"""The sample model on 20 held-out pages beside llama.cpp and Hugging Face, as `samples.model.train.answers` recorded them.

`python -m tests.samples.agreement` writes the table of samples/model/README.md.

Two texts part at one token; what follows is the answer to another text and says nothing.  So each pair of texts that differ
is judged there: by how much float32 holds the less likely of the two tokens below the best one, in log-prob.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image

from pagemill.decoder.batch import Prompt, Request, Rows, Segment, Tokens
from pagemill.decoder.engine import Engine
from pagemill.decoder.kernels.memory import Array
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.model import open_model
from pagemill.decoder.network.kv_cache import KvCache
from pagemill.decoder.network.kv_codec import codec_named
from pagemill.decoder.network.transformer import Forward
from pagemill.vision.encoder import open_encoder
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.segments import AFTER_PAGE, BEFORE_PAGE
from samples.model.train.markers import put_between
from tests.answers import ORACLES, ROOT

PAIR = ROOT / "samples" / "model"
TEXT, MMPROJ = PAIR / "text-q8_0.gguf", PAIR / "mmproj-f16.gguf"
CARD = PAIR / "README.md"
FOLDER = ORACLES / "sample"
RECORDED = json.loads((FOLDER / "answers.json").read_text("utf-8"))
PAGES = RECORDED["pages"]
CONTEXT = 1024
POINTS = 3  # tokens before a difference at which the texts may have parted: one text can be cut into tokens in many ways

Turn = tuple[str, str]
OUR_TURN = BEFORE_PAGE, AFTER_PAGE
LLAMA_TURN = BEFORE_PAGE + "<|im_start|>", "<|im_end|>" + AFTER_PAGE  # it puts markers of its own around every image


@dataclass(frozen=True, slots=True)
class Comparison:
    """leads: page -> how far float32 holds the less likely token below the best where the texts part."""

    name: str
    alike: int
    leads: dict[str, float]

    def row(self) -> str:
        """For the table."""
        parted = f"{max(self.leads.values()):.3f}" if self.leads else "-"
        return f"| {self.name} | {self.alike} of {self.alike + len(self.leads)} | {parted} |"


class Pair:
    """The sample model's pair.  exact: in float32 throughout, otherwise at Pagemill's defaults."""

    def __init__(self, *, exact: bool) -> None:
        self.exact = exact
        self.model = open_model(TEXT, exact=exact)
        self.tokenizer = self.model.tokenizer

    @cached_property
    def pages(self) -> list[Array]:
        """Embedding rows of every page."""
        encoder = open_encoder(MMPROJ, precision="f32" if self.exact else "auto")
        rows = []
        for page in PAGES:
            with Image.open(FOLDER / page["image"]) as image:
                rows.append(encoder.encode(to_patches(prepare(image, encoder.spec), encoder.spec)))
        encoder.close()
        return rows

    def prompt(self, page: int, turn: Turn) -> Prompt:
        """What asks for a page's text."""
        before, after = (tuple(self.tokenizer.encode(text, parse_special=True)) for text in turn)
        return Prompt((Tokens(before), Rows(self.pages[page]), Tokens(after)))

    def read(self, turn: Turn) -> list[list[int]]:
        """The tokens of every page."""
        stops, limit = self.tokenizer.eos_ids, RECORDED["max_tokens"]
        engine = Engine(self.model, slots=len(PAGES), context=CONTEXT, kv_cache="f32" if self.exact else "f16")
        found: list[list[int]] = [[] for _ in PAGES]
        for page in range(len(PAGES)):
            engine.submit(Request(self.prompt(page, turn), limit, stop_ids=stops, key=page))
        while not engine.idle:
            for event in engine.step():
                found[int(str(event.key))].append(event.token)
        engine.close()
        return found

    def text(self, tokens: Sequence[int]) -> str:
        """As the others write it: control tokens are text, the last one is not, nor are empty lines at the end."""
        stops = self.tokenizer.eos_ids
        return self.tokenizer.decode([token for token in tokens if token not in stops], special=True).rstrip("\n")


class Judge:
    """Float32, asked about single tokens."""

    def __init__(self, pair: Pair) -> None:
        self._pair, model = pair, pair.model
        self._cache = KvCache(model.spec, codec_named("f32"), 1, CONTEXT)
        self._team = Team(None)
        self._forward = Forward(model, self._cache, self._team, rows=CONTEXT, outputs=POINTS, exact=True)
        self._texts = [pair.tokenizer.piece(token).decode("utf-8", "replace") for token in range(model.spec.vocab)]

    def lead(self, page: int, turn: Turn, tokens: Sequence[int], other: str) -> float:
        """Where `other` parts from what the tokens say: see Comparison.leads."""
        common = self._common(tokens, other)
        points = min(POINTS, common + 1)
        logits = self._logits(page, turn, tokens[:common], points)
        return min(
            self._lead(logits[index - common + points - 1], tokens[: index + 1], other)
            for index in range(common - points + 1, common + 1)
        )

    def close(self) -> None:
        """End the threads."""
        self._team.close()

    def _common(self, tokens: Sequence[int], other: str) -> int:
        """How many tokens both texts begin with."""
        stops, text, count = self._pair.tokenizer.eos_ids, "", 0
        for token in tokens:
            text += self._texts[token]
            if token in stops or not other.startswith(text):
                break
            count += 1
        return count

    def _lead(self, logits: Array, tokens: Sequence[int], other: str) -> float:
        """After all tokens but the last, which is one choice; the other is any that `other` may have been written with."""
        rest = other.removeprefix("".join(self._texts[token] for token in tokens[:-1]))
        fits = [token for token, text in enumerate(self._texts) if text and rest.startswith(text)] if rest else []
        fits += [] if rest else self._pair.tokenizer.eos_ids
        taken = max((logits[token] for token in fits if token != tokens[-1]), default=-np.inf)
        return float(logits.max() - min(taken, logits[tokens[-1]]))

    def _logits(self, page: int, turn: Turn, tokens: Sequence[int], outputs: int) -> Array:
        parts = [*self._pair.prompt(page, turn).segments, Tokens(tuple(tokens))]
        rows = [part.embeddings if isinstance(part, Rows) else self._pair.model.embed(part.ids) for part in parts if len(part)]
        whole = np.concatenate(rows)
        return self._forward.run([Segment(0, 0, whole, decoding=False, outputs=outputs)]).copy()


def compare_all() -> list[Comparison]:
    """Ours with theirs, and theirs before and after rounding; the first must be alike throughout."""
    exact, usual = Pair(exact=True), Pair(exact=False)
    judge = Judge(exact)
    kept = exact.read(OUR_TURN)

    def compare(name: str, turn: Turn, read: Sequence[Sequence[int]], key: str) -> Comparison:
        pages = [(number, page, tokens) for number, (page, tokens) in enumerate(zip(PAGES, read, strict=True))]
        parted = [(number, page, tokens) for number, page, tokens in pages if usual.text(tokens) != page[key]]
        leads = {page["image"]: judge.lead(number, turn, tokens, page[key]) for number, page, tokens in parted}
        return Comparison(name, len(PAGES) - len(leads), leads)

    found = [
        compare("Pagemill in float32 and Hugging Face, the pair's weights", OUR_TURN, kept, "hugging_face"),
        compare("Pagemill as it is and llama.cpp, prompted alike", LLAMA_TURN, usual.read(LLAMA_TURN), "llama_cpp"),
        compare("Pagemill as it is and Hugging Face in float32", OUR_TURN, usual.read(OUR_TURN), "hugging_face"),
        compare("the pair's weights and those before rounding, float32", OUR_TURN, kept, "unrounded"),
    ]
    judge.close()
    return found


def main() -> None:
    """Write the table."""
    head = "| compared, greedy | same text | lead where they part, at most |\n| --- | --- | --- |\n"
    table = head + "\n".join(comparison.row() for comparison in compare_all())
    put_between(CARD, "agreement", table)
    print(table)


if __name__ == "__main__":
    main()
