"""A server that speaks S3, on loopback, and empty folders and buckets for every test."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sparseoco.storage.locations import Location, location

SECRET = "words-that-nobody-may-see"


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """moto's server; or another one, such as MinIO or SeaweedFS, that lets `somebody` in with the words below."""
    other = os.environ.get("SPARSEOCO_TEST_S3")
    if other is not None:
        yield other
        return
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    settings = {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
        "AWS_MAX_ATTEMPTS": "2",
        "SPARSEOCO_SCRATCH": str(tmp_path / "scratch"),
    }
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex}"
    client = boto3.client("s3")
    client.create_bucket(Bucket=name)
    client.close()
    return location(f"s3://{name}")


@pytest.fixture(params=["local", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """An empty place of each kind."""
    if request.param == "local":
        return tmp_path / "place"
    return request.getfixturevalue("bucket") if request.param == "s3" else location(f"memory://{uuid.uuid4().hex}")
