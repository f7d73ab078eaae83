"""The files of a folder, and which of its folders are labels."""

import os
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import is_remote_uri, remote_location
from sparseoco.text.options import TextOptions
from sparseoco.text.stored import Pin, local_pin, remote_pin

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


def list_files(folder: str, options: TextOptions) -> list[FolderFile]:
    """All files below a folder that `include` and `exclude` leave, in order; hidden files and `MARKERS` are left out.

    Links are followed. Raises `InputError` for a link to a folder that contains it, and for what is not a regular file.
    """
    found = _remote_files(folder) if is_remote_uri(folder) else _local_files(folder, "", ())
    chosen = (file for file in found if not _is_hidden(file.name) and _is_chosen(file.name, options))
    return sorted(chosen, key=lambda file: file.name.split("/"))


def hidden_files(inputs: Iterable[str], options: TextOptions) -> list[str]:
    """The hidden files and folders below local inputs, which `list_files` leaves out, unless `exclude` names them."""
    folders = [item for item in inputs if not is_remote_uri(item) and os.path.isdir(item)]
    found = ((folder, file.name) for folder in folders for file in _local_files(folder, "", ()))
    names = ((folder, name) for folder, name in found if _is_hidden(name) and not _matches(name, options.exclude))
    return sorted(os.path.join(*name).encode(errors="backslashreplace").decode() for name in names)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))


def _is_chosen(name: str, options: TextOptions) -> bool:
    return (not options.include or _matches(name, options.include)) and not _matches(name, options.exclude)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in patterns for part in (name, *name.split("/")))


def _local_files(folder: str, name: str, above: tuple[tuple[int, int], ...]) -> Iterator[FolderFile]:
    """All files; a hidden folder is not looked into, and stands for its files."""
    state = os.stat(folder)
    place = state.st_dev, state.st_ino
    if place in above:
        raise InputError(f"{folder} is a link to a folder that contains it: remove or --exclude it.", code="not-a-file")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in MARKERS:
                continue
            if entry.name.startswith("."):
                yield FolderFile(name + entry.name, entry.path, Pin(0, 0))
                continue
            check_name(entry.path)
            if entry.is_dir():
                yield from _local_files(entry.path, f"{name}{entry.name}/", (*above, place))
            elif entry.is_file():
                yield FolderFile(name + entry.name, entry.path, local_pin(entry.stat()))
            else:
                raise InputError(f"{entry.path} is not a regular file.", code="not-a-file")


def _remote_files(folder: str) -> Iterator[FolderFile]:
    root = remote_location(folder)
    for path, status in root.list(recursive=True):
        name = path.key.removeprefix(root.key).lstrip("/")
        parts = name.split("/")
        if status is not None and not MARKERS.intersection(parts):
            yield FolderFile(name, str(path), remote_pin(status))


def check_name(path: str) -> None:
    """Raises `InputError` for a file name that is not UTF-8, which neither manifest nor messages can represent."""
    try:
        path.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise InputError(f"{shown}: the file name is not UTF-8; rename the file.", code="file-name") from None


def folder_name(path: str) -> str:
    """The name of a folder, even of the working directory."""
    return PurePosixPath(path if is_remote_uri(path) else os.path.abspath(path)).name


def document_label(name: str, folder: str, depth: int | None) -> str:
    """The label of a file `name` of `folder`, with one document per file.

    >>> [document_label("enron1/ham/7.txt", "enron", depth) for depth in (None, 1)], document_label("7", "a/ham", None)
    (['ham', 'enron1'], 'ham')
    """
    if depth is not None:
        return name.split("/")[depth - 1]
    return PurePosixPath(name).parent.name or folder_name(folder)


def check_labels(folder: str, files: Sequence[FolderFile], depth: int | None) -> None:
    """Check that the label of every file is clear. Raises `InputError`, with the file.

    By default labels are the folders of the files, so that none of these folders may contain another.
    """
    if depth is not None:
        for file in files:
            if file.name.count("/") < depth:
                raise InputError(
                    f"{file.path} is not below {depth} folders of {folder}, as --label-depth {depth} needs.",
                    code="invalid-input",
                )
        return
    parents = [file.name.rpartition("/")[0] for file in files]
    above = {parent[:k] for parent in set(parents) - {""} for k in range(len(parent)) if k == 0 or parent[k] == "/"}
    for file, parent in zip(files, parents, strict=True):
        if parent in above:
            raise InputError(
                f"{file.path} is in a folder with folders that are labels: leave it out with --exclude, or say with "
                "--label-depth which folders are the labels (0: none).",
                code="invalid-input",
            )
