"""This machine: what is installed, where machine code is kept, memory, Prefect's server."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import httpx
import psutil
from dask.utils import format_bytes
from numba.core.caching import CompileResultCacheImpl
from packaging.requirements import Requirement

from sparseoco import __version__
from sparseoco.ops.doctor.findings import Finding, doubtful, fine, wrong
from sparseoco.report.wording import plural
from sparseoco.storage.locations import redact_password
from sparseoco.training.columns import padded

LEAST_MEMORY = 2 << 30
SECONDS = 5.0  # for a server to answer
CONSEQUENCES = {  # of versions that pip lets in and that fail late, or silently
    "fastapi": "every flow run would fail",
    "sqlalchemy": "scheduled flow runs would never be made, without a word",
}


def look_at_machine() -> Iterator[Finding]:
    """All of it."""
    yield from installed()
    yield from compile_cache()
    yield from memory()


def installed() -> Iterator[Finding]:
    """Whether the packages installed are those that this one asks for."""
    found = 0
    for line in requires("sparseoco") or ():
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            there = version(wanted.name)
        except PackageNotFoundError:
            yield wrong("packages", f"{wanted.name} is not installed: install {wanted}.")
            continue
        found += 1
        if not wanted.specifier.contains(there, prereleases=True):
            so = CONSEQUENCES.get(wanted.name.lower())
            yield wrong(
                "packages",
                f"{wanted.name} {there} is installed and {wanted.name}{wanted.specifier} is needed"
                f"{f': {so}' if so else ''}.",
            )
    python = platform.python_version()
    yield fine("packages", f"sparseoco {__version__} on Python {python}, {plural(found, 'package')} looked at.")
    if sys.version_info < (3, 11, 4):
        yield doubtful("packages", f"Python {python} cannot unpack archives safely: 3.11.4 or later can.")


def compile_cache() -> Iterator[Finding]:
    """Whether machine code can be kept: if not, every process compiles for a minute."""
    try:
        folder = CompileResultCacheImpl(padded).locator.get_cache_path()
    except RuntimeError:
        yield wrong(
            "machine code",
            "There is no folder to keep machine code in, so every process compiles for minutes: set NUMBA_CACHE_DIR "
            "to a folder that can be written.",
        )
        return
    free = psutil.disk_usage(str(_there(Path(folder)))).free
    state = fine if free > 256 << 20 else doubtful
    yield state("machine code", f"It is kept in {folder} ({format_bytes(free)} free).")


def memory() -> Iterator[Finding]:
    """Processors and memory that this process may use."""
    told = psutil.virtual_memory()
    processors = plural(len(os.sched_getaffinity(0)), "processor")
    sentence = f"{processors}, {format_bytes(told.available)} of {format_bytes(told.total)} of memory are free."
    yield (fine if told.available >= LEAST_MEMORY else doubtful)("memory", sentence)


def prefect() -> Iterator[Finding]:
    """Whether the server that flows would tell answers."""
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        yield fine("Prefect", "PREFECT_API_URL is not set: unless a profile of Prefect names a server, a flow starts "
                   "its own for as long as it runs.")  # fmt: skip
        return
    plain = redact_password(address)
    try:
        answer = httpx.get(f"{address.rstrip('/')}/health", timeout=SECONDS)
    except httpx.HTTPError as error:
        yield wrong("Prefect", f"No server answers at {plain} ({type(error).__name__}): start one, or unset "
                    "PREFECT_API_URL.")  # fmt: skip
        return
    except (httpx.InvalidURL, ValueError):
        yield wrong("Prefect", "PREFECT_API_URL is not an address such as http://127.0.0.1:4200/api.")
        return
    if answer.status_code != 200:
        yield wrong("Prefect", f"What answers at {plain} says {answer.status_code} when asked for its "
                    "health: the address ends in /api, and a key may be wanted.")  # fmt: skip
        return
    yield fine("Prefect", f"The server at {plain} is well.")


def _there(folder: Path) -> Path:
    return folder if folder.exists() else _there(folder.parent)
