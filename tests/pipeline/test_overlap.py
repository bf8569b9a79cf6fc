"""When pages are encoded: in turn with the engine's steps on shared cores, beside them otherwise."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from pagemill.pipeline.page import PageImage, PageRef
from pagemill.pipeline.reading.overlap import InTurn, SideBySide, open_encoding
from tests.fakes import fake_image

WAIT_SECONDS = 30.0


def image(page: int) -> PageImage:
    return fake_image(PageRef("a", page, "a"))


def rows(image: PageImage) -> NDArray[np.float32]:
    """A row that holds the page's number."""
    return np.full((1, 4), image.ref.page, np.float32)


def test_in_turn_encodes_one_page_a_step_and_only_for_a_free_slot() -> None:
    seen: list[int] = []
    free = 16
    encoding = InTurn(lambda image: (seen.append(image.ref.page), rows(image))[1], lambda: free)
    assert encoding.room == 1
    ticket = encoding.submit(image(7))
    assert (encoding.room, seen) == (0, [])
    free = 0
    assert encoding.step() == []
    free = 3
    (encoded,) = encoding.step()
    assert isinstance(encoded.rows, np.ndarray)
    assert (encoded.ticket, encoded.rows[0, 0], seen) == (ticket, 7, [7])
    assert encoding.room == 1
    free = 0
    assert encoding.room == 0


def test_side_by_side_encodes_while_the_caller_goes_on_and_hands_over_in_order() -> None:
    gate, entered = threading.Event(), threading.Event()

    def encode(image: PageImage) -> NDArray[np.float32]:
        entered.set()
        assert gate.wait(WAIT_SECONDS)
        return rows(image)

    encoding = SideBySide(encode, lambda: 1, ahead=2)
    assert encoding.room == 3
    tickets = [encoding.submit(image(page)) for page in range(3)]
    assert encoding.room == 0
    assert entered.wait(WAIT_SECONDS)  # the encoder works
    assert encoding.step() == []  # and the caller does not wait for it
    gate.set()
    taken: list[int] = []
    while len(taken) < 3:
        encoding.wait(WAIT_SECONDS)
        taken += [encoded.ticket for encoded in encoding.step()]
    assert taken == tickets
    encoding.close()


@pytest.mark.parametrize("shares_cores", [True, False])
def test_a_cancelled_page_does_not_come_out(shares_cores: bool) -> None:
    encoding = open_encoding(rows, lambda: 1, shares_cores=shares_cores)
    encoding.cancel(encoding.submit(image(0)))
    kept = encoding.submit(image(1))
    encoding.wait(WAIT_SECONDS)
    assert [encoded.ticket for encoded in encoding.step()] == [kept]
    encoding.close()


@pytest.mark.parametrize("shares_cores", [True, False])
def test_an_error_belongs_to_its_page(shares_cores: bool) -> None:
    def encode(image: PageImage) -> NDArray[np.float32]:
        raise ValueError("no such page")

    encoding = open_encoding(encode, lambda: 1, shares_cores=shares_cores)
    encoding.submit(image(0))
    encoding.wait(WAIT_SECONDS)
    (taken,) = encoding.step()
    assert str(taken.rows) == "no such page"
    encoding.close()
