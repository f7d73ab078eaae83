"""Folders of documents, and paths as the file system knows them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import Location, absolute_path, check_name, is_remote_uri, real_path, remote_location
from sparseoco.text.options import StoreOptions, TextOptions
from sparseoco.text.stored import Pin, changed, local_pin, remote_pin


class RealPaths:
    """`real_path` of many paths: the links of a folder are followed once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """The path without symbolic links."""
        name = path.rpartition("/")[2]
        folder = path.removesuffix(name)
        if name in ("", ".", "..") or os.path.islink(path):
            return real_path(path)
        if folder not in self._folders:
            self._folders[folder] = real_path(folder or ".")
        return os.path.join(self._folders[folder], name)


# ----------------------------------------------------------------------------------------------------------------------
# The files of a folder, which of its folders are labels, and outputs that would be among the files.


MARKERS = frozenset({"_SUCCESS", "_metadata", "_common_metadata"})  # of complete folders; they hold no documents


class FolderFile(NamedTuple):
    """A file below a folder.

    Parameters
    ----------
    name, path : str
        Path in the folder, with slashes; and local path or remote URI.
    pin : Pin
        Its version.
    """

    name: str
    path: str
    pin: Pin


def iter_files(folder: str, options: TextOptions) -> Iterator[FolderFile]:
    """All files below a folder that `include` and `exclude` leave, in any order, without hidden ones and `MARKERS`.

    Links are followed. Raises `InputError` for a link to a folder that contains it, and for what is not a regular file.
    """
    found = _remote_files(folder) if is_remote_uri(folder) else _local_files(folder, "", (), options)
    return (file for file in found if _is_read(file.name, options))


def list_files(folder: str, options: TextOptions) -> list[FolderFile]:
    """The files that `iter_files` gives, folder by folder in alphabetical order."""
    return sorted(iter_files(folder, options), key=in_order)


def in_order(file: FolderFile) -> str:
    """The key by which the files of a folder are sorted: by the names of its folders and its own."""
    return file.name.replace("/", "\0")


def hidden_files(inputs: Iterable[str], options: TextOptions) -> list[str]:
    """The hidden files and folders below local inputs, which `list_files` leaves out, unless `exclude` names them."""
    folders = [item for item in inputs if os.path.isdir(item)]
    found = ((folder, file.name) for folder in folders for file in _local_files(folder, "", (), options))
    names = ((folder, name) for folder, name in found if _is_hidden(name) and not _matches(name, options.exclude))
    return sorted(os.path.join(*name).encode(errors="backslashreplace").decode() for name in names)


def check_apart(
    out: Location,
    inputs: Iterable[str],
    options: StoreOptions,
    sources: Iterable[str] = (),
    written: Sequence[str] = ("manifest.json", "part.parquet"),
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
    written : sequence of str
        Examples of what is written in the folder `out`; none if it is a file.

    Raises
    ------
    InputError
        Names the input.
    """
    own, real = real_path(str(out)).rstrip("/"), RealPaths()
    paths = [f"{own}/{name}" for name in written] or [own]
    found = [path for path in sources if (real(path).startswith(f"{own}/") if written else real(path) == own)]
    for item in inputs:
        folder = real_path(absolute_path(item.removeprefix("file://"))).rstrip("/")
        names = [path.removeprefix(f"{folder}/") for path in paths if path.startswith(f"{folder}/")]
        if (is_remote_uri(item) or os.path.isdir(folder)) and any(_is_read(name, options) for name in names):
            found.append(item)
    if found:
        raise InputError(
            f"{found[0]} is an input, and the output {out} is in it or around it, where the next run would read it: "
            "choose another place, or leave it out with --exclude.",
            code="unsupported-combination",
        )


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_read(name: str, options: StoreOptions) -> bool:
    return not _is_hidden(name) and _is_chosen(name, options)


def _is_chosen(name: str, options: StoreOptions) -> bool:
    return (not options.include or _matches(name, options.include)) and not _matches(name, options.exclude)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in patterns for part in (name, *name.split("/")))


def _local_files(
    folder: str, name: str, above: tuple[tuple[int, int], ...], options: TextOptions
) -> Iterator[FolderFile]:
    """All files but those that `exclude` names; a hidden folder is not looked into, and stands for its files.

    Nothing but regular files is opened: a pipe would block.
    """
    state = os.stat(folder)
    place = state.st_dev, state.st_ino
    if place in above:
        raise InputError(f"{folder} is a link to a folder that contains it: remove or --exclude it.", code="not-a-file")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in MARKERS or any(fnmatchcase(entry.name, pattern) for pattern in options.exclude):
                continue
            if entry.name.startswith("."):
                yield FolderFile(name + entry.name, entry.path, Pin(0, 0))
                continue
            check_name(entry.path)
            if _is(entry.is_dir):
                yield from _local_files(entry.path, f"{name}{entry.name}/", (*above, place), options)
            elif _is(entry.is_file):
                yield FolderFile(name + entry.name, entry.path, _pin(entry))
            elif _is_chosen(name + entry.name, options):
                what = "a link that leads nowhere" if entry.is_symlink() else "not a regular file"
                raise InputError(f"{entry.path} is {what}: remove or --exclude it.", code="not-a-file")


def _is(kind: Callable[[], bool]) -> bool:
    """Whether an entry is of a kind; no kind is that of a link that leads to itself."""
    try:
        return kind()
    except OSError:
        return False


def _pin(entry: "os.DirEntry[str]") -> Pin:
    """The version of a file that was listed."""
    try:
        return local_pin(entry.stat())
    except FileNotFoundError:
        raise changed(entry.path) from None


def _remote_files(folder: str) -> Iterator[FolderFile]:
    root = remote_location(folder)
    for path, status in root.iter_files():
        name = path.key.removeprefix(root.key).lstrip("/")
        if MARKERS.isdisjoint(name.split("/")):
            yield FolderFile(name, str(path), remote_pin(status))


def folder_name(path: str) -> str:
    """The name of a folder, even of the working directory."""
    return PurePosixPath(absolute_path(path)).name


def document_label(name: str, folder: str) -> str:
    """The label of a file `name` of `folder`, with one document per file: the folder of the file.

    >>> document_label("enron1/ham/7.txt", "enron"), document_label("7", "a/ham")
    ('ham', 'ham')
    """
    return PurePosixPath(name).parent.name or folder_name(folder)
