"""What ATTEND's units share: kinds of segments, and sizes of blocks.  Fields: ``fields.SegmentFields``."""

from __future__ import annotations

SEGMENT_BYTES = 64
PROMPT_CHUNK, DECODE_ROWS, BIDIRECTIONAL = 0, 1, 2

KEYS = 256  # keys per block, at absolute multiples: so a row's sums do not depend on how its prompt was cut
BLOCK_ROWS = 24  # packed query rows per block: more would push the scores out of the first cache
STATS = 16  # bytes of a row's softmax statistics: maximum, sum, rescale factor
