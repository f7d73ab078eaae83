"""From inputs to files, with their formats and compressions."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.commit import digest_value
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import is_remote_uri, remote_location
from sparseoco.text.charsets import AUTO
from sparseoco.text.folders import FolderFile, check_labels, check_name, folder_name, list_files
from sparseoco.text.options import TextOptions
from sparseoco.text.stored import Pin, first_stored_bytes, local_pin, remote_pin
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables.columns import NO_FACTS, TableFacts
from sparseoco.text.tables.files import ARROW_MAGIC, STREAM_MAGIC
from sparseoco.text.tables.folders import dataset_files

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
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
TABLES = frozenset({"parquet", "arrow"})
WITH_FIELDS = frozenset({"jsonl", "csv", "tsv"}) | TABLES
MAGIC = {b"PAR1": "parquet", ARROW_MAGIC: "arrow", STREAM_MAGIC: "arrow"}
FOLDERS = frozenset({"folder", "files"})  # with one document per file; `files` without labels
UNLABELLED = frozenset({"lines", "files"})
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
    facts : TableFacts
        Of a Parquet or Arrow file, what its folder says.
    pin : Pin or None
        The version that is read; None for folders, whose files have their own.
    """

    path: str
    short: str
    format: str
    compression: str | None
    bytes: int
    modified_ns: int | None
    key: str
    facts: TableFacts = NO_FACTS
    pin: Pin | None = None

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
        Files, folders and remote URIs. A folder of plain text is one source, in which each file is a document; any
        other folder expands to its files, also those of folders in it.
    options : TextOptions
    may_be_empty : bool
        Allow folders without files.

    Raises
    ------
    InputError
        For a file that is missing or unreadable, for an unknown format, and for folders that can be read in several
        ways.
    """
    sources: list[Source] = []
    for item in inputs:
        check_name(item)
        try:
            found = _expand(item, options)
        except OSError as error:
            raise storage_error(error, Path(item)) from error
        if not found and not may_be_empty:
            chosen = options.include or options.exclude
            reason = "has no file that --include and --exclude leave" if chosen else "is an empty folder"
            raise InputError(f"{item} {reason}.", code="no-documents")
        sources += found
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


def _expand(item: str, options: TextOptions) -> list[Source]:
    """The sources of an input."""
    if is_remote_uri(item):
        remote = remote_location(item)
        try:
            status = remote.stat()
        except FileNotFoundError:
            files = list_files(item, options)
            if not files and not (item.endswith("/") or remote.list()):  # a bucket has no empty folders
                raise _missing(item) from None
            return _folder_sources(item, files, options)
        return [_file_source(FolderFile(remote.name, item, remote_pin(status)), options)]
    path = Path(item.removeprefix("file://"))
    if not path.exists():
        raise _missing(item)
    if path.is_dir():
        return _folder_sources(str(path), list_files(str(path), options), options)
    if not path.is_file():
        raise InputError(
            f"{item} is not a regular file (pipes and devices can be read only once): save it as a file.",
            code="not-a-file",
        )
    return [_file_source(FolderFile(path.name, str(path), local_pin(path.stat())), options)]


def _folder_sources(folder: str, files: list[FolderFile], options: TextOptions) -> list[Source]:
    """One source of all files if they are plain text, otherwise one for each."""
    if options.format in ("auto", *TABLES) and any(_format_of_name(file.path) in TABLES for file in files):
        every = files
        if options.include or options.exclude:  # the description of a dataset holds no documents to choose
            every = list_files(folder, options.model_copy(update={"include": (), "exclude": ()}))
        found = dataset_files(files, every, options)
        if options.format != "auto" or _are_tables([file for file, _ in found]):
            return [_file_source(file, options, facts) for file, facts in found]
    if not files or options.format not in ("auto", "folder") or (options.format == "auto" and _are_tables(files)):
        return [_file_source(file, options) for file in files]
    unlabelled = options.label_depth == 0
    if not unlabelled:
        check_labels(folder, files, options.label_depth)
    form = "files" if unlabelled else "folder"
    size = sum(file.pin.bytes for file in files)
    _check_fields(folder, form, size, options)
    modified = max(file.pin.modified_ns for file in files)
    return [Source(folder, folder_name(folder), form, None, size, modified, folder_key(folder, files))]


def folder_key(folder: str, files: Sequence[FolderFile]) -> str:
    """Identifies the versions of the files of a folder."""
    return digest_value([real_path(folder), [[file.name, *file.pin.version] for file in files]])


def _are_tables(files: list[FolderFile]) -> bool:
    """Whether the files of a folder are tables; otherwise each is a document.

    Raises `InputError` if some are and others are not.
    """
    known = [_format_of_name(file.path) for file in files]
    tables = [file for file, form in zip(files, known, strict=True) if form not in (None, "lines")]
    plain = [file for file, form in zip(files, known, strict=True) if form in (None, "lines") and file.pin.bytes]
    if tables and plain:
        raise InputError(
            f"{plain[0].path} has no format of a table, and {tables[0].path} has: choose with --include or --exclude, "
            "or set --format (folder: every file is a document).",
            code="mixed-folder",
        )
    if tables or not plain or _format_of_name(plain[0].path) is not None:
        return bool(tables) or not plain
    return _content_format(plain[0].path, _compression(plain[0].path)) is not None  # parts of a table without suffixes


def _file_source(file: FolderFile, options: TextOptions, facts: TableFacts = NO_FACTS) -> Source:
    path = file.path
    check_name(path if is_remote_uri(path) else os.path.abspath(path))
    compression = _compression(path)
    form: str = options.format
    if form == "folder":
        raise InputError(
            f"{path} is a file, and --format folder is for folders: name the folder, and choose with --include.",
            code="unsupported-combination",
        )
    if form == "auto":
        # Empty files, such as Spark's _SUCCESS, have nothing to detect a format from, and nothing to read.
        form = _format_of_name(path) or (_detect_format(path, compression) if file.pin.bytes else "lines")
    if form in TABLES and compression is not None:
        raise InputError(
            f"{path}: a compressed file of {form} cannot be read in parts: decompress it.",
            code="unsupported-combination",
        )
    pin = file.pin
    _check_fields(path, form, pin.bytes, options)
    key = digest_value([real_path(path), *pin.version])
    return Source(path, PurePosixPath(path).name, form, compression, pin.bytes, pin.modified_ns, key, facts, pin)


def _check_fields(path: str, form: str, size: int, options: TextOptions) -> None:
    used = (
        ["where"] * bool(options.where)
        + ["fields"] * bool(options.fields)
        + [f"{name}_field" for name in options.columns]
    )
    if used and size and form not in WITH_FIELDS:
        raise InputError(
            f"{path} ({form}) has no fields, which {used[0]} needs: use JSON lines, CSV, TSV or Parquet.",
            code="unsupported-combination",
        )


def _compression(path: str) -> str | None:
    return COMPRESSIONS.get(PurePosixPath(path).suffix.lower())


def _format_of_name(path: str) -> str | None:
    name = PurePosixPath(path)
    return SUFFIXES.get((name.with_suffix("") if _compression(path) else name).suffix.lower())


def _missing(path: str) -> InputError:
    return InputError(f"{path} does not exist.", code="missing-file")


def _detect_format(path: str, compression: str | None) -> str:
    form = _content_format(path, compression)
    if form is None:
        raise InputError(
            f"{path}: neither the name nor the first line shows the format; set it with --format.",
            code="unknown-format",
        )
    return form


def _content_format(path: str, compression: str | None) -> str | None:
    """The format that the first bytes or the first line of a file show, if any."""
    start = first_stored_bytes(path)
    for magic, form in MAGIC.items():
        if start.startswith(magic):
            return form
    head = first_bytes(path, compression, 1 << 16, AUTO).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = head.partition(b"\n")[0]
    if line.startswith(b"{"):
        return "jsonl"
    if b"#label#:" in line:
        return "processed"
    return "svmlight" if _SVMLIGHT.fullmatch(line.strip()) else None
