"""The header of a GGUF file: metadata and tensor records, from bytes alone.

Pure: ``parse_header`` reads a buffer, never a file, and keeps no view of it (``files.open_file`` does the reading).  The bytes
are not trusted: every count, length and offset is checked against what is there before it is used, so broken or hostile input
ends in ``NotGguf`` with the byte where it went wrong.  Format: ggml's docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from mmap import mmap
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pagemill.decoder.errors import NotGguf
from pagemill.decoder.gguf.header import Header as Header  # callers import the records from here
from pagemill.decoder.gguf.header import TensorInfo as TensorInfo

Bytes = bytes | bytearray | memoryview | mmap | NDArray[np.uint8]

# type id: (name, elements a block, bytes a block); every storage type of ggml.h, supported by the engine or not
TYPES: Final[Mapping[int, tuple[str, int, int]]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
    42: ("Q2_0", 64, 18),
}

# metadata value type: its little-endian layout
_SCALARS: Final[Mapping[int, str]] = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "|b1", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_BOOL, _STRING, _ARRAY = 7, 8, 9
_MAX_DEPTH = 4  # arrays of arrays; no known file nests at all
_MAX_KEY_BYTES = 65_535
_MAX_DIMS = 4
_MIN_PAIR_BYTES = 8 + 1 + 4 + 1  # a key of one byte, its type, a one-byte value
_MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8  # an empty name, one dimension
_MAX_ALIGNMENT = 1 << 30


def parse_header(data: Bytes, file_bytes: int | None = None) -> Header:
    """Reads the header at the start of ``data``.

    data: the bytes of the file, or at least of its header.  file_bytes: the file's size when ``data`` is only its beginning;
    tensors are checked against it, their bytes are never touched.  The result keeps no reference to ``data``.

    Raises NotGguf when the bytes are no GGUF v2 or v3 file, or a truncated, malformed or lying one.
    """
    with data.data if isinstance(data, np.ndarray) else memoryview(data) as view:
        size = len(view) if file_bytes is None else file_bytes
        cursor = _Cursor(view)
        version = _version(cursor)
        tensor_count, pair_count = cursor.integer("<q", "tensor count"), cursor.integer("<q", "metadata count")
        cursor.expect(tensor_count, _MIN_TENSOR_BYTES, "tensors")
        cursor.expect(pair_count, _MIN_PAIR_BYTES, "metadata entries")
        metadata = _metadata(cursor, pair_count)
        alignment = _alignment(metadata)
        records = [_tensor_record(cursor) for _ in range(tensor_count)]
        data_offset = -(-cursor.position // alignment) * alignment
        tensors = _place(records, data_offset, alignment, size)
    return Header(version, alignment, MappingProxyType(metadata), MappingProxyType(tensors), data_offset, size)


class _Cursor:
    """A position in untrusted bytes; every read is checked first."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.position = 0

    def expect(self, count: int, unit_bytes: int, what: str) -> None:
        """Refuses a count of things of at least unit_bytes each that cannot fit in the bytes that are left."""
        left = len(self.view) - self.position
        if not 0 <= count * unit_bytes <= left:
            raise NotGguf(
                f"byte {self.position}: {count} {what} do not fit in the {left} bytes that follow; "
                "the file is truncated or damaged: download or copy it again"
            )

    def take(self, length: int, what: str) -> memoryview:
        """The next ``length`` bytes."""
        self.expect(length, 1, f"bytes of {what}")
        start, self.position = self.position, self.position + length
        return self.view[start : self.position]

    def integer(self, layout: str, what: str) -> int:
        """The next integer; layout as in the struct module."""
        value: int = struct.unpack(layout, self.take(struct.calcsize(layout), what))[0]
        return value

    def text(self, what: str) -> str:
        """The next string; bytes that are not UTF-8 survive as surrogate escapes."""
        return str(self.take(self.integer("<Q", f"the length of {what}"), what), "utf-8", "surrogateescape")


def _version(cursor: _Cursor) -> int:
    """Checks the magic, returns the version."""
    view = cursor.view
    start = bytes(view[:4])
    if start != b"GGUF":
        hint = "give the .gguf file of a model"
        if start == b"vers":
            hint = "this looks like a Git LFS pointer: fetch the file itself (git lfs pull)"
        elif start in (b"lmgg", b"tjgg", b"fmgg", b"algg", b"FUGG"):
            hint = "this is an older or big-endian ggml file: convert the model again with a current converter"
        raise NotGguf(f"not a GGUF file: expected it to start with b'GGUF', found {start!r}; {hint}")
    cursor.position = 4
    version = cursor.integer("<I", "the version")
    if version in (2, 3):
        return version
    found = f"version {version}"
    if version and version & 0xFFFF == 0:
        found = "a big-endian file"
    raise NotGguf(f"expected a little-endian GGUF file of version 2 or 3, found {found}: convert the model again")


def _metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    """Reads ``count`` key-value pairs."""
    metadata: dict[str, object] = {}
    for _ in range(count):
        start = cursor.position
        key = cursor.text("a metadata key")
        if not key or len(key) > _MAX_KEY_BYTES:
            raise NotGguf(f"byte {start}: expected a metadata key of 1 to {_MAX_KEY_BYTES} bytes, found {len(key)}")
        if key in metadata:
            raise NotGguf(f"byte {start}: metadata key {key!r} occurs twice")
        metadata[key] = _value(cursor, cursor.integer("<I", f"the type of {key!r}"), key, 0)
    return metadata


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> object:
    """Reads one value: int, float, bool, str, a numpy array of numbers, or a tuple of strings or of arrays."""
    if kind == _STRING:
        return cursor.text(key)
    if kind == _ARRAY:
        return _array(cursor, key, depth + 1)
    layout = _SCALARS.get(kind)
    if layout is None:
        raise NotGguf(f"byte {cursor.position - 4}: {key!r} has value type {kind}, expected 0 to 12")
    if kind == _BOOL:
        return cursor.take(1, key)[0] != 0
    dtype = np.dtype(layout)
    return np.frombuffer(cursor.take(dtype.itemsize, key), dtype)[0].item()


