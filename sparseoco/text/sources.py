"""Which files an input stands for, and how each is written down."""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from sparseoco.core.errors import InputError, SparseocoError, error_text
from sparseoco.storage.commit import digest_value, storage_error
from sparseoco.storage.locations import file_system, is_address
from sparseoco.text.options import TextOptions

FIELDS = frozenset({"jsonl", "csv", "tsv"})  # formats whose documents have fields, by which `where` chooses
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


Facts = dict[str, Any]
"""What a file system tells of a file at an address: name, type, size and what changes with it; none of local ones."""


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


def find_sources(inputs: list[str], options: TextOptions, *, may_be_empty: bool = False) -> list[Source]:
    """The sources the inputs stand for, in the order given; a folder without classes stands for its files.

    Raises `InputError` for what is not there, cannot be read, or is in a format that cannot be told, and for folders
    without files unless they may be empty.
    """
    sources: list[Source] = []
    for item in inputs:
        check_name(item)
        try:
            found = _expand(item, options)
            if not found and not may_be_empty:
                raise InputError(f"{item} is an empty folder.")
            sources += [_source(path, facts, options) for path, facts in found]
        except OSError as error:
            raise storage_error(error, Path(item)) from error
    if not sources and not may_be_empty:
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


def _expand(item: str, options: TextOptions) -> list[tuple[str, Facts]]:
    """The files an input stands for, or folders of a file a document, with what was told of them at an address."""
    if is_address(item):
        return _expand_address(item, options)
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise InputError(f"{item} does not exist.")
    if path.is_file():
        return [(str(path), {})]
    if not path.is_dir():
        raise InputError(f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.")
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if options.format == "folder" or (options.format == "auto" and any(entry.is_dir() for entry in entries)):
        return [(str(path), {})]
    files = [str(entry) for entry in entries if entry.is_file()]
    for file in files:
        check_name(file)
    return [(file, {}) for file in files]


def _expand_address(item: str, options: TextOptions) -> list[tuple[str, Facts]]:
    """The file, or what is right inside a folder; the folder itself where it holds folders of classes."""
    with _told(item):
        files, name = file_system(item)
        try:
            facts: Facts = files.info(name)
        except FileNotFoundError:
            if item.endswith("/"):  # there are no folders in a bucket, only names that begin alike: it may come yet
                return []
            raise
        if facts["type"] != "directory":
            return [(item, facts)]
        entries = [entry for entry in files.ls(name, detail=True) if entry["name"] != name]
    named = {PurePosixPath(entry["name"]).name: entry for entry in entries}
    shown = {entry: of for entry, of in sorted(named.items()) if not entry.startswith(".")}
    if options.format == "folder" or (
        options.format == "auto" and any(of["type"] == "directory" for of in shown.values())
    ):
        return [(item, facts)]
    # What the listing told is enough: to ask of each file by itself would take longer every night.
    return [(f"{item.rstrip('/')}/{entry}", of) for entry, of in shown.items() if of["type"] == "file"]


def files_below(folder: str) -> Iterator[tuple[str, str]]:
    """(name in the folder, path) of the files of a folder, hidden ones left out, in order. Raises `InputError`."""
    if is_address(folder):
        files, name = file_system(folder)
        with _told(folder):
            below = files.find(name)
        found = [(path.removeprefix(f"{name.rstrip('/')}/"), files.unstrip_protocol(path)) for path in below]
        order = sorted(found, key=lambda entry: entry[0].split("/"))
    else:
        root = Path(folder)
        order = [
            (path.relative_to(root).as_posix(), str(path)) for path in sorted(root.rglob("*")) if not path.is_dir()
        ]
    for name, path in order:
        if any(part.startswith(".") for part in name.split("/")):
            continue
        check_name(path)
        if not is_address(path) and not Path(path).is_file():
            raise InputError(f"{path} is not a regular file.")
        yield name, path


def _source(path: str, facts: Facts, options: TextOptions) -> Source:
    if "://" in path:
        size, modified, key, folder = _remote_state(path, facts)
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
        # An empty one marks that a folder is complete, as Spark leaves it: there is nothing to tell, or to read.
        form = SUFFIXES.get(stem.suffix.lower()) or (_sniff(path, compression) if size else "lines")
    if options.where and size and form not in FIELDS:
        raise InputError(
            f"{path} ({form}) has no fields that where could choose by: put what is wanted into files of its own."
        )
    return Source(path, PurePosixPath(path).name, form, compression, size, modified, key)


def _folder_state(path: Path) -> tuple[int, int]:
    states = [entry.stat() for entry in path.rglob("*") if entry.is_file()]
    return sum(state.st_size for state in states), max((state.st_mtime_ns for state in states), default=0)


def _remote_state(path: str, facts: Facts) -> tuple[int, int | None, str, bool]:
    """(bytes, time of change in ns, a name for this state, whether it is a folder) of what is at an address."""
    if facts["type"] != "directory":
        told = sorted((name, str(value)) for name, value in facts.items())
        return int(facts.get("size") or 0), _changed(facts), digest_value([path, told]), False
    with _told(path):
        system, inner = file_system(path)
        below = system.find(inner, detail=True)
    states = sorted([name, str(_tag(of)), of.get("size") or 0] for name, of in below.items())
    times = [_changed(of) for of in below.values()]
    latest = None if None in times else max((time for time in times if time is not None), default=None)
    return sum(size for _, _, size in states), latest, digest_value([path, states]), True


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Whatever a file system says of an address, as a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.") from None
    except SparseocoError:
        raise
    except Exception as error:  # every kind of address has errors of its own
        raise InputError(f"{path} cannot be opened: {error_text(error)}.") from None


def _changed(facts: Facts) -> int | None:
    """When a file at an address was written, in ns, if its file system tells."""
    moment = facts.get("LastModified") or facts.get("mtime")
    if isinstance(moment, datetime):
        return int(moment.timestamp()) * 10**9  # listings and single answers differ in what comes after the seconds
    return int(moment * 10**9) if isinstance(moment, int | float) else None


def _tag(facts: Facts) -> Any:
    return facts.get("ETag") or facts.get("mtime")


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
