"""No fact of an encoder is ignored: changing it changes the rows of a page, or the plan refuses the file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from pagemill.decoder.kernels.isa import detect
from pagemill.decoder.kernels.team import Team
from pagemill.decoder.tensors import FoundTensors, shape_reasons
from pagemill.vision.archs import VISION_ARCHS
from pagemill.vision.arithmetic import resolve_arithmetic
from pagemill.vision.backends.cpu import CpuEncoder
from pagemill.vision.patches import prepare, to_patches
from pagemill.vision.plan import VisionPlan
from pagemill.vision.spec import VisionSpec
from pagemill.vision.weights import plan_encoder
from tests.flips import flips

DESCRIBE = {"architecture"}
PAGE = Image.fromarray(np.random.default_rng(4).integers(0, 256, (600, 430, 3), np.uint8))  # longer than the longest edge


def refusals(planned: VisionPlan, spec: VisionSpec) -> list[str]:
    """What a plan with these facts says against the file."""
    table = VISION_ARCHS[planned.spec.architecture].tensors
    missing = [row.role for row in table if row.layers(spec.layers) != row.layers(planned.spec.layers)]
    return [*map(str, missing), *shape_reasons(table, spec, FoundTensors(dict(planned.tensors)))]


def test_every_fact_changes_the_rows_or_is_refused(mmproj: Path) -> None:
    planned = plan_encoder(mmproj)
    team = Team(1)

    def rows(spec: VisionSpec) -> np.ndarray:
        flipped = replace(planned, plan=replace(planned.plan, spec=spec))
        encoder = CpuEncoder(flipped, team, detect(), resolve_arithmetic(spec, "f32", detect()))
        return encoder.encode(to_patches(prepare(PAGE, spec), spec))

    before = rows(planned.spec)
    flipped = [(path, spec) for path, spec in flips(planned.spec) if not refusals(planned.plan, spec)]
    ignored = {path for path, spec in flipped if np.array_equal(before, rows(spec))}
    team.close()
    assert ignored == DESCRIBE
