"""The step header: what changes between steps, as int64 at fixed indices, which every op reads."""

ROWS = 0  # how many rows the step has
OUTPUTS = 1  # how many of them need logits
SEGMENTS = 2  # how many segments (runs of rows of one sequence) the step has
SLOTS = 8  # length of the header
