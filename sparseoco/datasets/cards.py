"""Where the cards of corpora are, and their names; loads no library."""

from pathlib import Path
from typing import Final

RUN_FILES: Final = frozenset({"demo"})
"""Files in `data/` that are not cards."""


def data_folder() -> Path:
    """The folder of the cards: inside an installed package, or at the top of the repository."""
    here = Path(__file__).resolve().parents[1]
    inside = here / "data"
    return inside if inside.is_dir() else here.parent / "data"


def card_files() -> list[Path]:
    """The files of the cards, `NAME.toml`, by name."""
    return [path for path in sorted(data_folder().glob("*.toml")) if path.stem not in RUN_FILES]
