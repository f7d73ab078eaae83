"""A Dask cluster started by hand: `dask scheduler` and `dask worker` as processes, with TLS or without."""

import datetime
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LOCAL = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]
ROLES = ("client", "scheduler", "worker")


class Cluster(NamedTuple):
    """A running cluster; `workers` restart by themselves (a nanny each) when their processes are killed."""

    address: str
    processes: list[subprocess.Popen[bytes]]


@contextmanager
def cluster_by_hand(
    folder: Path, *, workers: int = 2, tls: dict[str, Any] | None = None, nannies: bool = True
) -> Iterator[Cluster]:
    """A scheduler and workers of one thread each; `tls` is a Dask setting as `certificates` gives it.

    Without `nannies`, a worker is a process of the cluster and is not restarted.
    """
    file = folder / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    environment = {**os.environ, **({} if tls is None else as_environment(tls))}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    protocol = [] if tls is None else ["--protocol", "tls"]
    started = [
        subprocess.Popen([*dask, "scheduler", *LOCAL, *protocol, "--port", "0", "--scheduler-file", str(file)], **quiet)
    ]
    try:
        while not file.exists() or not file.read_text():  # Dask creates the file before it writes it
            assert started[0].poll() is None, "the scheduler has ended"
            time.sleep(0.05)
        for _ in range(workers):
            scratch = ["--local-directory", str(folder / "scratch"), "--nthreads", "1"]
            scratch += [] if nannies else ["--no-nanny"]
            command = [*dask, "worker", *LOCAL, *protocol, "--scheduler-file", str(file), *scratch]
            started.append(subprocess.Popen(command, **quiet))
        yield Cluster(json.loads(file.read_text())["address"], started)
    finally:
        for process in reversed(started):  # a worker that loses its scheduler waits for it
            process.terminate()
            process.wait(20)


def certificates(folder: Path) -> dict[str, Any]:
    """An authority and a certificate of its for each role on loopback, as settings for `dask.config.set`."""
    folder.mkdir()
    authority_key, authority = _issue("authority", None)
    _write(folder / "ca.pem", authority)
    settings: dict[str, Any] = {
        "distributed.comm.require-encryption": True,
        "distributed.comm.tls.ca-file": str(folder / "ca.pem"),
    }
    for role in ROLES:
        key, certificate = _issue(role, (authority_key, authority))
        _write(folder / f"{role}.pem", certificate, key)
        settings[f"distributed.comm.tls.{role}.cert"] = str(folder / f"{role}.pem")
        settings[f"distributed.comm.tls.{role}.key"] = str(folder / f"{role}.pem")
    return settings


def as_environment(settings: dict[str, Any]) -> dict[str, str]:
    """The settings as variables of the environment, which Dask reads as well."""
    return {"DASK_" + key.upper().replace(".", "__").replace("-", "_"): str(value) for key, value in settings.items()}


_Signer = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _issue(name: str, signer: _Signer | None) -> _Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if signer is None else signer[1].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
    )
    return key, builder.sign(key if signer is None else signer[0], hashes.SHA256())


def _write(path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey | None = None) -> None:
    parts = [certificate.public_bytes(serialization.Encoding.PEM)]
    if key is not None:
        parts.insert(
            0,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
    path.write_bytes(b"".join(parts))
