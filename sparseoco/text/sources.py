"""From inputs to files, with their formats and compressions."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import is_remote_uri, remote_location
from sparseoco.storage.remote import FileStatus
from sparseoco.text.options import TextOptions
from sparseoco.text.streams import first_bytes

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
WITH_FIELDS = frozenset({"jsonl", "csv", "tsv"})
UNLABELLED = frozenset({"lines"})
_SVMLIGHT = re.compile(rb"[+-]?[\w.]+(\s+qid:\d+)?(\s+\d+:[-+.\deE]+)+\s*(#.*)?")


class Source(NamedTuple):
    """An input file, or a folder with one document per file.

    Parameters
    ----------
    path : str
        Local path, as given, or remote URI.
    short : str
        File name, unique among the sources of the store; generated ids begin with it.
    key : str
        Identifies this version of the file: path, size, and modification time or ETag.
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
        """Whether the path is a remote URI."""
        return is_remote_uri(self.path)

    @property
    def absolute(self) -> str:
        """Absolute path or URI, independent of the working directory."""
        return self.path if self.remote else os.path.abspath(self.path)

    @property
    def real(self) -> str:
        """Absolute path without symbolic links, or URI: equal for all spellings of a path."""
        return real_path(self.path)


def find_sources(inputs: list[str], options: TextOptions, *, may_be_empty: bool = False) -> list[Source]:
    """The sources of the inputs, in their order.

    Parameters
    ----------
    inputs : list of str
        Files, folders and remote URIs. A folder of folders is one source, each folder a class; any other folder expands
        to its files.
    options : TextOptions
    may_be_empty : bool
        Allow folders without files.

    Raises
    ------
    InputError
        For a file that is missing or unreadable, and for an unknown format.
    """
    sources: list[Source] = []
    for item in inputs:
        check_name(item)
        try:
            found = _expand(item, options)
            if not found and not may_be_empty:
                raise InputError(f"{item} is an empty folder.", code="no-documents")
            sources += [_source(path, status, options) for path, status in found]
        except OSError as error:
            raise storage_error(error, Path(item)) from error
    if not sources and not may_be_empty:
        raise InputError("There is nothing to ingest: no input names a file.", code="no-documents")
    return with_unique_names(sources, [])


def with_unique_names(sources: list[Source], earlier: Iterable[str]) -> list[Source]:
    """The sources with unique short names: the second x.txt, counting the `earlier` paths, is x.txt~2."""
    used: set[str] = set()

    def next_name(path: str) -> str:
        name = PurePosixPath(path).name
        number = 1
        while (short := name if number == 1 else f"{name}~{number}") in used:
            number += 1
        used.add(short)
        return short

    for path in earlier:
        next_name(path)
    return [source._replace(short=next_name(source.absolute)) for source in sources]


def real_path(path: str) -> str:
    """A local path without symbolic links; a remote URI as it is."""
    return path if is_remote_uri(path) else os.path.realpath(path)


