"""What every HTML page must be: small, self-contained, accessible, its figures well-formed."""

import hashlib
import os
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

LIMIT = 1_000_000


def figures(page: str, *, whole: bool = True) -> dict[str, ElementTree.Element]:
    """The figures of a page, by name; fails unless the page is self-contained and, if it is a `whole` one, accessible,
    and its figures are well-formed XML. Keeps whole pages in the folder SPARSEOCO_PAGES, for `make pages`."""
    if whole:
        check_accessible(page)
        if folder := os.environ.get("SPARSEOCO_PAGES"):
            (Path(folder) / f"{hashlib.sha256(page.encode()).hexdigest()[:12]}.html").write_text(page)
    assert len(page.encode()) < LIMIT
    assert "default-src 'none'" in page
    assert not re.search(r"src\s*=|href\s*=\s*[^\"]|href\s*=\s*\"[^#]|@import|url\(", page)
    assert page.count("<script") == page.count("</script>") == 1
    found = re.findall(r'<figure class="chart".*?</figure>', page, flags=re.S)
    assert len(found) == page.count("<figure")
    parsed = [ElementTree.fromstring(html) for html in found]
    named = {element.attrib["id"].removeprefix("figure-"): element for element in parsed}
    assert len(named) == len(found)
    for element in parsed:
        drawing = element.find("div[@class='plot']/svg")
        assert drawing.attrib["aria-label"]
        about = drawing.find("desc")
        assert about.text
        assert about.attrib["id"] == drawing.attrib["aria-describedby"]
        assert "nan" not in html_numbers(element)
    return named


def check_accessible(page: str) -> None:
    """Fail unless a page has the structure that screen readers and keyboards need; `make pages` runs axe."""
    found = Elements.of(page)
    named = {element.name: element.attributes for element in found.all}
    assert named["html"].get("lang") == "en"
    assert named["title"] is not None
    counts = Counter(element.name for element in found.all)
    assert [counts[name] for name in ("h1", "header", "nav", "main")] == [1, 1, 1, 1]
    levels = [int(element.name[1]) for element in found.all if re.fullmatch("h[1-6]", element.name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    ids = Counter(element.attributes["id"] for element in found.all if "id" in element.attributes)
    assert max(ids.values()) == 1, ids.most_common(2)
    links = [element.attributes["href"] for element in found.all if element.name == "a"]
    assert links[0] == "#main"
    assert {link.removeprefix("#") for link in links} <= ids.keys()
    for element in found.all:
        what, attributes = element.name, element.attributes
        assert int(attributes.get("tabindex", 0)) <= 0, element
        if what == "th":
            assert attributes.get("scope") in ("col", "row", "colgroup", "rowgroup"), element
            assert element.text, element
        if what in ("caption", "h1", "h2", "h3", "h4", "button", "a", "summary", "title"):
            assert element.text.strip(), element
        if what == "input":
            assert "label" in element.parents, element
        if what == "svg" and "svg" not in element.parents:
            assert attributes.get("aria-hidden") == "true" or (attributes.get("role"), "aria-label" in attributes) == (
                "img",
                True,
            ), element
        if {"scroll", "plot"} & set(attributes.get("class", "").split()):
            assert attributes.get("tabindex") == "0", element
    assert counts["caption"] == counts["table"]


class Element(NamedTuple):
    """An element of a page, the names of those around it, and the text in it."""

    name: str
    attributes: dict[str, str]
    parents: tuple[str, ...]
    words: list[str]

    @property
    def text(self) -> str:
        """All text within."""
        return "".join(self.words)


class Elements(HTMLParser):
    """The elements of a page in order."""

    VOID = frozenset({"meta", "br", "col", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Element] = []
        self.open: list[Element] = []

    @classmethod
    def of(cls, page: str) -> "Elements":
        """Those of a page; fails where an end tag is not that of the last open element."""
        parser = cls()
        parser.feed(page)
        parser.close()
        assert not parser.open
        return parser

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element begins."""
        names = tuple(element.name for element in self.open)
        self.all.append(Element(tag, {name: value or "" for name, value in attrs}, names, []))
        if tag not in self.VOID:
            self.open.append(self.all[-1])

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """An element without content."""
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        """An element ends."""
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        """Text belongs to all elements around it."""
        for element in self.open:
            element.words.append(data)


def html_numbers(element: ElementTree.Element) -> str:
    """All coordinates of a figure."""
    return " ".join(
        value for own in element.iter() for name, value in own.attrib.items() if name in ("d", "x", "y", "data-at")
    )


def legend(figure: ElementTree.Element) -> list[str]:
    """The names in the legend of a figure."""
    return ["".join(button.itertext()) for button in figure.iter("button")]


def labels(figure: ElementTree.Element) -> list[list[str]]:
    """The labels of the points of each series that has any."""
    return [own.attrib["data-labels"].split("\n") for own in figure.iter("g") if "data-labels" in own.attrib]
