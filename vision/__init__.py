"""Page pixels in, embedding rows out.

>>> from PIL import Image
>>> encoder = open_encoder("samples/model/mmproj-f16.gguf")
>>> page = prepare(Image.new("RGB", (112, 56), "white"), encoder.spec)
>>> encoder.encode(to_patches(page, encoder.spec)).shape
(8, 256)
>>> encoder.close()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagemill.lazy import exports

if TYPE_CHECKING:
    from pagemill.vision.arithmetic import Arithmetic as Arithmetic
    from pagemill.vision.arithmetic import Precision as Precision
    from pagemill.vision.arithmetic import resolve_arithmetic as resolve_arithmetic
    from pagemill.vision.backends.cost import encoder_bytes as encoder_bytes
    from pagemill.vision.child import Child as Child
    from pagemill.vision.child import ChildFailure as ChildFailure
    from pagemill.vision.encoder import BACKENDS as BACKENDS
    from pagemill.vision.encoder import load_encoder as load_encoder
    from pagemill.vision.encoder import open_encoder as open_encoder
    from pagemill.vision.encoder import resolve_backend as resolve_backend
    from pagemill.vision.errors import BadPixels as BadPixels
    from pagemill.vision.errors import BrokenRows as BrokenRows
    from pagemill.vision.fitting import fitted_size as fitted_size
    from pagemill.vision.patches import MULTIPLE_PX as MULTIPLE_PX
    from pagemill.vision.patches import Patches as Patches
    from pagemill.vision.patches import prepare as prepare
    from pagemill.vision.patches import to_patches as to_patches
    from pagemill.vision.protocol import Encoder as Encoder
    from pagemill.vision.segments import page_prompt as page_prompt
    from pagemill.vision.spec import VisionSpec as VisionSpec
    from pagemill.vision.weights import PlannedEncoder as PlannedEncoder
    from pagemill.vision.weights import plan_encoder as plan_encoder

__all__, __getattr__, __dir__ = exports(
    __name__,
    {
        "arithmetic": "Arithmetic Precision resolve_arithmetic",
        "backends.cost": "encoder_bytes",
        "child": "Child ChildFailure",
        "encoder": "BACKENDS load_encoder open_encoder resolve_backend",
        "errors": "BadPixels BrokenRows",
        "fitting": "fitted_size",
        "patches": "MULTIPLE_PX Patches prepare to_patches",
        "protocol": "Encoder",
        "segments": "page_prompt",
        "spec": "VisionSpec",
        "weights": "PlannedEncoder plan_encoder",
    },
)
