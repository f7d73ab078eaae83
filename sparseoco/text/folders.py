"""Folders of documents, and paths as the file system knows them."""

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from sparseoco.core.errors import InputError
from sparseoco.storage.inputs import FolderFile, iter_folder, may_be_folder
from sparseoco.storage.locations import Location, absolute_path, real_path
from sparseoco.text.options import StoreOptions, TextOptions


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


def iter_files(folder: str, options: TextOptions) -> Iterator[FolderFile]:
    """All files below a folder that `include` and `exclude` leave, in any order, without hidden ones and `MARKERS`.

    Links are followed. Raises `InputError` for a link to a folder that contains it, and for what is not a regular file.
    """
    return (file for file in _all_files(folder, options) if _is_read(file.name, options))


def list_files(folder: str, options: TextOptions) -> list[FolderFile]:
    """The files that `iter_files` gives, folder by folder in alphabetical order."""
    return sorted(iter_files(folder, options), key=in_order)


def in_order(file: FolderFile) -> str:
    """The key by which the files of a folder are sorted: by the names of its folders and its own."""
    return file.name.replace("/", "\0")


def hidden_files(inputs: Iterable[str], options: TextOptions) -> list[str]:
    """The hidden files and folders below local inputs, which `list_files` leaves out, unless `exclude` names them."""
    folders = [item for item in inputs if os.path.isdir(item)]
    found = ((folder, file.name) for folder in folders for file in _all_files(folder, options))
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
        if may_be_folder(folder) and any(_is_read(name, options) for name in names):
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


def _all_files(folder: str, options: TextOptions) -> Iterator[FolderFile]:
    """All files below a folder but `MARKERS` and those that `exclude` names."""

    def skip(name: str) -> bool:
        return name in MARKERS or any(fnmatchcase(name, pattern) for pattern in options.exclude)

    return iter_folder(folder, skip, lambda name: _is_chosen(name, options))


def folder_name(path: str) -> str:
    """The name of a folder, even of the working directory."""
    return PurePosixPath(absolute_path(path)).name


def document_label(name: str, folder: str) -> str:
    """The label of a file `name` of `folder`, with one document per file: the folder of the file.

    >>> document_label("enron1/ham/7.txt", "enron"), document_label("7", "a/ham")
    ('ham', 'ham')
    """
    return PurePosixPath(name).parent.name or folder_name(folder)