def _array(cursor: _Cursor, key: str, depth: int) -> object:
    """Reads an array; see _value."""
    if depth > _MAX_DEPTH:
        raise NotGguf(f"byte {cursor.position}: {key!r} nests arrays deeper than {_MAX_DEPTH}")
    kind = cursor.integer("<I", f"the element type of {key!r}")
    count = cursor.integer("<Q", f"the length of {key!r}")
    if kind == _STRING:
        return _strings(cursor, key, count)
    if kind == _ARRAY:
        cursor.expect(count, 12, f"arrays of {key!r}")
        return tuple(_array(cursor, key, depth + 1) for _ in range(count))
    layout = _SCALARS.get(kind)
    if layout is None:
        raise NotGguf(f"byte {cursor.position - 12}: {key!r} has element type {kind}, expected 0 to 12")
    dtype = np.dtype(layout)
    cursor.expect(count, dtype.itemsize, f"elements of {key!r}")
    raw = cursor.take(count * dtype.itemsize, key)
    # Both make a copy, so that no view of the file outlives parse_header.
    numbers = np.frombuffer(raw, np.uint8) != 0 if kind == _BOOL else np.frombuffer(raw, dtype).copy()
    numbers.flags.writeable = False
    return numbers


def _strings(cursor: _Cursor, key: str, count: int) -> tuple[str, ...]:
    """Reads ``count`` strings; a vocabulary has hundreds of thousands, so the loop touches only local names."""
    cursor.expect(count, 8, f"strings of {key!r}")
    view, position, end = cursor.view, cursor.position, len(cursor.view)
    length_at = struct.Struct("<Q").unpack_from
    strings: list[str] = []
    append = strings.append
    for _ in range(count):
        if position + 8 > end:
            break
        start = position + 8
        position = start + length_at(view, position)[0]
        if position > end:
            break
        append(str(view[start:position], "utf-8", "surrogateescape"))
    if len(strings) < count:
        raise NotGguf(
            f"byte {cursor.position}: {key!r} says {count} strings, the bytes end in number {len(strings)}; "
            "the file is truncated or damaged: download or copy it again"
        )
    cursor.position = position
    return tuple(strings)


def _alignment(metadata: Mapping[str, object]) -> int:
    """The alignment of tensor data; 32 unless the file says otherwise."""
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise NotGguf(f"general.alignment: expected a power of two up to {_MAX_ALIGNMENT}, found {alignment!r}")
    return alignment


@dataclass(frozen=True, slots=True)
class _Record:
    """A tensor as the file lists it; offset is relative to the data section."""

    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _tensor_record(cursor: _Cursor) -> _Record:
    """Reads one tensor record."""
    name = cursor.text("a tensor name")
    dims = cursor.integer("<I", f"the number of dimensions of {name!r}")
    if not 1 <= dims <= _MAX_DIMS:
        raise NotGguf(f"tensor {name!r}: expected 1 to {_MAX_DIMS} dimensions, found {dims}")
    shape = struct.unpack(f"<{dims}q", cursor.take(8 * dims, f"the shape of {name!r}"))
    if min(shape) < 1:
        raise NotGguf(f"tensor {name!r}: expected positive dimensions, found {list(shape)}")
    return _Record(name, shape, cursor.integer("<I", f"the type of {name!r}"), cursor.integer("<Q", f"the offset of {name!r}"))


def _place(records: list[_Record], data_offset: int, alignment: int, file_bytes: int) -> dict[str, TensorInfo]:
    """Checks every tensor against the file's size and gives it its absolute offset."""
    tensors: dict[str, TensorInfo] = {}
    for record in records:
        name = record.name
        if name in tensors:
            raise NotGguf(f"tensor {name!r} occurs twice")
        if record.offset % alignment:
            raise NotGguf(f"tensor {name!r}: expected an offset in multiples of {alignment}, found {record.offset}")
        type_name, size = _stored(record)
        start = data_offset + record.offset
        if start + size > file_bytes:
            raise NotGguf(
                f"tensor {name!r}: its {size} bytes at {start} end after the file, which has {file_bytes} bytes; "
                "the file is truncated or damaged: download or copy it again"
            )
        tensors[name] = TensorInfo(name, record.shape, type_name, record.type_id, start, size)
    _refuse_overlaps(sorted((info for info in tensors.values() if info.size_bytes), key=lambda info: info.offset))
    return tensors


def _refuse_overlaps(tensors: list[TensorInfo]) -> None:
    """tensors: by offset.  Bytes of two tensors at once are a lie about one of them."""
    for before, after in pairwise(tensors):
        if after.offset < before.offset + before.size_bytes:
            raise NotGguf(
                f"tensors {before.name!r} and {after.name!r} overlap at byte {after.offset}: the file is damaged, "
                "download or convert it again"
            )


def _stored(record: _Record) -> tuple[str, int]:
    """A tensor's type name and its bytes; 0 bytes when the type is unknown or rows are no whole blocks (plan refuses both)."""
    name, block, block_bytes = TYPES.get(record.type_id, (f"type {record.type_id}", 0, 0))
    if block == 0 or record.shape[0] % block:
        return name, 0
    elements = 1
    for length in record.shape:
        elements *= length  # Python integers do not overflow
    return name, elements // block * block_bytes
