"""Public corpora that users know: cards that say what they are, and a way to get one.

A card is `data/NAME.toml`: address, format, licence, digest, citation, and the options to ingest it with. Fetching
gives a folder that is there whole or not at all, and does nothing where that folder is there already.
"""

import errno
import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import fsspec
import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.progress import ProgressCallback
from sparseoco.datasets.archives import MAX_BYTES, Packing, unpack
from sparseoco.datasets.conversions import convert
from sparseoco.storage.commit import commit_json, digest_value, read_json, storage_error

RUN_FILES: Final = frozenset({"demo"})
"""Files in `data/` that are no cards."""

MARKER: Final = "corpus.json"
_BLOCK: Final = 1 << 18


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CardFile(_Table):
    """A file of a corpus, as its authors offer it."""

    url: str
    size: int | None = Field(None, description="Bytes, where known.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="Where somebody published or verified it.")
    packing: Packing = "none"
    only: tuple[str, ...] = Field((), description="Patterns of the members to take; none for all.")
    convert: Literal["reuters", "labelled-lines"] | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urlsplit(self.url).path).name


class Card(_Table):
    """What is known of a corpus. `ingest` holds `inputs`, relative to the fetched folder, and options of ingest."""

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
        """Of what decides the content of the fetched folder."""
        return digest_value([file.model_dump(mode="json") for file in self.files])


class Fetched(NamedTuple):
    """A corpus on disk: its folder, the inputs for ingest, and the options to ingest them with."""

    folder: Path
    inputs: list[Path]
    options: dict[str, Any]

    def ingest_table(self) -> str:
        """The `[ingest]` table for a run file."""
        values = {"inputs": [str(path) for path in self.inputs]} | self.options
        return "\n".join(["[ingest]", *(f"{key} = {_toml(value)}" for key, value in values.items())])


def data_folder() -> Path:
    """Where the cards are: inside an installed package, or at the top of the repository it is run from."""
    here = Path(__file__).resolve().parents[1]
    inside = here / "data"
    return inside if inside.is_dir() else here.parent / "data"


def list_cards() -> list[Card]:
    """All cards, by name."""
    return [_read_card(path) for path in sorted(data_folder().glob("*.toml")) if path.stem not in RUN_FILES]


def card(name: str) -> Card:
    """The card of a corpus. Raises `InputError` listing those there are."""
    known = {found.name: found for found in list_cards()}
    if name not in known:
        raise InputError(f"There is no card for a corpus named {name!r}; there are: {', '.join(known)}.")
    return known[name]


def fetch(
    name: str,
    out: Path,
    *,
    local: Path | None = None,
    url: str | None = None,
    progress: ProgressCallback | None = None,
) -> Fetched:
    """Get a corpus into the folder `out`/`name`, from its own address, another one, or a copy on this machine.

    `local` is the file of the card (or a folder that holds its files by their names); `url` is another address of the
    file (or of a folder of them), local or any fsspec address. Known digests are verified. `progress` is called with
    what is done, the bytes so far and their number (0 where it is unknown).

    Raises `InputError` when the corpus cannot be had, is not what the card says or is refused, `StorageError` when the
    folder cannot be written or holds something else.
    """
    described = card(name)
    out = Path(out) / name
    if not _is_there(described, out):
        with _new_folder(out) as folder, tempfile.TemporaryDirectory(dir=out.parent, prefix=".download.") as downloads:
            for file in described.files:
                source = _source(described, file, local, url)
                content = source if isinstance(source, Path) else Path(downloads) / file.name
                if isinstance(source, str):
                    _download(described, file, source, content, progress)
                _verify(file, content)
                _place(file, content, folder, Path(downloads) / "unpacked")
            commit_json(folder / MARKER, {"card": described.model_dump(mode="json"), "digest": described.digest})
    options = dict(described.ingest)
    return Fetched(out, [out / item for item in options.pop("inputs")], options)


