"""What the CPU encoder takes of memory, from its plan alone."""

from __future__ import annotations

from pagemill.decoder import padded
from pagemill.vision.arithmetic import Arithmetic
from pagemill.vision.plan import VisionPlan
from pagemill.vision.spec import VisionSpec

CAPACITY_STEP = 1024  # buffers grow by this many patches, so that pages of one kind share a recording


def encoder_bytes(plan: VisionPlan, arithmetic: Arithmetic, patches: int) -> int:
    """Bytes of the weights and of the buffers for pages of up to so many patches; an upper bound for int8."""
    value = 2 if arithmetic.attention == "bf16" else 4
    return plan.weights * value + working_bytes(plan.spec, patches, bf16=value == 2)


def working_bytes(spec: VisionSpec, patches: int, *, bf16: bool) -> int:
    """Bytes of the buffers for pages of up to so many patches, weights aside; what a recording takes, and little more."""
    capacity = -(-patches // CAPACITY_STEP) * CAPACITY_STEP
    value = 2 if bf16 else 4
    rows = padded(spec.patch_width) + 7 * spec.width + 2 * spec.ff_width + spec.head_dim + 4
    packed = value * (spec.width + spec.ff_width) + 4 * (padded(spec.patch_width) + 32 + spec.width)
    cached = 2 * value * spec.width
    merged = 4 * (2 * spec.width + 3 * spec.out_width) // spec.merge**2
    return capacity * (4 * rows + packed + cached + merged)
