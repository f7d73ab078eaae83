"""Which files an input stands for, and how each is written down."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value, storage_error
from sparseoco.storage.locations import is_address, remote_location
from sparseoco.storage.remote import FileStatus
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


class Source(NamedTuple):
    """An input file, or a folder of a file a document.

    path   a local path, as it was spelled, or a remote URI
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
        """Whether it is in an object store."""
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
            sources += [_source(path, status, options) for path, status in found]
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


def _expand(item: str, options: TextOptions) -> list[tuple[str, FileStatus | None]]:
    """The files an input stands for, or folders of a file a document, with the status of remote files."""
    if is_address(item):
        return _expand_address(item, options)
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise InputError(f"{item} does not exist.")
    if path.is_file():
        return [(str(path), None)]
    if not path.is_dir():
        raise InputError(f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.")
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if options.format == "folder" or (options.format == "auto" and any(entry.is_dir() for entry in entries)):
        return [(str(path), None)]
    files = [str(entry) for entry in entries if entry.is_file()]
    for file in files:
        check_name(file)
    return [(file, None) for file in files]


def _expand_address(item: str, options: TextOptions) -> list[tuple[str, FileStatus | None]]:
    """The file, or what is right inside a folder; the folder itself where it holds folders of classes."""
    path = remote_location(item)
    try:
        return [(item, path.stat())]
    except FileNotFoundError:
        listed = path.list()
    if not listed:
        if item.endswith("/"):  # a folder of an object store exists only while it has files: they may come yet
            return []
        raise InputError(f"{item} does not exist.")
    entries = [(entry, status) for entry, status in listed if not entry.name.startswith(".")]
    if options.format == "folder" or (options.format == "auto" and any(status is None for _, status in entries)):
        return [(item, None)]
    # The listing has the status of every file: a request for each would take longer with every file that is added.
    return [(str(entry), status) for entry, status in entries if status is not None]


def files_below(folder: str) -> Iterator[tuple[str, str]]:
    """(name in the folder, path) of the files of a folder, hidden ones left out, in order. Raises `InputError`."""
    if is_address(folder):
        root_path = remote_location(folder)
        below = [path for path, _ in root_path.list(recursive=True)]
        found = [(path.key.removeprefix(root_path.key).lstrip("/"), str(path)) for path in below]
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


def _source(path: str, status: FileStatus | None, options: TextOptions) -> Source:
    if "://" in path:
        size, modified, key = _remote_state(path, status)
        folder = status is None
    else:
        local = Path(path).stat()
        folder = Path(path).is_dir()
        size, modified = (_folder_state(Path(path))) if folder else (local.st_size, local.st_mtime_ns)
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


def _remote_state(path: str, status: FileStatus | None) -> tuple[int, int | None, str]:
    """(bytes, time of change in ns, a name for this state) of a remote file, or of a folder, which has no status."""
    if status is not None:
        return status.st_size, _nanoseconds(status), digest_value([path, *status])
    below = remote_location(path).list(recursive=True)
    found = {str(path): status for path, status in below if status is not None}
    states = [[name, status.e_tag, status.st_size] for name, status in found.items()]
    latest = max(map(_nanoseconds, found.values()), default=None)
    return sum(status.st_size for status in found.values()), latest, digest_value([path, states])


def _nanoseconds(status: FileStatus) -> int:
    return int(status.st_mtime) * 10**9


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
