"""Pages that are not read well are read again: by a fixed ramp, each attempt recorded, the best one kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from pagemill.decoder.batch import Event, Request, Rows
from pagemill.decoder.engine import StepRows
from pagemill.decoder.sampler import Sampling
from pagemill.pipeline.page import PageImage, PageRef, PageText
from pagemill.pipeline.reading.confidence import line_confidences, page_confidence, word_confidences
from pagemill.pipeline.reading.reader import PageReader
from pagemill.pipeline.reading.recovery import FIRST, Recovery, Rung, images, ramp
from pagemill.pipeline.reading.settings import ReadSettings

HEIGHT, WIDTH = 280, 196
STOP = 0
NO_ROWS = StepRows(0, 0)
SURE, UNSURE = -0.01, -2.0
WORDS = {1: "Der", 2: " Müller", 3: " mahlt", 4: "\n"}

Script = Callable[[NDArray[np.float32], Request], Iterator[tuple[int, float]]]


class Tokenizer:
    """Four words."""

    eos_ids = frozenset({STOP})

    def encode(self, text: str, **_: object) -> list[int]:
        return []

    def token_id(self, piece: str) -> int:
        return 9

    def decode(self, ids: Sequence[int], **_: object) -> str:
        return "".join(WORDS[one] for one in ids)

    def detokenizer(self) -> Any:
        return SimpleNamespace(push=lambda one: WORDS[one], flush=lambda: "")


@dataclass
class Engine:
    """Answers by a script of what it is shown."""

    script: Script
    slots: int = 2
    requests: list[Request] = field(default_factory=list)
    running: dict[int, Iterator[tuple[int, float]]] = field(default_factory=dict)
    last_step: StepRows = NO_ROWS

    @property
    def room(self) -> int:
        return max(0, self.slots - len(self.running))

    def submit(self, request: Request) -> int:
        (rows,) = [segment for segment in request.prompt.segments if isinstance(segment, Rows)]
        self.requests.append(request)
        ticket = len(self.requests)
        self.running[ticket] = self.script(rows.embeddings, request)
        return ticket

    def cancel(self, ticket: int) -> None:
        self.running.pop(ticket, None)

    def step(self) -> list[Event]:
        events = []
        for ticket, answers in list(self.running.items()):
            token, log_prob = next(answers)
            finish = "broken" if token < 0 else "stop" if token == STOP else None
            events.append(Event(ticket, None, token, log_prob, finish))
            if finish:
                del self.running[ticket]
        return events


class Encoder:
    """A row that holds the image's height, width and its four corners' levels."""

    spec = SimpleNamespace(longest_edge_px=HEIGHT)
    shares_cores = True

    def encode(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        corners = [pixels[0, 0, 0], pixels[0, -1, 0], pixels[-1, -1, 0], pixels[-1, 0, 0]]
        return np.array([[*pixels.shape[:2], *corners]], np.float32)

    def close(self) -> None:
        """Nothing."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[PageText, Engine]]:
    monkeypatch.setattr("pagemill.pipeline.reading.reader.prepare", lambda image, *_: np.asarray(image))
    monkeypatch.setattr("pagemill.pipeline.reading.reader.to_patches", lambda pixels, _: pixels)
    monkeypatch.setattr("pagemill.pipeline.reading.reader.page_prompt", lambda tokenizer, rows, text: _prompt(rows))

    def read_page(script: Script, pixels: NDArray[np.uint8] | None = None, **recovery: Any) -> tuple[PageText, Engine]:
        engine = Engine(script)
        settings = ReadSettings(recovery=Recovery(**recovery))
        reader = PageReader(Encoder(), engine, Tokenizer(), settings, {"software": "test"})  # type: ignore[arg-type]
        reader.submit(PageImage(PageRef("x", 0, "x.png"), page() if pixels is None else pixels, "hash", 72.0, 0.5))
        for _ in range(20_000):
            ended = reader.step()
            if ended:
                assert (reader.room, len(ended)) == (1, 1)
                return ended[0], engine
        raise AssertionError("the page did not end")

    return read_page


def _prompt(rows: NDArray[np.float32]) -> Any:
    return SimpleNamespace(segments=(Rows(rows),))


