"""Which arithmetic the CPU encoder uses: what was asked for, resolved for a file and a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pagemill.decoder import BLOCKS, CODECS, LANES, Codec, Isa, ModelError
from pagemill.vision.spec import VisionSpec

Precision = Literal["auto", "bf16", "int8", "f32"]  # what may be asked for
Products = Literal["bf16", "int8", "f32"]  # how the layers multiply; f32: with the file's own precision


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """products: of the layers.  attention: how scores and values multiply.  codec: how keys and values are stored."""

    products: Products
    attention: Literal["bf16", "f32"]
    codec: Codec

    @property
    def numeric_class(self) -> str:
        """Two machines of one class give the same embedding rows, to the bit."""
        return f"{self.products} products, {self.attention} attention, {self.codec.name} keys and values"


def resolve_arithmetic(spec: VisionSpec, precision: str, isa: Isa) -> Arithmetic:
    """The arithmetic for an encoder on a CPU.  Raises ModelError for a precision or sizes that the kernels have not.

    auto: bf16 where the CPU multiplies pairs of bf16, else f32.
    """
    if precision not in get_args(Precision):
        raise ModelError(f"vision precision should be {', '.join(get_args(Precision))}, found {precision!r}")
    if precision == "bf16" and not isa.bf16:
        raise ModelError(f"vision precision bf16 needs a CPU with bf16 products, this one is {isa.name}: use auto or f32")
    auto: Products = "bf16" if isa.bf16 else "f32"
    products: Products = auto if precision == "auto" else precision  # type: ignore[assignment]
    _check_sizes(spec, products)
    attention: Literal["bf16", "f32"] = "bf16" if isa.bf16 and products != "f32" else "f32"
    byte_keys = CODECS["int8_bf16"]  # a fifth faster than bf16's
    has_byte_keys = attention == "bf16" and products == "int8" and not byte_keys.refusal(spec.head_dim)
    return Arithmetic(products, attention, byte_keys if has_byte_keys else CODECS[attention])


def _check_sizes(spec: VisionSpec, products: Products) -> None:
    step = min(BLOCKS.values()) if products == "int8" else LANES
    sizes = {"width": spec.width, "feed-forward width": spec.ff_width, "head width": spec.head_dim}
    uneven = [f"{name} {value}" for name, value in sizes.items() if value % step]
    if uneven:
        raise ModelError(
            f"the CPU encoder with precision {products} needs sizes in multiples of {step}, the file has {', '.join(uneven)}"
        )
