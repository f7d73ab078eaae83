"""Public corpora: cards, archives, conversion."""

import bz2
import errno
import gzip
import html
import lzma
import os
import re
import shutil
import stat
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from sparseoco.core.errors import DamagedError, InputError, SparseocoError, StorageError
from sparseoco.core.formatting import not_one_of
from sparseoco.core.logs import ProgressCallback
from sparseoco.storage.commit import (
    Sha256,
    commit_json,
    committed,
    digest_file,
    digest_value,
    read_validated,
    with_other_keys,
)
from sparseoco.storage.inputs import read_blocks
from sparseoco.storage.locations import location, storage_error, toml_value
from sparseoco.storage.temporary import temporary_folder

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
#
# `tarfile` (with its ``data`` filter) and `zipfile` extract, without owners and special modes. This is stricter: it
# refuses links, names that one of them would change, overwriting, and archives that are too large.


Packing = Literal["none", "tar", "zip", "gz", "bz2"]
MAX_BYTES: Final = 16 << 30
MAX_FILES: Final = 2_000_000
_CORRUPT: Final = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, EOFError, RuntimeError)


class _Member(NamedTuple):
    name: str
    size: int
    is_file: bool
    extract: Callable[[], Any]


def unpack(archive: Path, folder: Path, packing: Packing, *, only: Sequence[str] = (), name: str = "") -> None:
    """Unpack an archive into a folder.

    Parameters
    ----------
    archive : Path
        The archive, or a single compressed file, which is written as `name` without its suffix.
    folder : Path
        The target folder, created if needed.
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
        if packing in ("gz", "bz2"):
            written = _decompress(archive, folder / PurePosixPath(name or archive.name).stem, packing)
        else:
            written = _extract(archive, folder, packing, only)
    except _CORRUPT as error:
        raise _corrupt(archive) from error
    except OSError as error:
        raise _corrupt(archive) if error.errno is None else storage_error(error, folder) from error
    if not written:
        raise InputError(f"{archive.name} has none of the expected files.", code="missing-member")


def _extract(archive: Path, folder: Path, packing: Packing, only: Sequence[str]) -> int:
    """Extract the members of an archive, and return their bytes."""
    written = files = 0
    for member in (_tar_members if packing == "tar" else _zip_members)(archive, folder):
        if only and not any(fnmatchcase(member.name, pattern) for pattern in only):
            continue
        _check_member(archive, member, folder)
        files, written = files + 1, written + member.size
        if files > MAX_FILES:
            raise InputError(f"{archive.name} has more than {MAX_FILES:,} files.", code="archive-too-large")
        _check_size(archive, written)
        try:
            member.extract()
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                raise _refused(archive, member.name, "occurs twice") from error
            raise
    return written


def _tar_members(archive: Path, folder: Path) -> Iterator[_Member]:
    with tarfile.open(archive, "r:*") as tar:
        for info in tar:
            if not info.isdir():
                extract = partial(tar.extract, info, folder, filter="data")
                yield _Member(info.name, info.size, info.isreg(), extract)


def _zip_members(archive: Path, folder: Path) -> Iterator[_Member]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if not info.is_dir() or kind not in (0, stat.S_IFDIR):
                # Never more than `file_size` bytes are read.
                extract = partial(zipped.extract, info, folder)
                yield _Member(info.filename, info.file_size, kind in (0, stat.S_IFREG), extract)


def _check_member(archive: Path, member: _Member, folder: Path) -> None:
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member.name or "\0" in member.name:
        raise _refused(archive, member.name, "is not inside the archive's own folder")
    if not member.is_file:
        raise _refused(archive, member.name, "is neither a file nor a folder")
    if (folder / path).exists():
        raise _refused(archive, member.name, "occurs twice")


def _decompress(archive: Path, target: Path, packing: Packing) -> int:
    """Decompress a file, and return its bytes."""
    written = 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(archive) if packing == "gz" else bz2.open(archive) as source, target.open("xb") as file:
        while block := source.read(1 << 20):
            written += file.write(block)
            _check_size(archive, written)
    return written


def _check_size(archive: Path, written: int) -> None:
    if written > MAX_BYTES:
        raise InputError(f"{archive.name} has more than {MAX_BYTES:,} bytes of content.", code="archive-too-large")


def _corrupt(archive: Path) -> InputError:
    return InputError(f"{archive.name} is corrupt or of another format: download it again.", code="corrupt-file")


def _refused(archive: Path, member: str, problem: str) -> InputError:
    return InputError(f"{archive.name} is refused: its member {member!r} {problem}.", code="unsafe-archive")


# ----------------------------------------------------------------------------------------------------------------------
# Convert corpora in formats without a parser to JSON lines.


_REUTERS: Final = re.compile(rb"<REUTERS (?P<head>[^>]*)>(?P<rest>.*?)</REUTERS>", re.DOTALL)
_ATTRIBUTE: Final = re.compile(r'(\w+)="([^"]*)"')


def convert(kind: str, source: Path, target: Path) -> int:
    """Write the documents below a folder as JSON lines, and return their number.

    Raises `InputError` if there are none, `StorageError` if the file cannot be written.
    """
    count = 0
    with committed(target) as temporary, temporary.open("wb") as file:
        for document in CONVERSIONS[kind](source):
            file.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            count += 1
        if not count:
            raise InputError(f"{source} has no documents of the expected format ({kind}).", code="no-documents")
    return count


def _reuters(source: Path) -> Iterator[dict[str, Any]]:
    """Reuters-21578: `label` is the list of topics; `split` train, test or unused as in its README's ModApte split."""
    for path in sorted(source.glob("**/reut2-*.sgm")):
        for match in _REUTERS.finditer(path.read_bytes()):
            head = dict(_ATTRIBUTE.findall(match["head"].decode("latin-1")))
            rest = match["rest"].decode("latin-1")  # it should be ASCII, but has a few other bytes
            used = head["TOPICS"] == "YES" and head["LEWISSPLIT"] in ("TRAIN", "TEST")
            title, body = _element("TITLE", rest), _element("BODY", rest)
            text = f"{title}\n\n{body}" if body else re.sub(r"<[^>]*>", " ", _element("TEXT", rest, raw=True))
            yield {
                "id": head["NEWID"],
                "label": re.findall(r"<D>(.*?)</D>", _element("TOPICS", rest, raw=True)),
                "split": head["LEWISSPLIT"].lower() if used else "unused",
                "text": html.unescape(text).strip(),
            }


