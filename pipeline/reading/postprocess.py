"""The model's words become Markdown, and Markdown becomes plain text.  Small repairs; what is unclear is left as it is."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")  # the form feed among them: it separates pages in text files
_FENCED = re.compile(r"\A```(?:markdown|md)\n(.*?)\n?```\Z", re.DOTALL)
_ESCAPED_MATH = re.compile(r"\\\$([^\s$](?:[^$\n]*[^\s$\\])?)\\\$")
_MATH = re.compile(r"\A[A-Za-z]\Z|[\\^_={}<>+]")

_TABLE = re.compile(r"<table\b.*?(?:</table\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(
    r"</?(?:a|b|i|u|s|p|em|strong|sub|sup|div|span|small|center|figure|figcaption|ul|ol|li|h[1-6])(?:\s[^<>]*)?/?>", re.I
)
_BREAK = re.compile(r"<br\s*/?>", re.I)
_COMMENT = re.compile(r"<!--(?:(?!<!--).)*?-->", re.DOTALL)
_RULE_ROW = re.compile(r"\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?")
_HEADING = re.compile(r"#{1,6}\s+(.*?)(?:\s+#+)?")
_QUOTE = re.compile(r"(?:>\s?)+")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?:\s\"[^\"\n]*\")?\)")
_STRONG = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_STAR = re.compile(r"(?<![\w*\\])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])")
_UNDERSCORE = re.compile(r"(?<![\w\\])_(?=[^\s_])([^_\n]+?)(?<=[^\s_])_(?!\w)")
_CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_ESCAPE = re.compile(r"\\([\\`*_{}\[\]()#+\-.!|>~$])")


def to_markdown(text: str) -> str:
    """The model's answer, tidied: line ends, control characters, a fence around all of it, and ``\\$x\\$`` for ``$x$``.

    Escaped dollars are mended only around what looks like mathematics; ``\\$5 and \\$10`` are prices.
    """
    text = _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    text = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")
    if fenced := _FENCED.match(text):
        text = fenced[1].strip("\n")
    return _ESCAPED_MATH.sub(lambda found: f"${found[1]}$" if _MATH.search(found[1]) else found[0], text)


def to_plain_text(markdown: str) -> str:
    """Markdown without its marks: words, line by line; the cells of a table row separated by tabs; formulas as they are."""
    text = _TABLE.sub(lambda found: "\n" + _table_text(found[0]) + "\n", markdown)
    text = _COMMENT.sub("", text)
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            lines.append(line)
        elif not _is_table_rule(line):
            lines.append(_plain_line(line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _plain_line(line: str) -> str:
    """One line without block marks, then without inline marks."""
    if quote := _QUOTE.match(line):
        line = line[quote.end() :]
    if heading := _HEADING.fullmatch(line.strip()):
        line = heading[1]
    row = line.strip()
    if len(row) > 1 and row.startswith("|") and row.endswith("|") and not row.endswith("\\|"):
        return "\t".join(_plain_words(cell.strip()) for cell in re.split(r"(?<!\\)\|", row[1:-1]))
    return _plain_words(line)


def _plain_words(text: str) -> str:
    """Inline marks removed."""
    text = _TAG.sub("", _BREAK.sub("\n", text))
    text = _CODE.sub(r"\2", _IMAGE_OR_LINK.sub(r"\1", text))
    text = _UNDERSCORE.sub(r"\1", _STAR.sub(r"\1", _STRONG.sub(r"\2", text)))
    return html.unescape(_ESCAPE.sub(r"\1", text)).rstrip()


def _is_table_rule(line: str) -> bool:
    """``|---|:-:|``: drawn by the notation, not by the page.  A plain ``---`` stays."""
    row = line.strip()
    return "|" in row and "-" in row and _RULE_ROW.fullmatch(row) is not None


def _table_text(table: str) -> str:
    """The rows of an HTML table, cells separated by tabs."""
    parser = _TableText()
    parser.feed(table)
    parser.close()
    return "\n".join("\t".join(" ".join("".join(cell).split()) for cell in row) for row in parser.rows)


class _TableText(HTMLParser):
    """Collects rows of cells; an unclosed cell or row ends where the next one begins."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr" or (tag in ("td", "th") and not self.rows):
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append([])
        elif tag == "br":
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1].append(data)
        elif data.strip():  # a caption, or text before the first cell
            self.rows.append([[data]])
