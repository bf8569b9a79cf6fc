"""When pages are encoded: in turn with the engine's steps on shared cores, beside them otherwise."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.pipeline.page import PageImage, PageRef
from pagemill.pipeline.reading.overlap import InTurn, SideBySide, open_encoding
from tests.fakes import fake_image

WAIT_SECONDS = 30.0


def image(page: int) -> PageImage:
    return fake_image(PageRef(Path("a"), "a", page))


def rows(image: PageImage) -> NDArray[np.float32]:
    """A row that holds the page's number."""
    return np.full((1, 4), image.ref.page, np.float32)


def test_in_turn_encodes_one_page_a_step_and_only_for_a_free_slot() -> None:
    seen: list[int] = []
    encoding = InTurn(lambda image: (seen.append(image.ref.page), rows(image))[1])
    assert encoding.room(16) == 1
    encoding.offer(image(7))
    assert (encoding.room(16), seen) == (0, [])
    assert encoding.take(0, idle=False) == []
    (encoded,) = encoding.take(3, idle=False)
    assert isinstance(encoded.rows, np.ndarray)
    assert (encoded.image.ref.page, encoded.rows[0, 0], seen) == (7, 7, [7])
    assert encoding.room(2) == 1
    assert encoding.room(0) == 0


def test_side_by_side_encodes_while_the_caller_goes_on_and_hands_over_in_order() -> None:
    gate, entered = threading.Event(), threading.Event()

    def encode(image: PageImage) -> NDArray[np.float32]:
        entered.set()
        assert gate.wait(WAIT_SECONDS)
        return rows(image)

    encoding = SideBySide(encode, ahead=2)
    assert encoding.room(1) == 3
    for page in range(3):
        encoding.offer(image(page))
    assert encoding.room(1) == 0
    assert entered.wait(WAIT_SECONDS)  # the encoder works
    assert encoding.take(1, idle=False) == []  # and the caller does not wait for it
    gate.set()
    taken: list[int] = []
    while len(taken) < 3:
        taken += [encoded.image.ref.page for encoded in encoding.take(1, idle=True)]
    assert taken == [0, 1, 2]
    encoding.close()


@pytest.mark.parametrize("shares_cores", [True, False])
def test_an_error_belongs_to_its_page(shares_cores: bool) -> None:
    def encode(image: PageImage) -> NDArray[np.float32]:
        raise ValueError("no such page")

    encoding = open_encoding(encode, shares_cores=shares_cores)
    encoding.offer(image(0))
    taken = encoding.take(1, idle=True)
    while not taken:
        taken = encoding.take(1, idle=True)
    assert str(taken[0].rows) == "no such page"
    encoding.close()
