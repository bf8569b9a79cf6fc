"""What the hOCR 1.2 specification asks of a file, as far as our classes go; there is no schema for it."""

from __future__ import annotations

import re

from lxml import etree

XHTML = "{http://www.w3.org/1999/xhtml}"
TAGS = {"ocr_page": "div", "ocr_carea": "div", "ocr_par": "p", "ocr_line": "span", "ocrx_word": "span"}
PARENTS = {"ocr_page": None, "ocr_carea": "ocr_page", "ocr_par": "ocr_carea", "ocr_line": "ocr_par", "ocrx_word": "ocr_line"}
PROPERTIES = {
    "bbox": r"\d+ \d+ \d+ \d+", "image": r'"[^"]*"', "ppageno": r"\d+", "scan_res": r"\d+ \d+",
    "x_wconf": r"\d+", "textangle": r"\d+",
}  # fmt: skip


def faults(content: bytes) -> list[str]:
    """Every rule that the file breaks."""
    root = etree.fromstring(content)
    found = [] if root.tag == f"{XHTML}html" else [f"root is {root.tag}"]
    metas = {meta.get("name"): meta.get("content") for meta in root.iter(f"{XHTML}meta")}
    found += [f"no {name}" for name in ("ocr-system", "ocr-capabilities", "ocr-number-of-pages") if not metas.get(name)]
    capabilities = (metas.get("ocr-capabilities") or "").split()
    elements = [element for element in root.iter() if isinstance(element.tag, str) and element.get("class")]
    if str(sum(element.get("class") == "ocr_page" for element in elements)) != metas.get("ocr-number-of-pages"):
        found.append("ocr-number-of-pages is not the number of pages")
    names = [element.get("id") for element in root.iter() if isinstance(element.tag, str) and element.get("id")]
    found += ["an id is not unique"] if len(set(names)) < len(names) else []
    for element in elements:
        found += _element_faults(element, capabilities)
    return found


def _element_faults(element: etree._Element, capabilities: list[str]) -> list[str]:
    kind = element.get("class")
    if kind not in TAGS:
        return [f"unknown class {kind}"]
    found = [] if kind in capabilities else [f"{kind} is no capability"]
    if element.tag != XHTML + TAGS[kind]:
        found.append(f"{kind} is a {element.tag}")
    if element.get("dir") and "ocrp_dir" not in capabilities:
        found.append("dir without ocrp_dir")
    parent = element.getparent()
    if parent is None or parent.get("class") != PARENTS[kind]:
        found.append(f"{kind} in {parent.get('class') if parent is not None else None}")
    properties = dict(part.strip().split(" ", 1) for part in (element.get("title") or "").split(";") if part.strip())
    for name, value in properties.items():
        if not re.fullmatch(PROPERTIES.get(name, r"\b\B"), value):
            found.append(f"{kind}: {name} {value}")
    if kind in ("ocr_carea", "ocr_line") and "bbox" not in properties:
        found.append(f"{kind} has no bbox")
    if "x_wconf" in properties and int(properties["x_wconf"]) > 100:
        found.append(f"x_wconf {properties['x_wconf']}")
    if "bbox" in properties:
        left, top, right, bottom = map(int, properties["bbox"].split())
        if left > right or top > bottom:
            found.append(f"bbox {properties['bbox']}")
    return found
