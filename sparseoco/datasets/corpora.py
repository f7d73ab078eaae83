"""Public corpora: cards that describe them, their download, and their archives."""

import bz2
import gzip
import lzma
import os
import shutil
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import Field, ValidationError
from typing_extensions import TypedDict

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.formatting import not_one_of
from sparseoco.core.logs import report_progress
from sparseoco.storage.commit import commit_json, digest_file, digest_value, read_validated, with_other_keys
from sparseoco.storage.locations import storage_error, storage_errors, toml_value
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.manifest import Record

# ----------------------------------------------------------------------------------------------------------------------
# Where the cards of corpora are, and their names; loads no library.


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


# ----------------------------------------------------------------------------------------------------------------------
# Unpack downloaded archives: only plain files inside the target folder.


Packing = Literal["none", "tar", "zip", "gz", "bz2"]
MAX_BYTES: Final = 16 << 30
MAX_FILES: Final = 2_000_000
_CORRUPT: Final = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError)


def unpack(archive: Path, folder: Path, packing: Packing, *, only: Sequence[str] = (), name: str = "") -> None:
    """Unpack an archive into a folder.

    Parameters
    ----------
    archive : Path
        The archive, or a single compressed file, which is written as `name` without its suffix.
    folder : Path
        The target folder, which exists.
    packing : str
        The format of the archive.
    only : sequence of str
        Patterns (`fnmatch`) of the members to unpack; none for all.

    Raises
    ------
    InputError
        For a corrupt archive, one without the expected members, a member that is not allowed, or more content than
        `MAX_BYTES` or `MAX_FILES`.
    StorageError
        If a file cannot be written.
    """
    try:
        if packing == "tar":
            with tarfile.open(archive) as tar:
                infos = [info for info in tar if not info.isdir()]
                chosen = _allowed(archive, {info.name: info.size if info.isreg() else None for info in infos}, only)
                tar.extractall(folder, [info for info in infos if info.name in chosen], filter="data")
        elif packing == "zip":
            with zipfile.ZipFile(archive) as zipped:
                sizes = {info.filename: info.file_size for info in zipped.infolist() if not info.is_dir()}
                zipped.extractall(folder, _allowed(archive, sizes, only))
        else:
            target = folder / PurePosixPath(name or archive.name).stem
            with gzip.open(archive) if packing == "gz" else bz2.open(archive) as source, target.open("xb") as file:
                while block := source.read(1 << 20):
                    file.write(block)
                    _check_size(archive, file.tell())
                if not file.tell():
                    raise _corrupt(archive)
    except _CORRUPT as error:
        raise _corrupt(archive) from error
    except OSError as error:
        raise _corrupt(archive) if error.errno is None else storage_error(error, folder) from error


def _allowed(archive: Path, sizes: Mapping[str, int | None], only: Sequence[str]) -> set[str]:
    """The names of the members to unpack, from the sizes of all; None for what is no plain file."""
    chosen = {name for name in sizes if not only or any(fnmatchcase(name, pattern) for pattern in only)}
    if not chosen:
        raise InputError(f"{archive.name} has none of the expected files.", code="missing-member")
    for name in chosen:
        if sizes[name] is None or name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise InputError(
                f"{archive.name} is refused: its member {name!r} is no plain file inside the archive's own folder.",
                code="unsafe-archive",
            )
    if len(chosen) > MAX_FILES:
        raise InputError(f"{archive.name} has more than {MAX_FILES:,} files.", code="archive-too-large")
    _check_size(archive, sum(sizes[name] or 0 for name in chosen))
    return chosen


def _check_size(archive: Path, size: int) -> None:
    if size > MAX_BYTES:
        raise InputError(f"{archive.name} has more than {MAX_BYTES:,} bytes of content.", code="archive-too-large")


def _corrupt(archive: Path) -> InputError:
    return InputError(f"{archive.name} is corrupt or of another format: download it again.", code="corrupt-file")


# ----------------------------------------------------------------------------------------------------------------------
# Well-known public corpora: cards that describe them, and their download.
#
# A card is `data/NAME.toml`: URL, format, licence, digest, citation, and the options to ingest the corpus with.
# Fetching creates a complete folder or none; one that was fetched with the same card is left as it is.


MARKER: Final = "corpus.json"
_BLOCK: Final = 1 << 18


@with_other_keys
class _Marker(TypedDict):
    digest: str  # of the card


