"""What every HTML page must be: small, self-contained, its figures well-formed."""

import re
from xml.etree import ElementTree

LIMIT = 1_000_000


def figures(page: str) -> dict[str, ElementTree.Element]:
    """The figures of a page, by name; fails unless the page is self-contained and its figures are well-formed XML."""
    assert len(page.encode()) < LIMIT
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)\s*=|@import|url\(", page)
    assert page.count("<script") == page.count("</script>") == 1
    found = re.findall(r'<figure class="chart".*?</figure>', page, flags=re.S)
    assert len(found) == page.count("<figure")
    parsed = [ElementTree.fromstring(html) for html in found]
    named = {element.attrib["id"].removeprefix("figure-"): element for element in parsed}
    assert len(named) == len(found)
    for element in parsed:
        drawing = element.find("div[@class='plot']/svg")
        assert drawing is not None
        assert drawing.attrib["aria-label"]
        assert "nan" not in html_numbers(element)
    return named


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
