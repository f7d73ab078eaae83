"""Which files an input stands for, and how each is written down."""

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from sparseoco.commit import digest_value, storage_error
from sparseoco.errors import InputError
from sparseoco.text.options import TextOptions

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "lines",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".svm": "svmlight",
    ".review": "processed",
}
_SVMLIGHT = re.compile(rb"[+-]?[\w.]+(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)+\s*(#.*)?")


class Source(NamedTuple):
    """An input file, or a folder of a file a document.

    path   a local path, as it was spelled, or an fsspec address
    short  the file's name, made different from all others of the store or call: made ids begin with it
    key    a name for this state of the file (path, size, time of change or what the store tells of it)
    """

    path: str
    short: str
    format: str
    compression: str | None
    bytes: int
    modified_ns: int | None
    key: str

    @property
    def remote(self) -> bool:
        """Is it read through fsspec?"""
        return "://" in self.path

    @property
    def place(self) -> str:
        """The address, or the path from the root: the same wherever a program is called from."""
        return self.path if self.remote else os.path.abspath(self.path)


def find_sources(inputs: list[str], options: TextOptions) -> list[Source]:
    """The sources the inputs stand for, in the order given; a folder without classes stands for its files.

    Raises `InputError` for what is not there, cannot be read, or is in a format that cannot be told.
    """
    sources: list[Source] = []
    for item in inputs:
        check_name(item)
        try:
            sources += [_source(path, options) for path in _expand(item, options)]
        except OSError as error:
            raise storage_error(error, Path(item)) from error
    if not sources:
        raise InputError("There is nothing to ingest: no input names a file.")
    return name_apart(sources, [])


def name_apart(sources: list[Source], before: Iterable[str]) -> list[Source]:
    """The sources with short names of their own: the second x.txt after those whose places are `before` is x.txt~2."""
    used: set[str] = set()

    def next_name(place: str) -> str:
        name = PurePosixPath(place).name
        number = 1
        while (short := name if number == 1 else f"{name}~{number}") in used:
            number += 1
        used.add(short)
        return short

    for place in before:
        next_name(place)
    return [source._replace(short=next_name(source.place)) for source in sources]


def check_name(path: str) -> None:
    """Raises `InputError` for a name that is not UTF-8: neither a manifest nor a message could hold it."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown}: the name of the file is not UTF-8; rename it.") from None


def _expand(item: str, options: TextOptions) -> list[str]:
    if "://" in item and not item.startswith("file://"):
        return [item]
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise InputError(f"{item} does not exist.")
    if path.is_file():
        return [str(path)]
    if not path.is_dir():
        raise InputError(f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.")
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if options.format == "folder" or (options.format == "auto" and any(entry.is_dir() for entry in entries)):
        return [str(path)]
    files = [str(entry) for entry in entries if entry.is_file()]
    for file in files:
        check_name(file)
    if not files:
        raise InputError(f"{item} is an empty folder.")
    return files


def _source(path: str, options: TextOptions) -> Source:
    if "://" in path:
        size, modified, key = _remote_state(path)
        folder = False
    else:
        status = Path(path).stat()
        folder = Path(path).is_dir()
        size, modified = (_folder_state(Path(path))) if folder else (status.st_size, status.st_mtime_ns)
        check_name(os.path.abspath(path))
        key = digest_value([str(Path(path).resolve()), size, modified])
    compression = None if folder else COMPRESSIONS.get(PurePosixPath(path).suffix.lower())
    form: str = "folder" if folder else options.format
    if form == "auto":
        stem = PurePosixPath(path).with_suffix("") if compression else PurePosixPath(path)
        form = SUFFIXES.get(stem.suffix.lower()) or _sniff(path, compression)
    return Source(path, PurePosixPath(path).name, form, compression, size, modified, key)


def _folder_state(path: Path) -> tuple[int, int]:
    states = [entry.stat() for entry in path.rglob("*") if entry.is_file()]
    return sum(state.st_size for state in states), max((state.st_mtime_ns for state in states), default=0)


def _remote_state(path: str) -> tuple[int, None, str]:
    try:
        system, inner = fsspec.core.url_to_fs(path)
        facts: dict[str, Any] = system.info(inner)
        return int(facts.get("size") or 0), None, digest_value([path, str(system.ukey(inner))])
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except Exception as error:  # every kind of address has errors of its own
        raise InputError(f"{path} cannot be opened: {error or type(error).__name__}.") from None


def _sniff(path: str, compression: str | None) -> str:
    from sparseoco.text.streams import first_bytes

    head = first_bytes(path, compression, 1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = head.partition(b"\n")[0]
    if line.startswith(b"{"):
        return "jsonl"
    if b"#label#:" in line:
        return "processed"
    if _SVMLIGHT.fullmatch(line.strip()):
        return "svmlight"
    raise InputError(f"{path}: the format cannot be told from the name or the first line; name it with --format.")
