"""From inputs to files and folders of documents, with their formats, compressions and versions."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path, PurePosixPath
from posixpath import splitext
from typing import NamedTuple

from sparseoco.core.errors import InputError, unsupported
from sparseoco.storage import inputs as stored
from sparseoco.storage.commit import digest_value
from sparseoco.storage.inputs import FolderFile, Pin
from sparseoco.storage.locations import Location, absolute_path, check_name, is_remote_uri, real_path, storage_errors
from sparseoco.text import formats
from sparseoco.text.formats import AUTO, first_bytes
from sparseoco.text.options import StoreOptions, TextOptions, TokenizerOptions

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
APPLIES: dict[str, Set[str]] = {
    **dict.fromkeys(("text_field", "label_field", "id_field"), formats.WITH_FIELDS),
    "header": frozenset(formats.DELIMITERS),
    **dict.fromkeys(("labels", "classes"), formats.FORMATS.keys() - formats.UNLABELLED),
    **dict.fromkeys(("encoding", "max_line_bytes"), formats.FORMATS.keys() - formats.TABLES),
    **dict.fromkeys(TokenizerOptions.model_fields, formats.FORMATS.keys() - formats.COUNTED),
}
"""The formats of which documents are read otherwise with an option; an option that is not here applies to all."""


class Source(NamedTuple):
    """An input file, or a folder with one document per file.

    Parameters
    ----------
    path : str
        Local path, as given, or remote URI.
    absolute : str
        Absolute path, or URI: independent of the working directory.
    short : str
        File name, unique among the sources of the store; generated ids begin with it.
    key : str
        Identifies this version of the file: path, size, and modification time or ETag.
    pin : Pin or None
        The version that is read; None for folders, whose files have their own.
    of_folder : bool
        Whether a folder was named, and not this file.
    """

    path: str
    absolute: str
    short: str
    format: str
    compression: str | None
    bytes: int
    modified_ns: int | None
    key: str
    pin: Pin | None = None
    of_folder: bool = False

    @property
    def real(self) -> str:
        """Absolute path without symbolic links, or URI: equal for all spellings of a path."""
        return real_path(self.absolute)


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
        with storage_errors(Path(item)):
            path, file = stored.find_input(item)
            found = _folder_sources(path, options) if file is None else [_file_source(file, options)]
        if not found and not may_be_empty:
            chosen = options.include or options.exclude
            reason = "has no file that matches --include and not --exclude" if chosen else "is an empty folder"
            raise InputError(f"{item} {reason}.", code="no-documents")
        sources += found
    if not sources and not may_be_empty:
        raise InputError("There is nothing to read: no input names a file.", code="no-documents")
    return with_unique_names(sources, [])


def check_applied(sources: Iterable[Source], options: TextOptions, given: Iterable[str]) -> None:
    """Raises `InputError` for one of the options `given` that is not the default and applies to none of the sources."""
    read = [source for source in sources if source.bytes or source.format in formats.FOLDERS]
    kinds, folders = {source.format for source in read}, any(source.of_folder for source in read)
    for name in given if read else ():
        default = TextOptions.model_fields[name].get_default()
        used = folders if name in ("include", "exclude") else not kinds.isdisjoint(APPLIES.get(name, kinds))
        if not used and getattr(options, name) != default:
            what = "a file, and no folder" if kinds <= APPLIES.get(name, formats.FORMATS.keys()) else read[0].format
            raise unsupported(f"--{name.replace('_', '-')} does not apply to {read[0].path} ({what}): leave it out.")


def with_unique_names(sources: list[Source], earlier: Iterable[str]) -> list[Source]:
    """The sources with unique short names: the second x.txt, counting the `earlier` paths, is x.txt~2."""
    used: set[str] = set()
    numbers: dict[str, int] = {}  # the last one of each name

    def next_name(path: str) -> str:
        name = path.rstrip("/").rpartition("/")[2]
        number = numbers.get(name, 0) + 1
        while (short := name if number == 1 else f"{name}~{number}") in used:
            number += 1
        numbers[name] = number
        used.add(short)
        return short

    for path in earlier:
        next_name(path)
    return [source._replace(short=next_name(source.absolute)) for source in sources]


_OF_SHARDS = re.compile(r"(.*/)?manifest-\d{8}\.json")


class FolderSummary:
    """What decides how a folder is read, from one pass over its files in any order.

    Raises `InputError` for shards, which are no text.

    Attributes
    ----------
    n_files, bytes, modified_ns : int
        Number of files, their size, and the latest time of a change.
    versions : SetDigest
        Of their names and versions.
    table, plain : FolderFile or None
        The first file in order whose name is one of a table; and that which has content and whose name is not.
    parents : dict
        The first file of each folder, for its label.
    """

    def __init__(self, files: Iterable[FolderFile], *, labelled: bool) -> None:
        self.n_files = self.bytes = self.modified_ns = 0
        self.versions = stored.SetDigest()
        self.table: FolderFile | None = None
        self.plain: FolderFile | None = None
        self.parents: dict[str, FolderFile] = {}
        for file in files:
            self.n_files += 1
            self.bytes += file.pin.bytes
            self.modified_ns = max(self.modified_ns, file.pin.modified_ns)
            self.versions.add(version_of(file))
            if file.name.endswith(".json") and _OF_SHARDS.fullmatch(file.name):
                raise InputError(
                    f"{file.path} is of a folder of shards, which are no text: name the text that they were made from.",
                    code="unknown-format",
                )
            form = _format_of_name(file.path)
            if form not in (None, "lines"):
                self.table = _earlier(file, self.table)
            elif file.pin.bytes:
                self.plain = _earlier(file, self.plain)
            if labelled:
                parent = file.name.rpartition("/")[0]
                self.parents[parent] = _earlier(file, self.parents.get(parent))


def _earlier(file: FolderFile, other: FolderFile | None) -> FolderFile:
    return file if other is None or file.order < other.order else other


def version_of(file: FolderFile) -> str:
    """The name and the version of a file of a folder."""
    return repr((file.name, *file.pin.version))


def folder_key(folder: str, versions: stored.SetDigest) -> str:
    """Identifies the versions of the files of a folder."""
    return digest_value([real_path(folder), versions.hexdigest()])


def _folder_sources(folder: str, options: TextOptions) -> list[Source]:
    """One source of all files if they are plain text, otherwise one for each."""
    every = FolderSummary(iter_files(folder, options), labelled=not options.unlabelled)
    if (
        not every.n_files
        or options.format not in ("auto", "folder")
        or (options.format == "auto" and _are_tables(every))
    ):  # remote files whose format the name does not show are read concurrently
        files = sorted(iter_files(folder, options), key=attrgetter("order"))
        found = stored.map_files(folder, lambda file: _file_source(file, options), files)
        return [source._replace(of_folder=True) for source in found]
    _check_labels(every)
    form = "files" if options.unlabelled else "folder"
    _check_fields(folder, form, every.bytes, options)
    key = folder_key(folder, every.versions)
    path, name = absolute_path(folder), folder_name(folder)
    return [Source(folder, path, name, form, None, every.bytes, every.modified_ns, key, of_folder=True)]


def _check_labels(files: FolderSummary) -> None:
    """Check that the label of every file is clear. Raises `InputError`, with the first file of which it is not.

    Labels are the folders of the files, so that none of these folders may contain another.
    """
    parents = files.parents
    above = {parent[:k] for parent in set(parents) - {""} for k in range(len(parent)) if k == 0 or parent[k] == "/"}
    unclear = [parents[parent] for parent in above & set(parents)]
    if unclear:
        first = min(unclear, key=attrgetter("order"))
        raise InputError(
            f"{first.path} is in a folder with folders that are labels: leave it out with "
            "--exclude, or move it to a folder of its label.",
            code="invalid-input",
        )


def _are_tables(files: FolderSummary) -> bool:
    """Whether the files of a folder are tables; otherwise each is a document.

    Raises `InputError` if some are and others are not.
    """
    table, plain = files.table, files.plain
    if table is not None and plain is not None:
        raise InputError(
            f"{plain.path} is plain text and {table.path} has records: choose files with --include or --exclude, or "
            "set --format (folder: every file is a document).",
            code="mixed-folder",
        )
    if plain is None:
        return True
    if _format_of_name(plain.path) is not None:
        return False
    return _content_format(plain.path, compression_by_name(plain.path)) is not None  # parts of a table without suffixes


def _file_source(file: FolderFile, options: TextOptions) -> Source:
    path = file.path
    check_name(absolute_path(path))
    compression = compression_by_name(path)
    form: str = options.format
    if form == "folder":
        raise unsupported(
            f"{path} is a file, and --format folder is for folders: name the folder, and choose with --include."
        )
    if form == "auto":
        # Empty files, such as Spark's _SUCCESS, have nothing to detect a format from, and nothing to read.
        form = _format_of_name(path) or (_content_format(path, compression) if file.pin.bytes else "lines") or ""
    if not form:
        raise InputError(
            f"{path}: neither the name nor the first line shows the format; set it with --format.",
            code="unknown-format",
        )
    if form in formats.TABLES and compression is not None:
        raise unsupported(f"{path}: a compressed file of {form} cannot be read in parts: decompress it.")
    pin = file.pin
    _check_fields(path, form, pin.bytes, options)
    key = digest_value([real_path(path), *pin.version])
    return Source(
        path,
        absolute_path(path),
        PurePosixPath(path).name,
        form,
        compression,
        pin.bytes,
        pin.modified_ns,
        key,
        pin,
    )


def _check_fields(path: str, form: str, size: int, options: TextOptions) -> None:
    used = [name for name in ("where", "fields") if getattr(options, name)]
    used += ["a carried column or slice"] * bool(options.carried) + [f"{name}_field" for name in options.columns]
    if used and size and form not in formats.WITH_FIELDS:
        raise unsupported(f"{path} ({form}) has no fields, which {used[0]} needs: use JSON lines, CSV, TSV or Parquet.")


def compression_by_name(path: str) -> str | None:
    """The compression that the suffix of a file names; None for all others."""
    return COMPRESSIONS.get(splitext(path)[1].lower())


def _format_of_name(path: str) -> str | None:
    name = splitext(path)[0] if compression_by_name(path) else path  # pathlib would keep a table of all names
    return formats.SUFFIXES.get(splitext(name)[1].lower())


def _content_format(path: str, compression: str | None) -> str | None:
    """The format that the first bytes or the first line of a file show, if any."""
    start = stored.some_bytes(path, 0, 8)
    for magic, form in MAGIC.items():
        if start.startswith(magic):
            return form
    head = first_bytes(path, compression, 1 << 16, AUTO).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = head.partition(b"\n")[0].strip()
    patterns = ((name, form.first_line.encode()) for name, form in formats.FORMATS.items() if form.first_line)
    return next((name for name, pattern in patterns if re.match(pattern, line)), None)


# ----------------------------------------------------------------------------------------------------------------------
# The files of a folder, which of its folders are labels, and outputs that would be among the files.


WRITTEN = ("manifest.json", "part.parquet")  # examples of the files that a command writes to a folder
MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})  # of complete folders; they hold no documents


def iter_files(folder: str, options: TextOptions) -> Iterator[FolderFile]:
    """All files below a folder that `include` and `exclude` leave, in any order, without hidden ones and `MARKERS`.

    Links are followed. Raises `InputError` for a link to a folder that contains it, and for what is not a regular file.
    """
    return (file for file in _all_files(folder, options) if _is_read(file.name, options))


def files_again(source: Source, options: TextOptions) -> Iterator[FolderFile]:
    """The files of a folder. Raises `InputError` at the end if they are not those that were found."""
    versions = stored.SetDigest()
    for file in iter_files(source.absolute, options):
        versions.add(version_of(file))
        yield file
    if folder_key(source.absolute, versions) != source.key:
        raise stored.changed(source.path)


def hidden_files(inputs: Iterable[str], options: TextOptions) -> list[str]:
    """The hidden files and folders below local inputs, which `iter_files` leaves out, unless `exclude` names them."""
    folders = [item for item in inputs if os.path.isdir(item)]
    found = ((folder, file.name) for folder in folders for file in _all_files(folder, options))
    names = ((folder, name) for folder, name in found if _is_hidden(name) and not _matches(name, options.exclude))
    return sorted(os.path.join(*name).encode(errors="backslashreplace").decode() for name in names)


def check_apart(
    out: Location, inputs: Iterable[str], options: StoreOptions, sources: Iterable[str] = (), *, is_file: bool = False
) -> None:
    """Check that an output is not among the inputs, where the next run would read it.

    Parameters
    ----------
    out : Location
        The file or folder to write.
    inputs : iterable of str
        Files, folders and remote URIs.
    options : StoreOptions
        Which files of the folders are read.
    sources : iterable of str
        The absolute paths of the files of the inputs, none of which may be in `out`.
    is_file : bool
        Whether `out` is a file.

    Raises
    ------
    InputError
        Names the input.
    """
    own = real_path(str(out)).rstrip("/")
    paths = [own] if is_file else [f"{own}/{name}" for name in WRITTEN]
    found = [path for path in sources if (real_path(path) == own if is_file else real_path(path).startswith(f"{own}/"))]
    for item in inputs:
        check_name(item)
        folder = real_path(absolute_path(item.removeprefix("file://"))).rstrip("/")
        names = [path.removeprefix(f"{folder}/") for path in paths if path.startswith(f"{folder}/")]
        may_be_folder = is_remote_uri(folder) or os.path.isdir(folder)
        if may_be_folder and any(_is_read(name, options) for name in names):
            found.append(item)
    if found:
        raise unsupported(
            f"{found[0]} is an input, and the output {out} is in it or around it, where the next run would read it: "
            "choose another place, or leave it out with --exclude."
        )


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_read(name: str, options: StoreOptions) -> bool:
    return not _is_hidden(name) and _is_chosen(name, options)


def _is_chosen(name: str, options: StoreOptions) -> bool:
    return (not options.include or _matches(name, options.include)) and not _matches(name, options.exclude)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in patterns for part in (name, *name.split("/")))


def _all_files(folder: str, options: TextOptions) -> Iterator[FolderFile]:
    """All files below a folder but `MARKERS` and those that `exclude` names."""

    def skip(name: str) -> bool:
        return name in MARKERS or any(fnmatchcase(name, pattern) for pattern in options.exclude)

    return stored.iter_folder(folder, skip, lambda name: _is_chosen(name, options))


def folder_name(path: str) -> str:
    """The name of a folder, even of the working directory."""
    return PurePosixPath(absolute_path(path)).name


def document_label(name: str, folder: str) -> str:
    """The label of a file `name` of `folder`, with one document per file: the folder of the file.

    >>> document_label("enron1/ham/7.txt", "enron"), document_label("7", "a/ham")
    ('ham', 'ham')
    """
    return PurePosixPath(name).parent.name or folder_name(folder)