def _element(name: str, text: str, *, raw: bool = False) -> str:
    match = re.search(rf"<{name}[^>]*>(.*?)</{name}>", text, re.DOTALL)
    content = match[1] if match else ""
    return content if raw else content.strip()


def _labelled_lines(source: Path) -> Iterator[dict[str, Any]]:
    """One document per line: the label, a tab, and the text, without quoting."""
    for path in sorted(file for file in source.rglob("*") if file.is_file()):
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            label, tab, text = line.decode("utf-8", "replace").rstrip("\r").partition("\t")
            if tab:
                yield {"id": f"{path.name}:{number}", "label": label, "text": text}


CONVERSIONS: Final[dict[str, Callable[[Path], Iterator[dict[str, Any]]]]] = {
    "reuters": _reuters,
    "labelled-lines": _labelled_lines,
}


# ----------------------------------------------------------------------------------------------------------------------
# Well-known public corpora: cards that describe them, and their download.
#
# A card is `data/NAME.toml`: URL, format, licence, digest, citation, and the options to ingest the corpus with.
# Fetching creates a complete folder or none; of a folder that exists already it verifies the content.


MARKER: Final = "corpus.json"
_BLOCK: Final = 1 << 18


@with_other_keys
class _Marker(TypedDict):
    digest: str  # of the card
    content: dict[str, Sha256]  # of each file and folder


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CardFile(_Record):
    """A file of a corpus, as its authors publish it."""

    url: str
    size: int | None = Field(None, description="Bytes, if known.")
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$", description="If published or verified.")
    packing: Packing = "none"
    only: tuple[str, ...] = Field((), description="Patterns of the members to unpack; none for all.")
    convert: Literal["reuters", "labelled-lines"] | None = None

    @property
    def name(self) -> str:
        """The last component of the URL."""
        return PurePosixPath(urlsplit(self.url).path).name


class Card(_Record):
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
    return [_read_card(path) for path in card_files()]


def card(name: str) -> Card:
    """The card of a corpus. Raises `InputError` with the names of all cards."""
    known = {found.name: found for found in list_cards()}
    if name not in known:
        raise InputError(f"There is no corpus named {name!r}: {not_one_of(name, known)}.", code="unknown-corpus")
    return known[name]


def fetch(
    name: str,
    out: Path,
    *,
    local: Path | None = None,
    url: str | None = None,
    progress: ProgressCallback | None = None,
) -> Fetched:
    """Fetch a corpus into the folder `out`/`name`, from its URL, a mirror, or a local copy.

    Parameters
    ----------
    name : str
        The name of a card.
    out : Path
        The parent of the folder of the corpus.
    local : Path, optional
        A local copy of the file of the card, or a folder with its files.
    url : str, optional
        Another URL or path of the file, or of a folder of its files.
    progress : callable, optional
        Called with the step, the bytes so far and their total (0 if unknown).

    Returns
    -------
    Fetched
        The folder, with the inputs and options for ingest. Known digests were verified.

    Raises
    ------
    InputError
        If the corpus cannot be downloaded, differs from its card, or its archive is refused.
    StorageError
        If the folder cannot be written, has other content, or a file of it has changed since it was fetched.
    """
    described = card(name)
    out = Path(out) / name
    if not _is_fetched(described, out):
        with _new_folder(out) as (folder, downloads):
            for file in described.files:
                source = _source(described, file, local, url)
                content = source if isinstance(source, Path) else downloads / file.name
                if isinstance(source, str):
                    _download(described, file, source, content, progress)
                _verify(file, content)
                _unpack_file(file, content, folder, downloads / "unpacked")
            digests = {path.name: _digest(path) for path in sorted(folder.iterdir())}
            marker = {"card": described.model_dump(mode="json"), "digest": described.digest, "content": digests}
            commit_json(folder / MARKER, marker)
    options = dict(described.ingest)
    return Fetched(out, [out / item for item in options.pop("inputs")], options)


