"""What Oiwa, Matsushima and Nakagawa print: names of methods, Tables III and IV of 2012 (STDA), 3 and 4 of 2011 (SGFT).

Rates in per cent, as printed; those of 2011 are precision, written here as error, 100 less.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Figure(NamedTuple):
    """A cell of a table: error and sparseness, per cent, and the deviation of the error where it is printed."""

    error: float
    sparseness: float
    deviation: float | None = None


class Sheet(NamedTuple):
    """A table of a paper: by set of documents, then by method."""

    name: str
    title: str
    methods: tuple[str, ...]
    figures: Mapping[str, Mapping[str, Figure]]


STDA_1, STDA_2, STDA_INF = "STDA p = 1", "STDA p = 2", "STDA p = ∞"
BY_FEATURE: Final = ", by feature"
RDA, FOBOS, SG_L1, CUMULATIVE = "RDA", "FOBOS", "SG-L1", "SG-L1, cumulative"
SGFT_1, SGFT_2, SGFT_3, SGFT_INF = "SGFT p = 1", "SGFT p = 2", "SGFT p = 3", "SGFT p = ∞"
SGFT_CUMULATIVE: Final = "SGFT p = 2, cumulative"

_STDA: Final = tuple(name + how for how in ("", BY_FEATURE) for name in (STDA_1, STDA_2, STDA_INF))


def _sheet(name: str, title: str, methods: tuple[str, ...], rows: Mapping[str, tuple[tuple[float, ...], ...]]) -> Sheet:
    figures = {of: dict(zip(methods, (Figure(*cell) for cell in cells), strict=True)) for of, cells in rows.items()}
    return Sheet(name, title, methods, figures)


def _precise(*cells: tuple[float, float, float]) -> tuple[tuple[float, ...], ...]:
    """(precision, deviation, sparseness) → (error, sparseness, deviation)."""
    return tuple((round(100 - precision, 2), sparseness, deviation) for precision, deviation, sparseness in cells)


STDA_SHEETS: Final = (
    _sheet(
        "III",
        "Table III: the STDA family",
        _STDA,
        {
            "books": ((13.65, 30.34), (13.12, 87.73), (13.50, 91.13), (12.86, 32.28), (13.44, 86.77), (13.64, 91.09)),
            "dvd": ((12.66, 31.31), (13.25, 85.16), (13.69, 94.74), (12.88, 32.36), (14.64, 89.23), (13.86, 89.12)),
            "electronics": (
                *((9.86, 31.98), (10.51, 95.89), (10.70, 88.93)),
                *((10.08, 39.66), (10.93, 87.44), (10.51, 88.56)),
            ),
            "kitchen": ((7.89, 35.08), (8.98, 95.90), (9.05, 97.36), (7.96, 40.51), (9.54, 89.40), (9.12, 88.34)),
            "ob-2-1": ((1.50, 54.39), (2.80, 80.74), (3.80, 82.30), (4.90, 78.28), (5.40, 78.44), (6.20, 75.01)),
            "sb-2-1": ((0.80, 60.25), (1.40, 86.99), (1.20, 93.69), (9.20, 78.92), (2.60, 87.80), (2.70, 87.87)),
        },
    ),
    _sheet(
        "IV",
        "Table IV: STDA and what was before",
        (STDA_INF, RDA, FOBOS, SGFT_2),
        {
            "books": ((13.50, 91.13), (14.00, 88.69), (15.72, 80.39), (45.52, 84.19)),
            "dvd": ((13.69, 94.74), (14.42, 93.23), (18.13, 91.60), (37.56, 82.91)),
            "electronics": ((10.70, 88.93), (11.06, 91.93), (12.59, 90.54), (30.67, 84.77)),
            "kitchen": ((9.05, 97.36), (9.77, 91.23), (10.73, 90.36), (27.21, 86.15)),
            "ob-2-1": ((3.80, 82.30), (3.10, 76.96), (6.00, 83.05), (15.00, 79.89)),
            "sb-2-1": ((1.20, 93.69), (2.30, 89.74), (4.00, 70.91), (19.30, 82.37)),
        },
    ),
)
SGFT_SHEETS: Final = (
    _sheet(
        "3",
        "Table 3: SGFT by its p",
        (SGFT_1, SGFT_2, SGFT_3, SGFT_INF),
        {
            "books": _precise((85.23, 1.52, 34.52), (85.52, 1.24, 48.26), (85.14, 1.33, 49.58), (85.05, 1.41, 69.39)),
            "dvd": _precise((82.49, 1.68, 37.46), (84.75, 1.75, 59.72), (85.03, 2.28, 63.74), (84.02, 1.66, 67.19)),
            "ob-2-1": _precise((97.00, 1.73, 42.78), (97.10, 1.14, 56.73), (96.90, 1.87, 59.03), (96.80, 1.94, 59.78)),
            "sb-2-1": _precise((98.90, 0.83, 60.13), (98.40, 0.80, 70.32), (98.40, 1.11, 71.99), (98.10, 1.14, 72.69)),
            "ob-8-1": _precise((92.25, 1.14, 62.83), (93.10, 1.41, 62.84), (93.00, 1.29, 64.64), (91.45, 1.33, 77.78)),
            "sb-8-1": _precise((90.90, 1.72, 68.26), (92.55, 1.85, 68.49), (93.78, 2.44, 70.23), (91.25, 1.44, 83.53)),
            "reut20": _precise((95.23, 0.65, 89.11), (96.04, 0.56, 90.38), (95.91, 0.55, 90.21), (94.80, 0.67, 91.05)),
        },
    ),
    _sheet(
        "4",
        "Table 4: SGFT and what was before",
        (SGFT_2, SG_L1, RDA),
        {
            "books": _precise((85.52, 1.24, 48.26), (84.98, 1.61, 48.28), (86.57, 1.16, 34.65)),
            "dvd": _precise((84.75, 1.75, 59.72), (83.91, 1.55, 79.57), (86.36, 2.08, 37.08)),
            "ob-2-1": _precise((97.10, 1.14, 56.73), (96.40, 1.96, 49.23), (97.60, 1.80, 39.83)),
            "sb-2-1": _precise((98.40, 0.80, 70.32), (97.20, 1.78, 84.25), (98.20, 0.75, 56.67)),
            "ob-8-1": _precise((93.10, 1.41, 62.84), (90.63, 1.64, 87.90), (93.78, 1.21, 50.52)),
            "sb-8-1": _precise((92.55, 1.85, 68.49), (90.53, 1.61, 67.46), (95.45, 0.95, 60.46)),
            "reut20": _precise((96.04, 0.56, 90.38), (95.53, 0.63, 89.29), (96.27, 0.63, 86.67)),
        },
    ),
)
NOT_PRINTED: Final = (SGFT_CUMULATIVE, CUMULATIVE)
"""Methods that §4 of 2011 derives and its tables do not have."""
SAMPLES: Final = {
    STDA_INF: (
        *(("some interesting", 117), ("a constructive", 101), ("be successful", 64), ("was blatantly", 29)),
        ("smearing", 30),
    ),
    RDA: (("his", 1491), ("more", 877), ("time", 1161), ("almost", 376), ("say", 2407)),
}
"""Table V of 2012: features that one of the two keeps on books and the other does not, and how often they occur."""
