"""Paths of inputs: absolute, and without symbolic links."""

import os

from sparseoco.storage.locations import is_remote_uri


def absolute_path(path: str) -> str:
    """Absolute path or URI, for workers with other working directories."""
    return path if is_remote_uri(path) else os.path.abspath(path)


def real_path(path: str) -> str:
    """A local path without symbolic links; a remote URI as it is."""
    return path if is_remote_uri(path) else os.path.realpath(path)


class RealPaths:
    """`real_path` of many paths: the links of a folder are followed once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """The path without symbolic links."""
        name = path.rpartition("/")[2]
        folder = path.removesuffix(name)
        if is_remote_uri(path) or name in ("", ".", "..") or os.path.islink(path):
            return real_path(path)
        if folder not in self._folders:
            self._folders[folder] = real_path(folder or ".")
        return os.path.join(self._folders[folder], name)
