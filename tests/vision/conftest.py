"""Vision oracles: pages and a tiny encoder with answers from the reference implementation.

``tests.answers`` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.header import Header
from pagemill.vision.reference import ReferenceEncoder
from pagemill.vision.spec import VisionSpec
from pagemill.vision.weights import plan_encoder
from tests.answers import oracle_files


@dataclass(frozen=True, slots=True)
class OraclePage:
    """A page image and the recorded answers for it."""

    image: Path
    answers: Mapping[str, np.ndarray]

    def open(self) -> Image.Image:
        """The page, decoded."""
        with Image.open(self.image) as image:
            image.load()
            return image


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "page" in metafunc.fixturenames:
        images = oracle_files("vision/page-*.png")
        metafunc.parametrize("page", images, ids=[image.stem for image in images], indirect=True)


@pytest.fixture(scope="session")
def page(request: pytest.FixtureRequest) -> OraclePage:
    with np.load(request.param.with_suffix(".npz")) as answers:
        return OraclePage(request.param, dict(answers))


@pytest.fixture(scope="session")
def mmproj() -> Path:
    return oracle_files("vision/tiny-mmproj-f32.gguf")[0]


@pytest.fixture(scope="session")
def mmproj_f16() -> Path:
    return oracle_files("vision/tiny-mmproj-f16.gguf")[0]


@pytest.fixture(scope="session")
def text_model() -> Path:
    return oracle_files("vision/tiny-text-f32.gguf")[0]


@pytest.fixture(scope="session")
def header(mmproj: Path) -> Header:
    return open_file(mmproj)[0]


@pytest.fixture(scope="session")
def reference(mmproj: Path) -> ReferenceEncoder:
    planned = plan_encoder(mmproj)
    return ReferenceEncoder(planned.spec, planned.weights())


@pytest.fixture(scope="session")
def spec(reference: ReferenceEncoder) -> VisionSpec:
    return reference.spec