def _read_card(path: Path) -> Card:
    try:
        return Card.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, ValidationError) as error:
        raise StorageError(f"{path} is not a card: {error}.", code="invalid-card") from error


def _is_fetched(described: Card, out: Path) -> bool:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if (out / MARKER).is_file():
        marker = read_validated(out / MARKER, _Marker)
        if marker["digest"] == described.digest:
            for name, digest in marker["content"].items():
                if _digest(out / name) != digest:
                    raise DamagedError(
                        f"{out / name} is not as it was fetched: remove {out} and fetch it again.", code="corrupt-file"
                    )
            return True
    raise StorageError(
        f"{out} has other content than {described.name}: name an empty or a new folder.", code="folder-not-empty"
    )


def _digest(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of all files of a folder."""
    if not path.is_dir():
        return digest_file(path)
    return digest_value({str(file.relative_to(path)): digest_file(file) for file in path.rglob("*") if file.is_file()})


@contextmanager
def _new_folder(out: Path) -> Iterator[tuple[Path, Path]]:
    """Two temporary folders: one that is renamed to `out` at the end, and one for downloads."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(out.parent, f".{out.name}") as temporary:
            folder, downloads = temporary / "corpus", temporary / "downloads"
            folder.mkdir()
            downloads.mkdir()
            yield folder, downloads
            os.sync()  # one call: a corpus may be a hundred thousand files
            try:
                folder.rename(out)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                raise StorageError(
                    f"{out} was written by another process meanwhile; nothing was changed.", code="folder-not-empty"
                ) from error
    except OSError as error:
        raise storage_error(error, out) from error


def _source(described: Card, file: CardFile, local: Path | None, url: str | None) -> Path | str:
    """The source of a file: a local path, or a URL."""
    if local is not None:
        path = local / file.name if local.is_dir() else local
        if len(described.files) > 1 and not local.is_dir():
            names = ", ".join(item.name for item in described.files)
            raise InputError(
                f"{described.name} consists of several files: name a folder that has {names}.", code="several-files"
            )
        if not path.is_file():
            raise InputError(
                f"{path} does not exist: {described.name} needs a copy of {file.url}.", code="missing-file"
            )
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
                    raise InputError(
                        f"{url} has more than the {limit:,} bytes that {described.name} should have.",
                        code="file-too-large",
                    )
                try:
                    sink.write(block)
                except OSError as error:
                    raise storage_error(error, target) from error
                if progress:
                    progress(f"fetch {file.name}", done, file.size or total)
    except SparseocoError:
        raise
    except (HTTPException, OSError, ValueError) as error:
        raise InputError(
            f"{described.name} could not be downloaded from {url} ({_reason(error)}). "
            f"Without a network, copy {file.name} here another way and name the local copy (--from FILE).",
            code="download-failed",
        ) from error


def _blocks(url: str) -> Iterator[tuple[bytes, int]]:
    """The content in blocks, each with the total number of bytes, 0 if unknown."""
    if urlsplit(url).scheme in ("http", "https"):
        try:
            opened = urlopen(Request(url, headers={"User-Agent": "sparseoco"}), timeout=30.0)
        except HTTPError as error:
            error.close()  # it is the open response of the server
            raise
        with opened as response:
            length, done = response.headers.get("Content-Length", ""), 0
            total = int(length) if length.isdigit() else 0
            while block := response.read(_BLOCK):
                done += len(block)
                yield block, total
            if done < total:
                raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
        return
    path = location(url)
    size = path.stat().st_size
    yield from ((block, size) for block in read_blocks(str(path), str(path)))


def _reason(error: Exception) -> str:
    if isinstance(error, HTTPError):
        return f"the server answered {error.code}"
    error = getattr(error, "reason", error)  # of urllib's errors
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _verify(file: CardFile, content: Path) -> None:
    digest, size = digest_file(content), content.stat().st_size
    if file.sha256 is not None and digest != file.sha256:
        raise InputError(
            f"{file.name} is not the file of the card: its SHA-256 is {digest}, not {file.sha256}.", code="wrong-digest"
        )
    if file.size is not None and size != file.size:
        raise InputError(
            f"{file.name} is not the file of the card: it has {size:,} bytes, not {file.size:,}.", code="wrong-size"
        )


def _unpack_file(file: CardFile, content: Path, folder: Path, unpacked: Path) -> None:
    """Write the content for ingest: unpacked, and converted if there is no parser for its format."""
    target = unpacked if file.convert else folder
    if file.packing == "none":
        target.mkdir(exist_ok=True)
        shutil.copyfile(content, target / file.name)
    else:
        unpack(content, target, file.packing, only=file.only, name=file.name)
    if file.convert:
        convert(file.convert, unpacked, folder / "documents.jsonl")
