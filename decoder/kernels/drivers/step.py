"""The step header: what changes between steps, as int64 at fixed indices, which every op reads."""

ROWS = 0
"""How many rows the step has."""
OUTPUTS = 1
"""How many of them need logits."""
SEGMENTS = 2
"""How many segments (runs of rows of one sequence) the step has."""
SLOTS = 8
"""Length of the header."""
