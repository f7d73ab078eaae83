"""What the codes of errors mean and what to do: the text of `sparseoco errors` and of the reference page."""

import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

GROUPS = {
    "options": "Options and run files",
    "inputs": "Input text and records",
    "stores": "Stores and features",
    "training": "Training and search",
    "results": "Runs, models and scores",
    "python": "Arrays and tables",
    "files": "Files and folders",
    "remote": "Object stores",
    "cluster": "Workers and clusters",
    "corpora": "Public corpora and papers",
}
"""Headings of the groups of codes."""


class ErrorEntry(NamedTuple):
    """An error: its group, the exit codes it ends a command with, what it means and what to do."""

    group: str
    exit: tuple[int, ...]
    meaning: str
    remedy: str


@cache
def error_entries() -> dict[str, ErrorEntry]:
    """The entries by code, those of a group together, sorted by code."""
    groups = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return {
        code: ErrorEntry(group, tuple(entry["exit"]), entry["meaning"], entry["remedy"])
        for group in GROUPS
        for code, entry in sorted(groups[group].items())
    }
