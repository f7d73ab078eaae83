"""The original mark-up of the Multi-Domain Sentiment data, which is not XML: reviews with ratings and text.

A review is `<review> … <rating> 5.0 </rating> … <review_text> … </review_text> … </review>`, each tag on its own line;
the text may have characters that XML reserves.
"""

import gzip
import json
import re
import zlib
from pathlib import Path
from typing import Final

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import commit_bytes

NEUTRAL: Final = 3.0
"""Blitzer et al. (2007): ratings above are positive, below negative; reviews with this one are left out."""
_OPENING: Final = b"<review>"
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_REVIEW: Final = re.compile(r"^<review>\s*$(.*?)^</review>\s*$", re.DOTALL | re.MULTILINE)


def is_raw(path: Path) -> bool:
    """Whether the file begins with the tag of a review."""
    return _read(path, 4096).lstrip().startswith(_OPENING)


def convert_reviews(path: Path, out: Path) -> None:
    """Write the rated reviews of a file as JSON lines, with the labels negative and positive and the text.

    Bytes that are not UTF-8 are replaced by U+FFFD.

    Raises
    ------
    InputError
        If the file is not valid gzip, or a review has no rating, no text or no end.
    """
    content = _read(path).decode("utf-8", "replace").replace("\r\n", "\n")
    reviews = _REVIEW.findall(content)
    if len(reviews) != len(re.findall(r"^<review>\s*$", content, re.MULTILINE)):
        raise InputError(f"{path} has a review without its closing tag.", code="malformed-record")
    rows = []
    for number, review in enumerate(reviews, start=1):
        rating, text = (_content(review, tag, path, number) for tag in ("rating", "review_text"))
        if not _NUMBER.fullmatch(rating):
            raise InputError(f"{path}: the rating of review {number} is not a number.", code="invalid-labels")
        score = float(rating)
        if score != NEUTRAL:
            rows.append({"id": str(number), "label": "positive" if score > NEUTRAL else "negative", "text": text})
    commit_bytes(out, "".join(f"{json.dumps(row)}\n" for row in rows).encode())


def _content(review: str, tag: str, path: Path, number: int) -> str:
    """The text between the first opening and the last closing tag."""
    _, opening, rest = review.partition(f"<{tag}>")
    text, closing, _ = rest.rpartition(f"</{tag}>")
    if not opening or not closing:
        raise InputError(f"{path}: review {number} has no {tag}.", code="malformed-record")
    return text.strip()


def _read(path: Path, size: int = -1) -> bytes:
    if path.suffix != ".gz":
        with path.open("rb") as file:
            return file.read(size)
    try:
        with gzip.open(path) as file:
            return file.read(size)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is not a valid gzip file.", code="corrupt-file") from error