class CardFile(Record):
    """A file of a corpus, as its authors publish it."""

    url: str
    size: int | None = Field(None, description="Bytes, if known.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="If published or verified.")
    packing: Packing = "none"
    only: tuple[str, ...] = Field((), description="Patterns of the members to unpack; none for all.")

    @property
    def name(self) -> str:
        """The last component of the URL."""
        return PurePosixPath(urlsplit(self.url).path).name


class Card(Record):
    """The description of a corpus. `ingest` has `inputs`, relative to the fetched folder, and options of ingest."""

    name: str = Field(pattern="^[a-z0-9][a-z0-9.-]*$")
    title: str
    about: str
    homepage: str
    licence: str
    citation: str
    documents: int
    classes: int
    notes: str = ""
    files: tuple[CardFile, ...] = Field(min_length=1)
    ingest: dict[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of everything that determines the content of the fetched folder."""
        return digest_value([file.model_dump(mode="json") for file in self.files])


class Fetched(NamedTuple):
    """A fetched corpus: its folder, the inputs for ingest, and the options to ingest them with."""

    folder: Path
    inputs: list[Path]
    options: dict[str, Any]

    def ingest_table(self) -> str:
        """The `[ingest]` table for a run file."""
        values = {"inputs": [str(path) for path in self.inputs]} | self.options
        return "\n".join(["[ingest]", *(f"{key} = {toml_value(value)}" for key, value in values.items())])


def list_cards() -> list[Card]:
    """All cards, by name."""
    cards = []
    for path in card_files():
        try:
            cards.append(Card.model_validate(tomllib.loads(path.read_text(encoding="utf-8"))))
        except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
            raise StorageError(f"{path} is not a card: {error}.", code="invalid-card") from error
    return cards


def card(name: str) -> Card:
    """The card of a corpus. Raises `InputError` with the names of all cards."""
    known = {found.name: found for found in list_cards()}
    if name not in known:
        raise InputError(f"There is no corpus named {name!r}: {not_one_of(name, known)}.", code="unknown-corpus")
    return known[name]


def fetch(name: str, out: Path, *, local: Path | None = None) -> Fetched:
    """Fetch a corpus into the folder `out`/`name`, from its URLs or from a local copy.

    Parameters
    ----------
    name : str
        The name of a card.
    out : Path
        The parent of the folder of the corpus.
    local : Path, optional
        A local copy of the file of the card, or a folder with its files.

    Returns
    -------
    Fetched
        The folder, with the inputs and options for ingest. Known digests were verified.

    Raises
    ------
    InputError
        If the corpus cannot be downloaded, differs from its card, or its archive is refused.
    StorageError
        If the folder cannot be written, or has other content.
    """
    described = card(name)
    out = Path(out) / name
    if not _is_fetched(described, out):
        with _new_folder(out) as (folder, downloads):
            for file in described.files:
                if local is None:
                    content = downloads / file.name
                    _download(described, file, content)
                else:
                    content = local / file.name if local.is_dir() else local
                    if not content.is_file():
                        raise InputError(
                            f"{content} does not exist: {described.name} needs a copy of {file.url}.",
                            code="missing-file",
                        )
                _verify(file, content)
                if file.packing == "none":
                    shutil.copyfile(content, folder / file.name)
                else:
                    unpack(content, folder, file.packing, only=file.only, name=file.name)
            commit_json(folder / MARKER, {"card": described.model_dump(mode="json"), "digest": described.digest})
    options = dict(described.ingest)
    return Fetched(out, [out / item for item in options.pop("inputs")], options)


def _is_fetched(described: Card, out: Path) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if (out / MARKER).is_file() and read_validated(out / MARKER, _Marker)["digest"] == described.digest:
        return True
    raise StorageError(
        f"{out} has other content than {described.name}: name an empty or a new folder.", code="folder-not-empty"
    )


@contextmanager
def _new_folder(out: Path) -> Iterator[tuple[Path, Path]]:
    """Two temporary folders: one that is renamed to `out` at the end, and one for downloads."""
    with storage_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(out.parent, f".{out.name}") as temporary:
            folder, downloads = temporary / "corpus", temporary / "downloads"
            folder.mkdir()
            downloads.mkdir()
            yield folder, downloads
            os.sync()  # one call: a corpus may be a hundred thousand files
            folder.rename(out)  # fails if another process has written it meanwhile


def _download(described: Card, file: CardFile, target: Path) -> None:
    limit, done = MAX_BYTES if file.size is None else file.size, 0
    try:
        request = Request(file.url, headers={"User-Agent": "sparseoco"})
        with urlopen(request, timeout=30.0) as response, target.open("wb") as sink:
            length = response.headers.get("Content-Length") or ""
            total = int(length) if length.isdigit() else 0
            while block := response.read(_BLOCK):
                done += len(block)
                if done > limit:
                    raise InputError(
                        f"{file.url} has more than the {limit:,} bytes that {described.name} should have.",
                        code="file-too-large",
                    )
                sink.write(block)
                report_progress(f"fetch {file.name}", done, file.size or total)
            if done < total:  # a connection that ends early is the end of the content to `read`
                raise ConnectionError(f"the connection ended after {done:,} of {total:,} bytes")
    except (HTTPException, URLError, TimeoutError, ConnectionError) as error:
        reason = str(getattr(error, "reason", error))
        if isinstance(error, HTTPError):
            error.close()  # it is the open response of the server
            reason = f"the server answered {error.code}"
        raise InputError(
            f"{described.name} could not be downloaded from {file.url} ({reason}). Without a network, copy {file.name} "
            "here another way and name the local copy (--from FILE).",
            code="download-failed",
        ) from error


def _verify(file: CardFile, content: Path) -> None:
    digest, size = digest_file(content), content.stat().st_size
    if file.sha256 not in (None, digest):
        raise InputError(
            f"{file.name} is not the file of the card: its SHA-256 is {digest}, not {file.sha256}.", code="wrong-digest"
        )
    if file.size not in (None, size):
        raise InputError(
            f"{file.name} is not the file of the card: it has {size:,} bytes, not {file.size:,}.", code="wrong-digest"
        )
