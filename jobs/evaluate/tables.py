"""The tables of a page's Markdown, as grids of cell texts: pipe tables and HTML tables with spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

LARGEST_SPAN = 1000  # of a cell; a model that repeats itself may write any number
_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*")
_BAR = re.compile(r"(?<!\\)\|")

Place = tuple[int, int]  # row, column


@dataclass
class Table:
    """cells: text by place, a spanning cell at each place that it covers.  origins: the first place of the cell at a place.

    headings: places marked as heading cells.
    """

    cells: dict[Place, str] = field(default_factory=dict)
    origins: dict[Place, Place] = field(default_factory=dict)
    headings: set[Place] = field(default_factory=set)

    def put(self, places: list[Place], text: str) -> None:
        """Write a cell at its places; one that is taken stays."""
        for place in places:
            if place not in self.cells:
                self.cells[place], self.origins[place] = text, places[0]

    def beside(self, place: Place, rows: int, columns: int) -> str | None:
        """The nearest other cell in a direction; None at the edge."""
        row, column = place
        while (there := (row := row + rows, column := column + columns)) in self.cells:
            if self.origins[there] != self.origins[place]:
                return self.cells[there]
        return None

    def above(self, place: Place) -> list[str]:
        """Headings of a cell's column: heading cells above it, else the topmost cell."""
        row, column = place
        return self._headings([(r, column) for r in range(row)])

    def before(self, place: Place) -> list[str]:
        """Headings of a cell's row: heading cells left of it, else the leftmost cell."""
        row, column = place
        return self._headings([(row, c) for c in range(column)])

    def _headings(self, places: list[Place]) -> list[str]:
        there = [place for place in places if self.cells.get(place)]
        marked = [place for place in there if place in self.headings]
        return [self.cells[place] for place in dict.fromkeys([*marked, *there[:1]])]


def find_tables(markdown: str, *, with_pipes: bool = True) -> list[Table]:
    """Every table of a page.  with_pipes: those written with bars too, not only those in HTML."""
    parser = _HtmlTables()
    parser.feed(markdown)
    parser.close()
    return [*(_pipe_tables(markdown) if with_pipes else ()), *parser.tables]


def _pipe_tables(markdown: str) -> Iterator[Table]:
    lines = markdown.split("\n")
    index = 1
    while index < len(lines):
        if "|" in lines[index - 1] and "-" in lines[index] and _RULE.fullmatch(lines[index]):
            table = Table()
            rows = [lines[index - 1]]
            index += 1
            while index < len(lines) and "|" in lines[index]:
                rows.append(lines[index])
                index += 1
            for row, line in enumerate(rows):
                for column, cell in enumerate(_BAR.split(line.strip().removeprefix("|").removesuffix("|"))):
                    table.put([(row, column)], cell.replace("\\|", "|").strip())
            table.headings = {place for place in table.cells if place[0] == 0}
            yield table
        index += 1


class _HtmlTables(HTMLParser):
    """Collects tables; one inside another's cell is a table of its own."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[Table] = []
        self._open: list[_Writing] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._open.append(_Writing())
            self.tables.append(self._open[-1].table)
        elif self._open:
            writing = self._open[-1]
            if tag == "tr":
                writing.start_row()
            elif tag in ("td", "th"):
                writing.start_cell(dict(attrs), is_heading=tag == "th")
            elif tag == "br":
                writing.add("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._open and tag in ("td", "th", "tr", "table"):
            self._open[-1].end_cell()
            if tag == "table":
                self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            self._open[-1].add(data)

    def close(self) -> None:
        super().close()
        for writing in self._open:
            writing.end_cell()


class _Writing:
    """A table that is being read."""

    def __init__(self) -> None:
        self.table = Table()
        self._row = -1
        self._cell: tuple[list[Place], bool] | None = None
        self._text: list[str] = []

    def start_row(self) -> None:
        self.end_cell()
        self._row += 1

    def start_cell(self, attributes: dict[str, str | None], *, is_heading: bool) -> None:
        self.end_cell()
        self._row = max(self._row, 0)
        column = 0
        while (self._row, column) in self.table.cells:
            column += 1
        rows, columns = _span(attributes.get("rowspan")), _span(attributes.get("colspan"))
        places = [(self._row + r, column + c) for r in range(rows) for c in range(columns)]
        self._cell = places, is_heading
        self._text = []

    def add(self, text: str) -> None:
        if self._cell is not None:
            self._text.append(text)

    def end_cell(self) -> None:
        if self._cell is None:
            return
        places, is_heading = self._cell
        self.table.put(places, "".join(self._text).strip())
        if is_heading:
            self.table.headings.update(places)
        self._cell = None


def _span(value: str | None) -> int:
    return min(max(int(value), 1), LARGEST_SPAN) if value and value.isascii() and value.isdigit() else 1
