"""The GGUF parser: what it reads, what it refuses, and that no bytes whatever get anything else out of it."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import gguf as reference
import numpy as np
import pytest

from pagemill.decoder.errors import ModelError, NotGguf, Refused
from pagemill.decoder.gguf.files import open_file
from pagemill.decoder.gguf.parse import TYPES, Header, parse_header
from pagemill.decoder.plan import plan
from tests.answers import oracle_files
from tests.build import ARRAY, BOOL, F64, I8, I64, STRING, U8, U64, Tensor, Typed, gguf_bytes, tiny_parts


@pytest.mark.parametrize("version", [2, 3])
def test_values_of_every_type_come_back(version: int) -> None:
    metadata: dict[str, object] = {
        "u8": Typed(U8, 255),
        "i8": Typed(I8, -128),
        "u64": Typed(U64, 2**64 - 1),
        "i64": Typed(I64, -(2**63)),
        "f64": Typed(F64, 0.1),
        "yes": True,
        "text": "naïve 頁",
        "empty": "",
        "raw": b"\xff\xfe".decode("utf-8", "surrogateescape"),
        "numbers": Typed(ARRAY, (I64, [1, -2, 3])),
        "flags": Typed(ARRAY, (BOOL, [1, 0, 2])),
        "words": ["a", "", "頁"],
        "nested": Typed(ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])),
    }
    header = parse_header(gguf_bytes(metadata, version=version))
    assert header.version == version
    assert header.integer("u8") == 255
    assert header.integer("i8") == -128
    assert header.integer("u64") == 2**64 - 1
    assert header.integer("i64") == -(2**63)
    assert header.number("f64") == 0.1
    assert header.flag("yes") is True
    assert header.text("text") == "naïve 頁"
    assert header.text("empty") == ""
    assert header.text("raw").encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert header.integers("numbers").tolist() == [1, -2, 3]
    assert header.metadata["flags"].tolist() == [True, False, True]  # type: ignore[attr-defined]
    assert header.texts("words") == ("a", "", "頁")
    assert [list(each) for each in header.metadata["nested"]] == [[1, 2], ["x"]]  # type: ignore[attr-defined]


def test_tensors_lie_where_the_file_says() -> None:
    data = gguf_bytes(
        {"general.alignment": 64},
        [("a", Tensor((3, 2), 0, bytes(24))), ("b", Tensor((32,), 8, bytes(34))), ("c", Tensor((5,), 99, b""))],
        alignment=64,
    )
    header = parse_header(data)
    assert header.alignment == 64
    assert header.data_offset % 64 == 0
    a, b, c = header.tensors.values()
    assert (a.shape, a.type_name, a.offset, a.size_bytes, a.rows) == ((3, 2), "F32", header.data_offset, 24, 2)
    assert (b.shape, b.type_name, b.offset, b.size_bytes) == ((32,), "Q8_0", header.data_offset + 64, 34)
    assert (c.type_name, c.type_id, c.size_bytes) == ("type 99", 99, 0)


@pytest.mark.parametrize("offset", [0, 32])
def test_overlapping_tensors_are_refused(offset: int) -> None:
    tensors = [("a", Tensor((16,))), ("b", Tensor((8,), offset=offset))]
    with pytest.raises(NotGguf, match=r"tensors '[ab]' and '[ab]' overlap at byte"):
        parse_header(gguf_bytes((), tensors))


def test_tensors_side_by_side_do_not_overlap() -> None:
    assert len(parse_header(gguf_bytes((), [("a", Tensor((16,))), ("b", Tensor((8,), offset=64))])).tensors) == 2


def test_header_alone_is_enough() -> None:
    tensors = [("a", Tensor((1024, 1024)))]
    head = gguf_bytes({"x": 1}, tensors, with_data=False)
    with pytest.raises(NotGguf, match="end after the file"):
        parse_header(head)
    header = parse_header(head, file_bytes=len(gguf_bytes({"x": 1}, tensors)))
    assert header.tensors["a"].size_bytes == 4 << 20


def test_header_keeps_no_view_of_its_bytes() -> None:
    data = bytearray(gguf_bytes({"numbers": [1, 2, 3], "words": ["a"]}))
    header = parse_header(data)
    data[:] = bytes(0)  # a bytearray with views of it cannot shrink
    assert header.integers("numbers").tolist() == [1, 2, 3]


def _long(text: str, *, at: int, value: int, layout: str = "<Q") -> Callable[[], bytes]:
    """A valid file whose integer ``at`` bytes after the first occurrence of ``text`` is overwritten."""

    def build() -> bytes:
        parts = tiny_parts()
        parts.metadata["words"] = ["a", "b"]
        parts.metadata["numbers"] = Typed(ARRAY, (I64, [1, 2]))
        data = bytearray(parts.bytes())
        where = data.index(text.encode()) + len(text) + at
        struct.pack_into(layout, data, where, value)
        return bytes(data)

    return build


def _nested(depth: int) -> Typed:
    """An array in an array in an array ..."""
    value = Typed(ARRAY, (U8, [1]))
    for _ in range(depth):
        value = Typed(ARRAY, (ARRAY, [value]))
    return value


HUGE = 2**63 - 1
BROKEN: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "start with b'GGUF'"),
    "three bytes": (lambda: b"GGU", "start with b'GGUF'"),
    "another format": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(64), "start with b'GGUF'"),
    "an LFS pointer": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    "an older format": (lambda: b"lmgg" + bytes(64), "older"),
    "magic alone": (lambda: b"GGUF", "version"),
    "version 1": (lambda: gguf_bytes(version=1), "version 1"),
    "version 4": (lambda: gguf_bytes(version=4), "version 4"),
    "big-endian": (lambda: b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "counts missing": (lambda: gguf_bytes()[:12], "truncated"),
    "negative tensor count": (lambda: gguf_bytes(tensor_count=2**64 - 1), "tensors do not fit"),
    "absurd tensor count": (lambda: gguf_bytes(tensor_count=2**60), "tensors do not fit"),
    "absurd metadata count": (lambda: gguf_bytes(pair_count=2**40), "metadata entries do not fit"),
    "one entry too many": (lambda: gguf_bytes({"a" * 40: 1, "b": 2}, pair_count=3), "metadata key"),
    "duplicate key": (lambda: gguf_bytes([("a", 1), ("a", 2)]), "occurs twice"),
    "empty key": (lambda: gguf_bytes({"": 1}), "metadata key"),
    "absurd key length": (_long("", at=24, value=HUGE), "do not fit"),
    "absurd text length": (_long("general.name", at=4, value=2**64 - 1), "do not fit"),
    "unknown value type": (_long("general.name", at=0, value=13, layout="<I"), "value type 13"),
    "absurd array length": (_long("numbers", at=8, value=2**61), "do not fit"),
    "absurd number of strings": (_long("words", at=8, value=2**62), "do not fit"),
    "a few strings too many": (_long("words", at=8, value=300), "words"),
    "absurd string in an array": (_long("words", at=16, value=2**64 - 8), "'words' says 2 strings"),
    "unknown element type": (_long("numbers", at=4, value=99, layout="<I"), "element type 99"),
    "deep nesting": (lambda: gguf_bytes({"deep": _nested(50)}), "deeper than"),
    "alignment 0": (lambda: gguf_bytes({"general.alignment": 0}), "power of two"),
    "alignment 48": (lambda: gguf_bytes({"general.alignment": 48}), "power of two"),
    "alignment of text": (lambda: gguf_bytes({"general.alignment": "32"}), "power of two"),
    "absurd alignment": (lambda: gguf_bytes({"general.alignment": Typed(U64, 2**63)}), "power of two"),
    "duplicate tensor": (lambda: gguf_bytes((), [("a", Tensor((8,)))] * 2), "occurs twice"),
    "no dimensions": (lambda: gguf_bytes((), [("a" * 40, Tensor((), data=b""))]), "1 to 4 dimensions"),
    "five dimensions": (lambda: gguf_bytes((), [("a", Tensor((1, 1, 1, 1, 1)))]), "1 to 4 dimensions"),
    "dimension 0": (lambda: gguf_bytes((), [("a", Tensor((8, 0)))]), "positive"),
    "negative dimension": (lambda: gguf_bytes((), [("a", Tensor((8, -1), data=bytes(32)))]), "positive"),
    "product overflows": (lambda: gguf_bytes((), [("a", Tensor((2**32, 2**32, 2**32), data=bytes(32)))]), "end after the file"),
    "odd offset": (lambda: gguf_bytes((), [("a", Tensor((8,), offset=8))]), "multiples of 32"),
    "offset outside": (lambda: gguf_bytes((), [("a", Tensor((8,), offset=1 << 20))]), "end after the file"),
    "absurd offset": (lambda: gguf_bytes((), [("a", Tensor((8,), offset=2**64 - 32))]), "end after the file"),
    "data cut by one byte": (lambda: gguf_bytes((), [("a", Tensor((8,)))])[:-1], "end after the file"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_the_reason(name: str) -> None:
    build, message = BROKEN[name]
    with pytest.raises(NotGguf) as caught:
        parse_header(build())
    assert message in str(caught.value)


def test_every_truncation_is_refused() -> None:
    data = tiny_parts(layers=1, vocab=5, width=8, ff_width=8, heads=1, kv_heads=1, head_dim=8).bytes()
    head = parse_header(data).data_offset
    for length in [*range(0, head, 3), head, len(data) - 1]:
        with pytest.raises(NotGguf):
            parse_header(data[:length])


def test_random_damage_gives_a_header_or_a_refusal() -> None:
    parts = tiny_parts(layers=1, vocab=8)
    parts.metadata["nested"] = Typed(ARRAY, (ARRAY, [(U8, [1]), (STRING, ["x"])]))
    original = parts.bytes()
    head = parse_header(original).data_offset
    rng = random.Random(20)
    planned = 0
    for _ in range(2500):
        data = bytearray(original)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(head)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if rng.random() < 0.1:
            del data[rng.randrange(head) :]
        try:
            header = parse_header(data)
        except NotGguf:
            continue
        assert isinstance(header, Header)
        for info in header.tensors.values():
            assert 0 <= info.offset <= info.offset + info.size_bytes <= len(data)
        with suppress(Refused):
            plan(header)
            planned += 1
    assert planned > 50  # damage in strings and weights of facts leaves some files whole; the loop reaches that far


# The reference reader knows no Q2_0, which is younger.
READABLE = [path for path in oracle_files("*/*.gguf") if not path.stem.endswith("Q2_0")]


@pytest.mark.parametrize("path", READABLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_files_of_the_reference_writer_read_as_its_reader_reads_them(path: Path) -> None:
    header, data = open_file(path)
    expected = reference.GGUFReader(path)
    keys = [key for key in expected.fields if not key.startswith("GGUF.")]
    assert list(header.metadata) == keys
    for key in keys:
        value, other = header.metadata[key], expected.fields[key].contents()
        assert (
            value.tolist() if isinstance(value, np.ndarray) else list(value) if isinstance(value, tuple) else value
        ) == other
    assert len(header.tensors) == len(expected.tensors)
    for tensor in expected.tensors:
        info = header.tensors[tensor.name]
        assert info.shape == tuple(int(length) for length in tensor.shape)
        assert (info.type_id, info.offset, info.size_bytes) == (tensor.tensor_type, tensor.data_offset, tensor.n_bytes)
    assert data.shape == (header.file_bytes,)


def test_type_table_equals_the_reference_writers() -> None:
    sizes = {int(kind): (kind.name, *size) for kind, size in reference.GGML_QUANT_SIZES.items()}
    # 9 and 15 hold activations, never weights; 42 is newer than the oldest writer we allow.
    for type_id, entry in TYPES.items():
        assert type_id == 42 or sizes.get(type_id, entry) == entry
    assert set(sizes) - set(TYPES) <= {9, 15}


def test_large_vocabulary_parses_fast() -> None:
    data = gguf_bytes({"tokens": [f"Ġtoken{index}" for index in range(150_000)], "merges": ["Ġ t"] * 150_000})
    seconds = []
    for _ in range(3):
        start = time.thread_time()
        header = parse_header(data)
        seconds.append(time.thread_time() - start)
    assert len(header.texts("tokens")) == 150_000
    assert min(seconds) < 0.5  # measured 0.13; well under a second even on a slow machine


GETTERS: dict[str, tuple[Callable[[Header], object], str]] = {
    "missing": (lambda header: header.text("none"), "'none' is missing: expected a string"),
    "text": (lambda header: header.text("number"), "'number': expected a string, found int 5"),
    "integer": (lambda header: header.integer("text"), "'text': expected an integer, found str 'five'"),
    "integer from bool": (lambda header: header.integer("flag"), "'flag': expected an integer, found bool True"),
    "number": (lambda header: header.number("words"), "'words': expected a number, found an array of 2 strings"),
    "flag": (lambda header: header.flag("number"), "'number': expected true or false, found int 5"),
    "texts": (lambda header: header.texts("numbers"), "'numbers': expected an array of strings, found an array of 2 uint32"),
    "integers": (
        lambda header: header.integers("floats"),
        "'floats': expected an array of integers, found an array of 1 float32",
    ),
    "integers too large": (lambda header: header.integers("large"), "'large': expected an array of integers"),
    "numbers": (lambda header: header.numbers("text"), "'text': expected an array of numbers, found str 'five'"),
}


@pytest.mark.parametrize("name", GETTERS)
def test_getters_name_key_expected_and_found(name: str) -> None:
    metadata = {"number": 5, "text": "five", "flag": True, "words": ["a", "b"], "numbers": [1, 2], "floats": [0.5]}
    header = parse_header(gguf_bytes({**metadata, "large": Typed(ARRAY, (U64, [2**63]))}))
    get, message = GETTERS[name]
    with pytest.raises(NotGguf) as caught:
        get(header)
    assert message in str(caught.value)


def test_getters_give_defaults_for_missing_keys() -> None:
    header = parse_header(gguf_bytes({"none": Typed(ARRAY, (I64, []))}))
    assert header.text("x", "y") == "y"
    assert header.integer("x", 3) == 3
    assert header.number("x", 0.5) == 0.5
    assert header.flag("x", False) is False
    assert header.texts("x", ()) == ()
    assert header.texts("none") == ()
    assert header.integers("x", [1]).tolist() == [1]
    assert header.numbers("x", [0.5]).tolist() == [0.5]


def test_unreadable_paths_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "text.gguf").write_text("hello")
    for name, message in (("none.gguf", "no such file"), (".", "folder"), ("empty.gguf", "GGUF"), ("text.gguf", "b'hell'")):
        with pytest.raises(ModelError, match=message) as caught:
            open_file(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