def page() -> NDArray[np.uint8]:
    """A page with two blocks of ink, a quiet row between them, and a dark corner to tell how it lies."""
    pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    pixels[20:130, 30:160] = 0
    pixels[135:260, 30:160] = 0
    pixels[0, 0] = 10
    return pixels


def words(log_prob: float) -> Iterator[tuple[int, float]]:
    yield from ((1, log_prob), (2, log_prob), (3, log_prob), (STOP, log_prob))


def loop() -> Iterator[tuple[int, float]]:
    while True:
        yield 1, SURE


def hows(text: PageText) -> list[tuple[str, str]]:
    return [(attempt.changes, attempt.status) for attempt in text.attempts]


def test_page_that_is_read_well_is_read_once(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, engine = read(lambda rows, request: words(SURE))
    assert (text.text, text.status, text.reason, text.tokens) == ("Der Müller mahlt", "ok", "", 4)
    assert hows(text) == [("", "ok")]
    assert set(text.timings) == {"render", "encode", "decode"}
    assert len(engine.requests) == 1
    assert text.measures["mark_px"] > 1000


def test_ramp_goes_from_cheap_to_dear_and_every_attempt_is_recorded(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, engine = read(lambda rows, request: loop())
    expected = ["", "temperature 0.2", "temperature 0.5", "size 0.8", "halves"]
    assert hows(text) == [(how, "looped") for how in expected]
    assert (text.status, text.reason) == ("looped", "the last 1 tokens repeat (5 attempts)")
    assert [request.sampling.temperature for request in engine.requests] == [0.0, 0.2, 0.5, 0.0, 0.0, 0.0]
    assert [request.sampling.seed for request in engine.requests] == [0, 1, 2, 3, 4, 4]
    heights = [int(request.prompt.segments[0].embeddings[0, 0]) for request in engine.requests]  # type: ignore[union-attr]
    assert heights == [280, 280, 280, 224, 134, 146]  # halves cut where there is no ink
    assert sum(attempt.seconds for attempt in text.attempts) == pytest.approx(text.timings["encode"] + text.timings["decode"])


def test_first_good_attempt_ends_the_ramp(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, _ = read(lambda rows, request: words(SURE) if request.sampling.temperature == 0.5 else loop())
    assert hows(text) == [("", "looped"), ("temperature 0.2", "looped"), ("temperature 0.5", "ok")]
    assert (text.status, text.reason, text.text) == ("ok", "", "Der Müller mahlt")


def test_halves_are_put_together_in_order(read: Callable[..., tuple[PageText, Engine]]) -> None:
    def script(rows: NDArray[np.float32], request: Request) -> Iterator[tuple[int, float]]:
        height = int(rows[0, 0])
        if height == 134:
            yield from ((1, SURE), (4, SURE), (1, SURE), (STOP, SURE))
        elif height == 146:
            yield from ((3, SURE), (STOP, SURE))
        else:
            yield from loop()

    text, _ = read(script)
    assert (text.status, text.text) == ("ok", "Der\nDer\n\n mahlt")
    assert len(text.word_confidences) == 3
    assert hows(text)[-1] == ("halves", "ok")


def test_half_that_loops_makes_the_attempt_loop(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, _ = read(lambda rows, request: words(SURE) if rows[0, 0] == 134 else loop())
    assert text.attempts[-1].reason == "lower half: the last 1 tokens repeat"
    assert text.status == "looped"


def test_unsure_page_has_its_status_and_keeps_its_surest_reading(read: Callable[..., tuple[PageText, Engine]]) -> None:
    unsure: Mapping[float, float] = {0.0: -2.0, 0.2: -1.0, 0.5: -1.5}
    text, _ = read(lambda rows, request: words(unsure[request.sampling.temperature]), scales=(), halves=False)
    assert hows(text) == [(how, "low_confidence") for how in ("", "temperature 0.2", "temperature 0.5")]
    assert text.status == "low_confidence"
    assert page_confidence(text) == pytest.approx(np.exp(-1.0))
    assert text.reason == "the model was not sure: confidence 0.368, below 0.6 (3 attempts)"


def test_broken_numbers_are_tried_again(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, _ = read(lambda rows, request: words(SURE) if request.sampling.temperature else iter([(-1, float("nan"))]))
    assert hows(text) == [("", "failed"), ("temperature 0.2", "ok")]


def test_text_of_a_looped_page_is_not_given_up_for_none(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, _ = read(lambda rows, request: iter([(STOP, SURE)]) if request.sampling.temperature else loop())
    assert text.status == "looped"
    assert text.text.startswith("DerDer")


@pytest.mark.parametrize(
    ("retry_on", "attempts"), [(frozenset(), 1), (frozenset({"low_confidence"}), 1), (frozenset({"looped"}), 5)]
)
def test_only_what_the_settings_name_is_tried_again(
    read: Callable[..., tuple[PageText, Engine]], retry_on: frozenset[str], attempts: int
) -> None:
    text, _ = read(lambda rows, request: loop(), retry_on=retry_on)
    assert len(text.attempts) == attempts


@pytest.mark.parametrize(("corner", "turn"), [(3, 90), (2, 180), (1, 270)])
def test_page_that_lies_on_its_side_is_turned(read: Callable[..., tuple[PageText, Engine]], corner: int, turn: int) -> None:
    """The page reads well once its dark corner is at the top left; ``corner``: where it lies, clockwise from there."""
    lying = np.ascontiguousarray(np.rot90(page(), -corner))
    text, _ = read(lambda rows, request: words(SURE if rows[0, 2] < 128 else UNSURE), lying, turns=True)
    assert (text.status, text.turn) == ("ok", turn)
    expected = {f"turned {degrees} degrees": "ok" if degrees == turn else "low_confidence" for degrees in (90, 180, 270)}
    assert hows(text) == [("", "low_confidence"), *expected.items()]
    assert text.picture is not None
    assert (text.picture.width_px, text.picture.height_px) == (WIDTH, HEIGHT)


def test_page_that_no_turn_helps_goes_on_with_the_surest(read: Callable[..., tuple[PageText, Engine]]) -> None:
    def script(rows: NDArray[np.float32], request: Request) -> Iterator[tuple[int, float]]:
        if request.sampling.temperature == 0.5 and rows[0, 4] < 128:
            return words(SURE)
        return words(-1.0 if rows[0, 4] < 128 else UNSURE)  # the dark corner at the bottom right: turned by 180

    text, _ = read(script, turns=True)
    assert [attempt.changes for attempt in text.attempts][1:4] == [
        "turned 90 degrees",
        "turned 180 degrees",
        "turned 270 degrees",
    ]
    assert hows(text)[4:] == [
        ("turned 180 degrees, temperature 0.2", "low_confidence"),
        ("turned 180 degrees, temperature 0.5", "ok"),
    ]
    assert text.turn == 180


def test_surest_of_all_turns_is_kept(read: Callable[..., tuple[PageText, Engine]]) -> None:
    """The dark corner at the top left: well read; at the bottom right: upside down, and read with some assurance."""

    def script(rows: NDArray[np.float32], request: Request) -> Iterator[tuple[int, float]]:
        return words(SURE if rows[0, 2] < 128 else -0.3 if rows[0, 4] < 128 else UNSURE)

    text, _ = read(script, np.ascontiguousarray(np.rot90(page(), -1)), turns=True)
    assert [status for _, status in hows(text)] == ["low_confidence", "ok", "low_confidence", "ok"]
    assert text.turn == 270


def test_upright_page_is_not_turned(read: Callable[..., tuple[PageText, Engine]]) -> None:
    text, engine = read(lambda rows, request: words(SURE), turns=True)
    assert text.turn == 0
    assert len(engine.requests) == 1


def test_same_page_goes_through_the_same_attempts(read: Callable[..., tuple[PageText, Engine]]) -> None:
    def timeless(text: PageText) -> tuple[object, ...]:
        return (text.text, text.status, text.attempts, text.word_confidences, text.provenance, text.measures)

    first, second = (read(lambda rows, request: words(UNSURE))[0] for _ in range(2))
    assert timeless(first) == timeless(second)


@pytest.fixture
def reader(read: object) -> PageReader:
    """A reader of two slots whose pages loop without end."""
    engine = Engine(lambda rows, request: loop())
    return PageReader(Encoder(), engine, Tokenizer(), ReadSettings(recovery=Recovery(halves=True)), {})  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, 1, 5, 30, 2000, 4000], ids=str)
def test_page_is_cancelled_wherever_it_is(reader: PageReader, steps: int) -> None:
    """Before it is encoded, while it is decoded, between and within further attempts; the next page is then read as ever."""
    first, second = (PageImage(PageRef("x", number), page(), "hash", 72.0, 0.5) for number in (0, 1))
    reader.submit(first)
    came = [text.ref for _ in range(steps) for text in reader.step()]
    reader.cancel(first.ref)
    assert (reader.room, reader._engine.room) == (1, 2)
    reader.submit(second)
    while second.ref not in came:
        came += [text.ref for text in reader.step()]
    assert came == [*([first.ref] if first.ref in came[:1] else []), second.ref]
    assert (came[0] == second.ref) == (steps < 4000)


def test_page_that_is_under_way_is_not_taken_in_twice(reader: PageReader) -> None:
    image = PageImage(PageRef("x", 0), page(), "hash", 72.0, 0.5)
    reader.submit(image)
    with pytest.raises(ValueError, match="found it under way"):
        reader.submit(image)


def test_a_page_may_bring_settings_of_its_own(read: object) -> None:
    engine = Engine(lambda rows, request: words(SURE))
    reader = PageReader(Encoder(), engine, Tokenizer(), ReadSettings(), {})  # type: ignore[arg-type]
    own = ReadSettings(max_tokens=7, sampling=Sampling(temperature=0.3))
    for number, settings in enumerate((None, own)):
        reader.submit(PageImage(PageRef("x", number), page(), "hash", 72.0, 0.5), settings)
        while not reader.step():
            pass
    assert [(request.max_tokens, request.sampling.temperature) for request in engine.requests] == [(4096, 0.0), (7, 0.3)]


def test_page_too_small_for_a_change_skips_it() -> None:
    small = np.zeros((60, 60, 3), np.uint8)
    assert [images(small, rung, 1540) for rung in (Rung(scale=0.5), Rung(halves=True))] == [[], []]
    assert images(small, Rung(scale=2.0), 60) == []  # as large as the model takes already
    assert images(small, Rung(scale=2.0), 90)[0].shape == (90, 90, 3)
    assert list(ramp(Recovery(temperatures=(), scales=(), halves=False))) == []
    assert FIRST.keeps_image


def test_halves_cut_no_line() -> None:
    sheet = Image.new("L", (400, 600), 250)
    draw = ImageDraw.Draw(sheet)
    for top in range(10, 590, 37):
        draw.rectangle((20, top, 380, top + 25), fill=30)
    pixels = np.asarray(sheet.convert("RGB"))
    upper, lower = images(pixels, Rung(halves=True), 1540)
    assert len(upper) + len(lower) == 600
    assert upper[-1].min() == lower[0].min() == 250


def test_words_have_the_probability_of_their_tokens() -> None:
    pieces = [("Gr", -0.1), ("ü", -0.2), ("ße", -0.3), (" an", -0.05), (" alle", 0.0)]
    assert word_confidences("Grüße an alle", pieces) == (round(100 * np.exp(-0.6)), 95, 100)


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("", [("", 0.0)], ()),
        ("a b", [("a", -1.0), (" \x00", -9.0), ("b", 0.0)], (37, 100)),
        ("costs $x$ now", [("costs", 0.0), (" \\", -1.0), ("$", 0.0), ("x\\$", -1.0), (" now", 0.0)], (100, 37, 100)),
        ("said", [("```markdown\n", -5.0), ("said", 0.0), ("\n```", -5.0)], (100,)),
    ],
    ids=["nothing", "control character", "mended mathematics", "fence"],
)
def test_words_are_found_in_tidied_text(text: str, pieces: list[tuple[str, float]], expected: tuple[int, ...]) -> None:
    found = word_confidences(text, pieces)
    assert len(found) == len(text.split())
    assert found == expected


def test_lines_have_the_mean_of_their_words() -> None:
    ref = PageRef("x", 0, "x")
    assert line_confidences(PageText(ref, "a b\n\nc", "ok", word_confidences=(100, 25, 0))) == (50, None, 0)
    assert line_confidences(PageText(ref, "a b\n\nc", "ok")) == (None, None, None)
