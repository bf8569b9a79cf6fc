"""What ATTEND's units share: slots of the op, of its table of tiles, and of a segment."""

from __future__ import annotations

# slots of an ATTEND op; *_BYTES are strides
# DECODE_VECTOR_BYTES: from 16 dimensions of values to the next.  DECODE_STEP_BYTES: from a step's keys to the next's
QKV, ROW_BYTES, OUT, OUT_BYTES, KV_HEADS, GROUP, CHUNKS, Q_AT = 1, 2, 3, 4, 5, 6, 7, 8
WINDOW, SEGMENTS_AT, LAYER, REGION_BYTES, BLOCK_BYTES = 9, 10, 11, 12, 13
UNIT_BLOCKS, TILES, EXPANDED_BYTES = (
    14,
    15,
    16,
)  # EXPANDED_BYTES: of a converted block of keys; 0 where the tiles read the cache
FLASH_BLOCK_BYTES, FLASH_STEP_BYTES, FLASH_PAIR, FLASH_ROWS, FLASH_KEYS, FLASH_DIMS = 17, 18, 19, 20, 21, 22
DECODE_HEADS, DECODE_DIMS, DECODE_STEP_BYTES, DECODE_VECTOR_BYTES, DECODE_QUERY_BYTES, ROTATIONS = 23, 24, 25, 26, 27, 28
FLASH_QUERY_BYTES = 29

# slots of the table of tile addresses, in bytes
PACK, SCORES, SOFTMAX, MASKED_SOFTMAX, VALUES, FINISH, CLEAR, ROTATE = 0, 8, 16, 24, 32, 40, 48, 56
DECODE_PACK, DECODE_SCORES, DECODE_SOFTMAX, DECODE_MASKED, DECODE_VALUES, DECODE_FACTORS = 64, 72, 80, 88, 96, 104
EXPAND_KEYS, EXPAND_VALUES = 112, 120
TILE_SLOTS = 16

# slots of a segment, in bytes
SEGMENT_FIRST_ROW, SEGMENT_ROWS, SEGMENT_POSITION, SEGMENT_BASE, SEGMENT_KIND, SEGMENT_KEYS = 0, 8, 16, 24, 32, 40
SEGMENT_BYTES = 64
PROMPT_CHUNK, DECODE_ROWS, BIDIRECTIONAL = 0, 1, 2

KEYS = 256
"""Keys per block, at absolute multiples."""
BLOCK_ROWS = 24
"""Packed query rows per block: more would push the scores out of the first cache."""
STATS = 16
"""Bytes of a row's record."""
