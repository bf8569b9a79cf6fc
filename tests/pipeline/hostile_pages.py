"""Page records that outputs have to take: every status, and texts that break careless writers."""

from __future__ import annotations

import sys
from pathlib import Path

from pagemill.pipeline.page import Attempt, PageRef, PageText, Picture

HASH = "ab" * 32
PATH = Path("/in/scan.pdf")
PROVENANCE = {"software": "pagemill 0.1.0", "model": "cd" * 32, "settings": "ef" * 32, "image_hash": "01" * 32}
PICTURE = Picture(1092, 1540, 130.5)

TEXTS = {
    "plain": "# One\n\n**first** page | with | bars\n\n- item\n- item",
    "markup": "<b>&amp;]]></b> \"quoted\" 'single' <!-- comment -- > --> <?xml?> <![CDATA[x]]> &#0; %PDF",
    "control": "".join(map(chr, range(32))) + "\x7f\x80\x9f end\x00\x0b\x0c",
    "not characters": "a\ufffe\uffff\ud800b\udfff c\U0001ffff",
    "astral": "\U00010348 \U0001f4dc\U0001f469\u200d\U0001f52c \U0002070e\U000e0041 \U0010fffd",
    "right to left": "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd 1912 (page 3) \u0645\u0631\u062d\u0628\u0627",
    "overrides": "\u202eevil\u202c \u2066in\u2069 \u200f\u200e \u2028 \u2029 \u0085",
    "combining": "e" + "\u0301" * 300 + " Z\u0351\u036b\u0343\u036a",
    "spaces": "\t \u00a0 \u2003 \u3000 a  b \r\n c \r d",
    "one word": "x" * 20_000,
    "5000 lines": "\n".join(f"row {number} do. do. {number * 7}" for number in range(5000)),
    "table": '<table><tr><th colspan="2">a<td>b</table>\n\n| c | d |\n|---|---|\n| e | f |',
    "boxes": "![title](0,0,1000,90) # T\n\n![text](50,100,480,900) left\ncolumn\n\n![image](500,100,950,500)\n\n"
    "![text+](500,520,950,900) right \u05d0\u05d1",
    "boxes at odds": "before\n\n![text](900,900,100,100) turned\n\n![text](5,5,5,5)\n\n![table](0,0,1000,1000)\n|a|\n|-|\n|b|",
    "no boxes": "![text](0,0,1001,5) x\n\n![figure](1,2,3,4) y\n\n![alt](picture.png)",
}  # fmt: skip


def page(number: int, text: str, status: str = "ok", reason: str = "", **more: object) -> PageText:
    """A record with everything known."""
    record = {
        "tokens": len(text), "mean_log_prob": -0.125, "timings": {"decode": 1.5}, "provenance": PROVENANCE,
        "attempts": (Attempt("looped", "the end repeats", 99, -1.0), Attempt("ok", temperature=0.2)),
        "chosen": 1,
        "word_confidences": tuple(index % 101 for index in range(len(text.split()))), "picture": PICTURE,
        "finished_at": 1764454500,
    } | more  # fmt: skip
    return PageText(PageRef(HASH, number), text, status, reason, **record)  # type: ignore[arg-type]


TURNED = {
    f"turned {turn}": page(0, "![text](100,200,300,250) word", attempts=(Attempt("ok", turn=turn),), chosen=0)
    for turn in (90, 180, 270)
}
HALVES = page(0, "![text](100,200,300,250) word", tokens=5, attempts=(Attempt("ok", "", 5, parts=2),), chosen=0)
NOT_OK = {
    "blank": page(0, "", "blank", "no ink on the page (0 marked pixels)", attempts=(), chosen=0, word_confidences=()),
    "failed": page(
        0, "", "failed", "PDF --> is <damaged> & \x00 gone\n2nd line", picture=None, mean_log_prob=None, attempts=(), chosen=0
    ),
    "bare": PageText(PageRef(HASH, 0), "", "failed"),
    "bare text": PageText(PageRef(HASH, 0), "text of an older record", "ok"),
    "truncated": page(0, "cut", "truncated", "max_tokens was reached after 3 tokens"),
    "looped": page(0, "do. do. do.", "looped", "the last 2 tokens repeat"),
    "low_confidence": page(0, "hm", "low_confidence", "confidence 0.3", mean_log_prob=-5.0),
    "odd numbers": page(0, "x", mean_log_prob=float("-inf"), word_confidences=(100,), picture=Picture(1, 1, 72.0)),
    "not a number": page(0, "x", mean_log_prob=float("nan"), finished_at=None),
    "larger than allowed": page(0, "x", mean_log_prob=1e-9, tokens=sys.maxsize),
}
CASES = {name: page(0, text) for name, text in TEXTS.items()} | NOT_OK | TURNED | {"halves": HALVES}
