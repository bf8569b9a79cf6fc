"""Light wear of a scan: rotation, blur, yellowed or grey paper, pale ink, noise and JPEG."""

from __future__ import annotations

import io
import math
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

MOST_DEGREES = 0.8
PAPERS = ((255, 255, 255), (244, 236, 210), (240, 226, 190), (235, 235, 232), (250, 246, 232))


def rotate(
    image: Image.Image, centres: NDArray[np.float64], rng: Random, degrees: float = MOST_DEGREES
) -> tuple[Image.Image, NDArray[np.float64]]:
    """Turn the page by less than `degrees` either way, and the letters' places with it."""
    angle = rng.uniform(-degrees, degrees)
    turned = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255)
    cosine, sine = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    middle = np.array([image.width / 2, image.height / 2])
    return turned, (centres - middle) @ np.array([[cosine, -sine], [sine, cosine]]) + middle


def blur(image: Image.Image, rng: Random) -> Image.Image:
    """Soften by less than a pixel."""
    return image.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.8)))


def colour(image: Image.Image, rng: Random, worn: bool) -> NDArray[np.float32]:
    """Coverage to colour, (height, width, 3) float32: black on white, or when worn greyer ink on tinted paper."""
    coverage = np.asarray(image, np.float32)[:, :, None]
    if not worn:
        return np.broadcast_to(coverage, (*coverage.shape[:2], 3))
    ink = np.full(3, rng.uniform(0, 90), np.float32) + np.array([rng.uniform(-8, 8) for _ in range(3)], np.float32)
    paper = np.array(rng.choice(PAPERS), np.float32) - rng.uniform(0, 30)
    return (ink + (paper - ink) * (coverage / 255)).astype(np.float32)


def noise(pixels: NDArray[np.float32], rng: Random) -> NDArray[np.float32]:
    """Grain that is the same in all colours."""
    grain = np.random.default_rng(rng.getrandbits(63)).standard_normal(pixels.shape[:2], np.float32)
    return (pixels + grain[:, :, None] * rng.uniform(1, 9)).astype(np.float32)


def to_bytes(pixels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Clip and cut to 8 bits."""
    return np.clip(pixels, 0, 255).astype(np.uint8)


def jpeg(pixels: NDArray[np.uint8], rng: Random) -> NDArray[np.uint8]:
    """Through a JPEG of middling quality."""
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "JPEG", quality=rng.randint(45, 92))
    return np.asarray(Image.open(packed).convert("RGB"))
