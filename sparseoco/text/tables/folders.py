"""Folders of Parquet and Arrow files: partitions, and datasets of Hugging Face as they are on disk.

A dataset saved by ``save_to_disk`` has the file ``state.json``, which names its data files, and ``dataset_info.json``,
which names the classes; with several parts (``train``, ``test``), each is in a folder beside ``dataset_dict.json``. On
the hub the files of a part are named ``train-00000-of-00004.parquet`` or are in a folder `train`. The part is the field
`split`.
"""

import json
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

from sparseoco.core.errors import InputError
from sparseoco.storage.locations import location
from sparseoco.text.folders import FolderFile
from sparseoco.text.options import TextOptions
from sparseoco.text.tables.columns import TableFacts, class_names

STATE, INFO, DICT = "state.json", "dataset_info.json", "dataset_dict.json"
COMPANIONS = frozenset({STATE, INFO, DICT, "dataset_infos.json", "README.md", "LICENSE", "LICENSE.txt"})
"""Files beside the tables of a dataset that hold no documents."""
PARTS = frozenset({"train", "test", "validation", "valid", "val", "dev"})
_PART = re.compile(r"(?:.*/)?([\w.]+?)-\d{5}-of-\d{5}[^/]*")
_PARTITION = re.compile(r"([^/=]+)=([^/]*)/")
_NULL = "__HIVE_DEFAULT_PARTITION__"


def dataset_files(
    files: Sequence[FolderFile], every: Sequence[FolderFile], options: TextOptions
) -> list[tuple[FolderFile, TableFacts]]:
    """The chosen files of a folder with tables that hold documents, each with what is known of it from `every` file.

    Raises `InputError` for a description of a dataset that cannot be read, or that names a file which is not there.
    """
    described = {file.name: file for file in every if PurePosixPath(file.name).name in (STATE, INFO, DICT)}
    folders = {str(PurePosixPath(name).parent): name for name in described if name.endswith(STATE)}
    data_files = {folder: _data_files(described[name]) for folder, name in folders.items()}
    there = {file.name for file in every}
    for folder, names in data_files.items():
        absent = sorted(name for name in names if str(PurePosixPath(folder, name)) not in there)
        if absent:
            raise InputError(
                f"{described[folders[folder]].path} names {absent[0]}, which does not exist: the dataset is "
                "incomplete.",
                code="missing-file",
            )
    infos: dict[str, tuple[str, ...]] = {}
    found = []
    for file in files:
        path = PurePosixPath(file.name)
        folder = str(path.parent)
        if path.name in COMPANIONS or (folder in data_files and path.name not in data_files[folder]):
            continue
        if folder not in infos:
            info = described.get(str(path.parent / INFO))
            infos[folder] = () if info is None else class_names(_read(info).get("features"), options.label_field)
        values = tuple((unquote(key), _value(value)) for key, value in _PARTITION.findall(file.name))
        part = _PART.fullmatch(file.name)
        above = path.parent.parent
        if folder in data_files:
            name = path.parent.name if str(above / DICT) in described else None
        else:
            name = part[1] if part else path.parent.name if path.parent.name in PARTS else None
        found.append((file, TableFacts(values, infos[folder], name)))
    return found


def _value(text: str) -> str | None:
    return None if text == _NULL else unquote(text)


def _data_files(state: FolderFile) -> set[str]:
    described = _read(state)
    try:
        if described.get("_indices_files"):
            raise InputError(
                f"{state.path}: the dataset is a selection of rows of its files; save it again with save_to_disk.",
                code="unsupported-format",
            )
        return {entry["filename"] for entry in described["_data_files"]}
    except (KeyError, TypeError):
        raise InputError(f"{state.path} does not name the files of its dataset.", code="corrupt-file") from None


def _read(file: FolderFile) -> dict[str, Any]:
    try:
        found = json.loads(location(file.path).read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InputError(f"{file.path} is not a JSON object.", code="corrupt-file")
    return found
