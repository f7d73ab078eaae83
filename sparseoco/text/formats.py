"""Which files an input stands for, and how each is written down."""

import re
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import fsspec

from sparseoco.commit import digest_value
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

    path   a local path or an fsspec address
    short  the file's name, with as many of its parents as tell it from the other inputs: made ids begin with it
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


def find_sources(inputs: list[str], options: TextOptions) -> list[Source]:
    """The sources the inputs stand for, in the order given; a folder without classes stands for its files.

    Raises `InputError` for what is not there, cannot be read, or is in a format that cannot be told.
    """
    paths = [path for item in inputs for path in _expand(item, options)]
    if not paths:
        raise InputError("There is nothing to ingest: no input names a file.")
    shorts = _short_names(paths)
    return [_source(path, short, options) for path, short in zip(paths, shorts, strict=True)]


def _expand(item: str, options: TextOptions) -> list[str]:
    if "://" in item and not item.startswith("file://"):
        return [item]
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise InputError(f"{item} does not exist.")
    if not path.is_dir():
        return [str(path)]
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if options.format == "folder" or (options.format == "auto" and any(entry.is_dir() for entry in entries)):
        return [str(path)]
    files = [str(entry) for entry in entries if entry.is_file()]
    if not files:
        raise InputError(f"{item} is an empty folder.")
    return files


def _short_names(paths: list[str]) -> list[str]:
    parts = [PurePosixPath(path.partition("://")[2] or path).parts for path in paths]
    depth = 1
    while True:
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(set(paths)) or depth >= max(len(part) for part in parts):
            return names
        depth += 1


def _source(path: str, short: str, options: TextOptions) -> Source:
    if "://" in path:
        size, modified, key = _remote_state(path)
        folder = False
    else:
        status = Path(path).stat()
        folder = Path(path).is_dir()
        size, modified = (_folder_state(Path(path))) if folder else (status.st_size, status.st_mtime_ns)
        key = digest_value([str(Path(path).resolve()), size, modified])
    compression = None if folder else COMPRESSIONS.get(PurePosixPath(path).suffix.lower())
    form: str = "folder" if folder else options.format
    if form == "auto":
        stem = PurePosixPath(path).with_suffix("") if compression else PurePosixPath(path)
        form = SUFFIXES.get(stem.suffix.lower()) or _sniff(path, compression)
    return Source(path, short, form, compression, size, modified, key)


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
    except (ImportError, ValueError) as error:
        raise InputError(f"{path} cannot be opened: {error}.") from None


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
