"""A font whose letters are invisible and mean whatever the text needs: the carrier of a searchable PDF's text.

Each character of the document gets a code of its own, and a map from codes to Unicode, so that text of any script, also beyond
the 16 bits of the codes, is found and copied.  The font is one TrueType glyph without area, made here byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pikepdf
from pikepdf import Array, Dictionary, Name, Stream

EM = 1000
WIDTH, ASCENT, DESCENT = 500, 800, -200
LAST_CODE = 0xFFFF
UNKNOWN = "\ufffd"
_LISTED_AT_ONCE = 100  # entries that one block of a map may have


class Codes:
    """Two-byte codes of a document's characters, in order of code points.  Code 1 is U+FFFD, for characters beyond the last."""

    def __init__(self, characters: Iterable[str]) -> None:
        known = [UNKNOWN, *sorted(set(characters) - {UNKNOWN})][:LAST_CODE]
        self._codes = {character: code for code, character in enumerate(known, 1)}

    def encode(self, text: str) -> str:
        """The text as a hexadecimal PDF string."""
        return "<" + "".join(f"{self._codes.get(character, 1):04X}" for character in text) + ">"

    def unicode_map(self) -> bytes:
        """The CMap that says what each code means."""
        entries = [f"<{code:04X}> <{character.encode('utf-16-be').hex().upper()}>" for character, code in self._codes.items()]
        blocks = []
        for start in range(0, len(entries), _LISTED_AT_ONCE):
            block = entries[start : start + _LISTED_AT_ONCE]
            blocks.append(f"{len(block)} beginbfchar\n" + "\n".join(block) + "\nendbfchar")
        return (
            "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n"
            "/CIDSystemInfo << /Registry (Adobe) /Ordering (UCS) /Supplement 0 >> def\n"
            "/CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n"
            "1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n"
            + "\n".join(blocks)
            + "\nendcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n"
        ).encode("ascii")

    @property
    def glyph_map(self) -> bytes:
        """Glyph 1 for every code."""
        return b"\0\0" + b"\0\1" * len(self._codes)


def add_font(pdf: pikepdf.Pdf, codes: Codes) -> pikepdf.Object:
    """The font as an object of ``pdf``."""
    program = font_program()
    file = Stream(pdf, program)
    file.Length1 = len(program)
    descriptor = Dictionary(
        Type=Name.FontDescriptor,
        FontName=Name("/PagemillGlyphless"),
        Flags=4,
        FontBBox=Array([0, DESCENT, WIDTH, ASCENT]),
        ItalicAngle=0,
        Ascent=ASCENT,
        Descent=DESCENT,
        CapHeight=ASCENT,
        StemV=80,
        FontFile2=file,
    )
    descendant = Dictionary(
        Type=Name.Font,
        Subtype=Name.CIDFontType2,
        BaseFont=Name("/PagemillGlyphless"),
        CIDSystemInfo=Dictionary(Registry=pikepdf.String("Adobe"), Ordering=pikepdf.String("Identity"), Supplement=0),
        CIDToGIDMap=Stream(pdf, codes.glyph_map),
        DW=WIDTH,
        FontDescriptor=pdf.make_indirect(descriptor),
    )
    font = Dictionary(
        Type=Name.Font,
        Subtype=Name.Type0,
        BaseFont=Name("/PagemillGlyphless"),
        Encoding=Name("/Identity-H"),
        DescendantFonts=Array([pdf.make_indirect(descendant)]),
        ToUnicode=Stream(pdf, codes.unicode_map()),
    )
    return pdf.make_indirect(font)


def font_program() -> bytes:
    """A TrueType file with glyph 0, empty, and glyph 1: a line from corner to corner, which has a box and covers nothing."""
    glyph = struct.pack(">5hHH2B4h", 1, 0, DESCENT, WIDTH, ASCENT, 1, 0, 1, 1, 0, WIDTH, DESCENT, ASCENT - DESCENT)
    glyph += b"\0" * (-len(glyph) % 4)
    tables = {
        b"glyf": glyph,
        b"head": struct.pack(
            ">IIIIHHqqhhhhHHhhh",
            *(0x00010000, 0x00010000, 0, 0x5F0F3CF5, 0, EM, 0, 0, 0, DESCENT, WIDTH, ASCENT, 0, 8, 2, 1, 0),
        ),
        b"hhea": struct.pack(">IhhhHhhhhhh4hhH", 0x00010000, ASCENT, DESCENT, 0, WIDTH, 0, 0, WIDTH, 1, *([0] * 7), 2),
        b"hmtx": struct.pack(">HhHh", WIDTH, 0, WIDTH, 0),
        b"loca": struct.pack(">3I", 0, 0, len(glyph)),
        b"maxp": struct.pack(">I14H", 0x00010000, 2, 2, 1, 0, 0, 1, *([0] * 8)),
    }
    return _assembled(tables)


def _assembled(tables: dict[bytes, bytes]) -> bytes:
    """The tables behind their directory."""
    count = len(tables)
    power = count.bit_length() - 1
    directory = struct.pack(">IHHHH", 0x00010000, count, 16 << power, power, count * 16 - (16 << power))
    offset = len(directory) + 16 * count
    body = b""
    for tag, table in sorted(tables.items()):
        directory += struct.pack(">4sIII", tag, _checksum(table), offset + len(body), len(table))
        body += table + b"\0" * (-len(table) % 4)
    return directory + body


def _checksum(table: bytes) -> int:
    padded = table + b"\0" * (-len(table) % 4)
    words: tuple[int, ...] = struct.unpack(f">{len(padded) // 4}I", padded)
    return sum(words) & 0xFFFFFFFF
