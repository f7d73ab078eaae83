"""This machine: installed packages, the compile cache, memory, the Prefect server."""

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

import httpx
import psutil
from dask.utils import format_bytes
from numba.core.caching import CompileResultCacheImpl
from packaging.requirements import Requirement

from sparseoco import __version__
from sparseoco.core.formatting import plural
from sparseoco.ops.doctor.findings import Finding, error, ok, warning
from sparseoco.storage.locations import redact_password
from sparseoco.training.columns import padded

MIN_MEMORY = 2 << 30
TIMEOUT_SECONDS = 5.0
CONSEQUENCES = {  # of versions that pip accepts and that fail late, or silently
    "fastapi": "every flow run would fail",
    "sqlalchemy": "scheduled flow runs would silently never be created",
}


def check_machine() -> Iterator[Finding]:
    """All checks of the machine."""
    yield from installed()
    yield from compile_cache()
    yield from memory()


def installed() -> Iterator[Finding]:
    """Whether the installed packages meet the requirements."""
    required = _required()
    found = 0
    for wanted in required:
        installed_version = _version(wanted.name)
        if installed_version is None:
            yield error("packages", f"{wanted.name} is not installed: install {wanted.name}{wanted.specifier}.")
            continue
        found += 1
        if not wanted.specifier.contains(installed_version, prereleases=True):
            consequence = CONSEQUENCES.get(wanted.name.lower())
            yield error(
                "packages",
                f"{wanted.name} {installed_version} is installed, {wanted.name}{wanted.specifier} is required"
                f"{f': {consequence}' if consequence else ''}.",
            )
    python = platform.python_version()
    yield ok("packages", f"sparseoco {__version__} on Python {python}, {plural(found, 'package')} checked.")
    if sys.version_info < (3, 11, 4):
        yield warning("packages", f"Python {python} cannot unpack archives safely: 3.11.4 or later can.")


def _required() -> list[Requirement]:
    """The requirements of the package, and those of extras whose packages are all installed."""
    every = [Requirement(line) for line in requires("sparseoco") or ()]
    chosen: dict[tuple[str, str], Requirement] = {}
    for extra in ("", *(metadata("sparseoco").get_all("Provides-Extra") or ())):
        group = [each for each in every if each.marker is None or each.marker.evaluate({"extra": extra})]
        if not extra or all(_version(each.name) for each in group):
            chosen |= {(each.name, str(each.specifier)): each for each in group}
    return list(chosen.values())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def compile_cache() -> Iterator[Finding]:
    """Whether compiled code can be cached: if not, every process compiles for a minute."""
    try:
        folder = CompileResultCacheImpl(padded).locator.get_cache_path()
    except RuntimeError:
        yield error(
            "compile cache",
            "There is no folder for the compile cache, so every process compiles for minutes: set NUMBA_CACHE_DIR "
            "to a writable folder.",
        )
        return
    free = psutil.disk_usage(str(_existing(Path(folder)))).free
    state = ok if free > 256 << 20 else warning
    yield state("compile cache", f"{folder} is writable ({format_bytes(free)} free).")


def memory() -> Iterator[Finding]:
    """Processors and memory that this process may use."""
    virtual = psutil.virtual_memory()
    processors = plural(len(os.sched_getaffinity(0)), "processor")
    message = f"{processors}, {format_bytes(virtual.available)} of {format_bytes(virtual.total)} of memory are free."
    yield (ok if virtual.available >= MIN_MEMORY else warning)("memory", message)


def prefect() -> Iterator[Finding]:
    """Whether the server of the flows responds."""
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        yield ok("Prefect", "PREFECT_API_URL is not set: unless a Prefect profile names a server, a flow starts "
                 "a temporary one.")  # fmt: skip
        return
    plain = redact_password(address)
    try:
        answer = httpx.get(f"{address.rstrip('/')}/health", timeout=TIMEOUT_SECONDS)
    except httpx.HTTPError as raised:
        yield error("Prefect", f"No server responds at {plain} ({type(raised).__name__}): start one, or unset "
                    "PREFECT_API_URL.")  # fmt: skip
        return
    except (httpx.InvalidURL, ValueError):
        yield error("Prefect", "PREFECT_API_URL is not a URL such as http://127.0.0.1:4200/api.")
        return
    if answer.status_code != 200:
        yield error("Prefect", f"{plain} returns status {answer.status_code} to a health check: "
                    "the URL must end in /api, and an API key may be required.")  # fmt: skip
        return
    yield ok("Prefect", f"The server at {plain} is healthy.")


def _existing(folder: Path) -> Path:
    return folder if folder.exists() else _existing(folder.parent)
