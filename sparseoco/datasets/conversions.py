"""Convert corpora in formats without a parser to JSON lines."""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import committed

_REUTERS: Final = re.compile(rb"<REUTERS (?P<head>[^>]*)>(?P<rest>.*?)</REUTERS>", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'(\w+)="([^"]*)"')


def convert(kind: str, source: Path, target: Path) -> int:
    """Write the documents below a folder as JSON lines, and return their number.

    Raises `InputError` if there are none, `StorageError` if the file cannot be written.
    """
    count = 0
    with committed(target) as temporary, temporary.open("wb") as file:
        for document in CONVERSIONS[kind](source):
            file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
        if not count:
            raise InputError(f"{source} has no documents of the expected format ({kind}).", code="no-documents")
    return count


def _reuters(source: Path) -> Iterator[dict[str, Any]]:
    """Reuters-21578: `label` is the list of topics; `split` train, test or unused as in its README's ModApte split."""
    for path in sorted(source.glob("**/reut2-*.sgm")):
        for match in _REUTERS.finditer(path.read_bytes()):
            head = dict(_ATTRIBUTE.findall(match["head"].decode("latin-1")))
            rest = match["rest"].decode("latin-1")  # it should be ASCII, but has a few other bytes
            used = head["TOPICS"] == "YES" and head["LEWISSPLIT"] in ("TRAIN", "TEST")
            title, body = _element("TITLE", rest), _element("BODY", rest)
            text = f"{title}\n\n{body}" if body else re.sub(r"<[^>]*>", " ", _element("TEXT", rest, raw=True))
            yield {
                "id": head["NEWID"],
                "label": re.findall(r"<D>(.*?)</D>", _element("TOPICS", rest, raw=True)),
                "split": head["LEWISSPLIT"].lower() if used else "unused",
                "text": html.unescape(text).strip(),
            }


def _element(name: str, text: str, *, raw: bool = False) -> str:
    match = re.search(rf"<{name}[^>]*>(.*?)</{name}>", text, re.DOTALL)
    content = match[1] if match else ""
    return content if raw else content.strip()


def _labelled_lines(source: Path) -> Iterator[dict[str, Any]]:
    """One document per line: the label, a tab, and the text, without quoting."""
    for path in sorted(file for file in source.rglob("*") if file.is_file()):
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            label, tab, text = line.decode("utf-8", "replace").rstrip("\r").partition("\t")
            if tab:
                yield {"id": f"{path.name}:{number}", "label": label, "text": text}


CONVERSIONS: Final[dict[str, Callable[[Path], Iterator[dict[str, Any]]]]] = {
    "reuters": _reuters,
    "labelled-lines": _labelled_lines,
}