def check_name(path: str) -> None:
    """Raises `InputError` for a file name that is not UTF-8, which neither manifest nor messages can represent."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown}: the file name is not UTF-8; rename the file.", code="file-name") from None


def _expand(item: str, options: TextOptions) -> list[tuple[str, FileStatus | None]]:
    """The files, or folders of class folders, of an input, with the status of remote files."""
    if is_remote_uri(item):
        return _expand_remote(item, options)
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise _missing(item)
    if path.is_file():
        return [(str(path), None)]
    if not path.is_dir():
        raise InputError(
            f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.",
            code="not-a-file",
        )
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    if _has_class_folders(options, any(entry.is_dir() for entry in entries)):
        return [(str(path), None)]
    files = [str(entry) for entry in entries if entry.is_file()]
    for file in files:
        check_name(file)
    return [(file, None) for file in files]


def _expand_remote(item: str, options: TextOptions) -> list[tuple[str, FileStatus | None]]:
    path = remote_location(item)
    try:
        return [(item, path.stat())]
    except FileNotFoundError:
        listed = path.list()
    if not listed:
        if item.endswith("/"):  # a bucket has no empty folders
            return []
        raise _missing(item)
    entries = [(entry, status) for entry, status in listed if not entry.name.startswith(".")]
    if _has_class_folders(options, any(status is None for _, status in entries)):
        return [(item, None)]
    # The listing has the status of every file; a request per file would be slow.
    return [(str(entry), status) for entry, status in entries if status is not None]


def _has_class_folders(options: TextOptions, has_folders: bool) -> bool:
    return options.format == "folder" or (options.format == "auto" and has_folders)


def list_files(folder: str) -> Iterator[tuple[str, str]]:
    """(name in the folder, path) of all visible files below a folder, in order. Raises `InputError`."""
    if is_remote_uri(folder):
        root_path = remote_location(folder)
        below = [path for path, _ in root_path.list(recursive=True)]
        found = [(path.key.removeprefix(root_path.key).lstrip("/"), str(path)) for path in below]
        ordered = sorted(found, key=lambda entry: entry[0].split("/"))
    else:
        root = Path(folder)
        paths = sorted(root.rglob("*"))
        ordered = [(path.relative_to(root).as_posix(), str(path)) for path in paths if not path.is_dir()]
    for name, path in ordered:
        if any(part.startswith(".") for part in name.split("/")):
            continue
        check_name(path)
        if not is_remote_uri(path) and not Path(path).is_file():
            raise InputError(f"{path} is not a regular file.", code="not-a-file")
        yield name, path


def _source(path: str, status: FileStatus | None, options: TextOptions) -> Source:
    if is_remote_uri(path):
        size, modified, key = _remote_state(path, status)
        is_folder = status is None
    else:
        local = Path(path).stat()
        is_folder = Path(path).is_dir()
        size, modified = _folder_state(Path(path)) if is_folder else (local.st_size, local.st_mtime_ns)
        check_name(os.path.abspath(path))
        key = digest_value([str(Path(path).resolve()), size, modified])
    compression = None if is_folder else COMPRESSIONS.get(PurePosixPath(path).suffix.lower())
    form: str = "folder" if is_folder else options.format
    if form == "auto":
        stem = PurePosixPath(path).with_suffix("") if compression else PurePosixPath(path)
        # Empty files, such as Spark's _SUCCESS, have nothing to detect a format from, and nothing to read.
        form = SUFFIXES.get(stem.suffix.lower()) or (_detect_format(path, compression) if size else "lines")
    used = ["where"] * bool(options.where) + [f"{name}_field" for name in options.columns]
    if used and size and form not in WITH_FIELDS:
        raise InputError(
            f"{path} ({form}) has no fields, which {used[0]} needs: use JSON lines, CSV or TSV.",
            code="unsupported-combination",
        )
    return Source(path, PurePosixPath(path).name, form, compression, size, modified, key)


def _folder_state(path: Path) -> tuple[int, int]:
    states = [entry.stat() for entry in path.rglob("*") if entry.is_file()]
    return sum(state.st_size for state in states), max((state.st_mtime_ns for state in states), default=0)


def _remote_state(path: str, status: FileStatus | None) -> tuple[int, int | None, str]:
    """(bytes, modification time in ns, `Source.key`) of a remote file, or of a folder, which has no status."""
    if status is not None:
        return status.st_size, _modified_ns(status), digest_value([path, *status])
    below = remote_location(path).list(recursive=True)
    found = {str(path): status for path, status in below if status is not None}
    states = [[name, status.e_tag, status.st_size] for name, status in found.items()]
    latest = max(map(_modified_ns, found.values()), default=None)
    return sum(status.st_size for status in found.values()), latest, digest_value([path, states])


def _missing(path: str) -> InputError:
    return InputError(f"{path} does not exist.", code="missing-file")


def _modified_ns(status: FileStatus) -> int:
    return int(status.st_mtime) * 10**9


def _detect_format(path: str, compression: str | None) -> str:
    head = first_bytes(path, compression, 1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = head.partition(b"\n")[0]
    if line.startswith(b"{"):
        return "jsonl"
    if b"#label#:" in line:
        return "processed"
    if _SVMLIGHT.fullmatch(line.strip()):
        return "svmlight"
    raise InputError(
        f"{path}: neither the name nor the first line shows the format; set it with --format.", code="unknown-format"
    )
