"""A PostgreSQL of the test's own, from the packages of the system, on loopback."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.prefect_server import free_port, wait_for

USERS = ("postgres", "nobody")  # of the system: PostgreSQL does not run as root


class Database(NamedTuple):
    """An address for Prefect, and a way to ask it."""

    address: str
    psql: list[str]
    environment: dict[str, str]

    def ask(self, query: str) -> str:
        """The rows of a query, a line each."""
        command = [*self.psql, "--tuples-only", "--no-align", "--command", query]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout


def programs() -> Path:
    """Where initdb and postgres are; skips the test where they are not."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        pytest.skip("no PostgreSQL here (Debian: apt-get install postgresql)")
    return found[-1].parent if found else Path(str(on_path)).resolve().parent


@contextmanager
def postgres() -> Iterator[Database]:
    """A server with an empty database, gone with all it holds in the end."""
    there = programs()
    folder = Path(tempfile.mkdtemp(prefix="sparseoco-postgres-"))
    password = secrets.token_urlsafe()
    (folder / "password").write_text(password)
    (folder / "password").chmod(0o600)
    who = _not_root(folder)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, **who}
    secured = ["--username", "prefect", "--pwfile", str(folder / "password"), "--auth", "scram-sha-256", "--no-sync"]
    port = str(free_port())
    try:
        subprocess.run([there / "initdb", "--pgdata", folder / "data", *secured], check=True, **quiet)
        here = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-p", port]
        process = subprocess.Popen([there / "postgres", "-D", folder / "data", *here], **quiet)
        try:
            ready = [there / "pg_isready", "--host", "127.0.0.1", "--port", port]
            wait_for(lambda: subprocess.run(ready, check=False, **quiet).returncode == 0, "PostgreSQL to answer")
            yield Database(
                f"postgresql+asyncpg://prefect:{password}@127.0.0.1:{port}/postgres",
                [str(there / "psql"), "--host", "127.0.0.1", "--port", port, "--username", "prefect", "postgres"],
                {**os.environ, "PGPASSWORD": password},
            )
        finally:
            process.terminate()
            process.wait(30)
    finally:
        shutil.rmtree(folder)


def _not_root(folder: Path) -> dict[str, Any]:
    """As whom PostgreSQL runs, to whom the folder is given: us, unless we are root."""
    if os.getuid() != 0:
        return {}
    known = {entry.pw_name for entry in pwd.getpwall()}
    user = pwd.getpwnam(next(name for name in USERS if name in known))
    for path in (folder, *folder.iterdir()):
        os.chown(path, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