def _toml(value: Any) -> str:
    """A string, number, truth value, list or table of these in TOML, whose first four are written as in JSON."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(of)}" for key, of in value.items()) + " }"
    return json.dumps(value)


def _read_card(path: Path) -> Card:
    try:
        return Card.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise StorageError(f"{path} is not a card: {error}.") from error


def _is_there(described: Card, out: Path) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if (out / MARKER).is_file() and read_json(out / MARKER).get("digest") == described.digest:
        return True
    raise StorageError(
        f"{out} holds something else than {described.name}: name a folder that is empty or not there yet."
    )


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that becomes `out` at once when all went well."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    except OSError as error:
        raise storage_error(error, out) from error
    try:
        yield folder
        folder.chmod(0o755)
        os.sync()  # one call: a corpus may be a hundred thousand files
        try:
            folder.rename(out)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise StorageError(f"{out} was filled by somebody else meanwhile; nothing was changed.") from error
            raise storage_error(error, out) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _source(described: Card, file: CardFile, local: Path | None, url: str | None) -> Path | str:
    """Where a file comes from: a path on this machine, or an address."""
    if local is not None:
        path = local / file.name if local.is_dir() else local
        if len(described.files) > 1 and not local.is_dir():
            names = ", ".join(of.name for of in described.files)
            raise InputError(f"{described.name} is made of several files: name a folder that holds {names}.")
        if not path.is_file():
            raise InputError(f"{path} is not there: {described.name} needs a copy of {file.url}.")
        return path
    if url is None:
        return file.url
    return url if len(described.files) == 1 else f"{url.rstrip('/')}/{file.name}"


def _download(described: Card, file: CardFile, url: str, target: Path, progress: ProgressCallback | None) -> None:
    limit = file.size if file.size is not None else MAX_BYTES
    done = 0
    try:
        with target.open("wb") as sink:
            for block, total in _blocks(url):
                done += len(block)
                if done > limit:
                    raise InputError(f"{url} gives more than the {limit:,} bytes that {described.name} should have.")
                try:
                    sink.write(block)
                except OSError as error:
                    raise storage_error(error, target) from error
                if progress:
                    progress(f"fetch {file.name}", done, file.size or total)
    except InputError:
        raise
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        raise InputError(
            f"{described.name} could not be downloaded from {url} ({_why(error)}). "
            f"Where there is no network, bring {file.name} here another way and name the local copy (--from FILE)."
        ) from error


def _blocks(url: str) -> Iterator[tuple[bytes, int]]:
    if urlsplit(url).scheme in ("http", "https"):
        # Unencoded, for the digest is that of the file itself.
        headers = {"Accept-Encoding": "identity"}
        with httpx.stream("GET", url, follow_redirects=True, timeout=30.0, headers=headers) as response:
            response.raise_for_status()
            length = response.headers.get("content-length", "")
            for block in response.iter_raw(_BLOCK):
                yield block, int(length) if length.isdigit() else 0
        return
    with fsspec.open(url, "rb") as source:
        while block := source.read(_BLOCK):
            yield block, getattr(source, "size", None) or 0


def _why(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"the server answered {error.response.status_code}"
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _verify(file: CardFile, content: Path) -> None:
    try:
        size = content.stat().st_size
        with content.open("rb") as source:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
    except OSError as error:
        raise storage_error(error, content) from error
    if file.sha256 is not None and digest != file.sha256:
        raise InputError(f"{file.name} is not the file the card describes: its SHA-256 is {digest}, not {file.sha256}.")
    if file.size is not None and size != file.size:
        raise InputError(f"{file.name} is not the file the card describes: it has {size:,} bytes, not {file.size:,}.")


def _place(file: CardFile, content: Path, folder: Path, unpacked: Path) -> None:
    """The content as ingest is to find it: unpacked, and converted where no reader reads it."""
    target = unpacked if file.convert else folder
    if file.packing == "none":
        try:
            target.mkdir(exist_ok=True)
            shutil.copyfile(content, target / file.name)
        except OSError as error:
            raise storage_error(error, target) from error
    else:
        unpack(content, target, file.packing, only=file.only, name=file.name)
    if file.convert:
        convert(file.convert, unpacked, folder / "documents.jsonl")
