"""What is asked of object stores and other file systems at an address, and of a disk in another way: put, get, remove.

A put shows the whole object or none. Puts that hold only if nothing is there, or if what is there is still the same,
are the store's own conditional puts: there is no rename. File systems whose fsspec driver has none look first, which
two writers at the same moment can get past.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from sparseoco.storage.locations import Location


def put_file(source: Path, target: Location, *, absent: bool) -> None:
    """Put a file of this machine. Raises `FileExistsError` if `absent` is asked for and something is there."""
    files, path = _at(target)
    files.put_file(str(source), path, mode="create" if absent else "overwrite")


def put_new(target: Location, data: bytes) -> str | None:
    """Put what is not there yet; gives its tag. Raises `FileExistsError` if something is."""
    files, path = _at(target)
    return _tag_of(files.pipe_file(path, data, mode="create")) or tag(target)


def put_again(target: Location, data: bytes, expected: str | None) -> str | None:
    """Put over what has the `expected` tag; gives the new one. Raises `FileExistsError` if it is another by now."""
    files, path = _at(target)
    if isinstance(expected, str) and _knows_tags(files):
        return _tag_of(files.pipe_file(path, data, IfMatch=expected)) or tag(target)
    if tag(target) != expected:
        raise FileExistsError(f"{target} was put by another writer")
    files.pipe_file(path, data)
    return tag(target)


def tag(target: Location) -> str | None:
    """What changes whenever an object is put again with other bytes. Raises `FileNotFoundError`."""
    files, path = _at(target)
    described = files.info(path)
    return _tag_of(described) or str(files.checksum(path))


def remove(target: Location) -> None:
    """Remove an object, if it is there."""
    with suppress(FileNotFoundError):
        files, path = _at(target)
        files.rm_file(path)


def remove_below(folder: Location) -> None:
    """Remove all objects of a folder, if there are any."""
    with suppress(FileNotFoundError):
        files, path = _at(folder)
        files.rm(path, recursive=True)


def fetch(source: Location, target: Path) -> None:
    """Copy an object to this machine. Raises `FileNotFoundError`, and `OSError`."""
    files, path = _at(source)
    files.get_file(path, str(target))


def read_up_to(source: Location, most: int) -> bytes | None:
    """A file's content, here or at an address; None where it has more bytes. Raises as `read_all`."""
    if isinstance(source, Path):
        size = source.stat().st_size
    else:
        files, path = _at(source)
        size = files.info(path).get("size") or 0  # some servers do not tell
    if size > most:
        return None
    data = source.read_bytes()
    return data if len(data) <= most else None


def read_all(sources: list[Location]) -> list[bytes]:
    """The contents of objects of one file system, asked for at once. Raises `FileNotFoundError`, and `OSError`."""
    if not sources:
        return []
    files, _ = _at(sources[0])
    paths = [_at(source)[1] for source in sources]
    found = files.cat(paths)
    return [found[path] for path in paths]


def _at(place: Location) -> tuple[Any, str]:
    found: Any = place
    return found.fs, found.path


def _knows_tags(files: Any) -> bool:
    return "s3" in files.protocol


def _tag_of(described: Any) -> str | None:
    found = described.get("ETag") if isinstance(described, dict) else None
    return found if isinstance(found, str) else None
