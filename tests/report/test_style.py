"""The colours of the style sheet, by the contrast ratio of WCAG 2: text 4.5 and lines 3, on light and on dark pages."""

import re
from importlib.resources import files

import pytest

CSS = (files("sparseoco.report") / "templates" / "page.css").read_text()
DARK = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{(.*?)\n\}", CSS, re.DOTALL)
TEXT = [
    *(("ink", ground) for ground in ("page", "wash", "bar")),
    *(("quiet", ground) for ground in ("page", "wash")),
    *(("accent", ground) for ground in ("page", "wash")),
]
LINES = re.findall(r"--c: var\(--(c\w)\)", CSS)


def colours(text: str) -> dict[str, str]:
    """The custom properties that are colours, as six digits."""
    found = re.findall(r"--(\w+): #(\w+)", text)
    return {name: digits if len(digits) == 6 else "".join(2 * digit for digit in digits) for name, digits in found}


assert DARK is not None
LIGHT = colours(CSS.replace(DARK[0], ""))
PAGES = {"light": LIGHT, "dark": LIGHT | colours(DARK[1])}


def channels(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (0, 2, 4)]


def luminance(rgb: list[float]) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: list[float], second: list[float]) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_ratio_is_that_of_the_standard() -> None:
    assert contrast(channels("ffffff"), channels("000000")) == pytest.approx(21)
    assert contrast(channels("777777"), channels("ffffff")) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", PAGES)
def test_text_and_lines_are_seen(scheme: str) -> None:
    own = {name: channels(colour) for name, colour in PAGES[scheme].items()}
    assert len(LINES) == 8
    assert {
        pair: contrast(own[pair[0]], own[pair[1]]) for pair in TEXT if contrast(*(own[k] for k in pair)) < 4.5
    } == {}
    assert {name for name in LINES if contrast(own[name], own["page"]) < 3} == set()


@pytest.mark.parametrize("scheme", PAGES)
def test_numbers_are_readable_in_every_cell_of_a_heat_map(scheme: str) -> None:
    own = {name: channels(colour) for name, colour in PAGES[scheme].items()}
    shades = [float(opacity) for opacity in re.findall(r"\.l\d \{ stroke-opacity: ([.\d]+);", CSS)]
    assert shades == sorted(set(shades))
    assert len(shades) == 8
    for name in ("right", "wrong"):
        for opacity in shades:
            cell = [opacity * a + (1 - opacity) * b for a, b in zip(own[name], own["page"], strict=True)]
            assert contrast(own["ink"], cell) >= 4.5, (name, opacity)


def test_every_other_colour_is_one_of_these() -> None:
    rules = re.sub(r"--\w+: #\w+", "", CSS)
    assert not re.search(r"#[0-9a-f]{3,8}\b", rules)
    assert re.findall(r"rgb\([^)]*\)", rules) == ["rgb(0 0 0 / .16)"]  # the shadow of the label of a point
    used = set(re.findall(r"var\(--(\w+)\)", CSS))
    assert used - {"c"} <= LIGHT.keys()


def test_paper_is_light() -> None:
    assert not re.search(r"@media \([^)]*color-scheme", CSS), "a dark page is for screens only"
    assert "@media print" in CSS
