"""What is released: the files of the wheel and of the source distribution, their metadata, and the citation."""

import email
import re
import subprocess
import sys
import tarfile
import tomllib
from importlib.resources import files
from json import loads
from pathlib import Path
from zipfile import ZipFile

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = f"{PROJECT['name']}-{PROJECT['version']}"


def build(source: Path, target: str, out: Path) -> Path:
    """A distribution, built with the backend that is installed."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (path,) = out.iterdir()
    return path


def contents(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tracked(*folders: str) -> set[str]:
    """The files of the repository, as they lie in folders that have no caches."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs the repository")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(build(ROOT, "wheel", tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    path = build(ROOT, "sdist", tmp_path_factory.mktemp("sdist"))
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def test_the_wheel_has_the_package_the_flows_and_the_cards_only(wheel: dict[str, bytes]) -> None:
    wanted = tracked("sparseoco") - {"sparseoco/flows"}  # a link
    wanted |= {f"sparseoco/{name}" for name in tracked("flows", "data")}
    metadata = f"{NAME}.dist-info"
    added = {f"{metadata}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")}
    assert set(wheel) == wanted | added


def test_the_source_distribution_has_what_builds_and_tests_it(source: Path) -> None:
    unpacked = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    copied = {f"sparseoco/{name}" for name in tracked("flows")}
    assert unpacked == (tracked() - {"sparseoco/flows"}) | copied | {"PKG-INFO"}


def test_the_source_distribution_builds_the_same_wheel(source: Path, wheel: dict[str, bytes], tmp_path: Path) -> None:
    assert contents(build(source, "wheel", tmp_path)) == wheel


def test_metadata(wheel: dict[str, bytes]) -> None:
    metadata = email.message_from_bytes(wheel[f"{NAME}.dist-info/METADATA"])
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["License-Expression"] == PROJECT["license"]
    base = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert base
    assert not [line for line in base if line.startswith(("prefect", "fastapi", "sqlalchemy"))]
    assert {"flows", "papers", "s3", "sklearn"} <= set(metadata.get_all("Provides-Extra", []))


def test_the_citation_is_of_its_schema_and_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    schema = files("check_jsonschema") / "builtin_schemas" / "vendor" / "citation-file-format.json"
    jsonschema.validate(citation, loads(schema.read_text()))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]


def test_the_release_checklist_names_targets_and_files_that_are_there() -> None:
    page = (ROOT / "docs" / "contributing" / "release.md").read_text()
    targets = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^ {8}make ([\w-]+)", page, re.MULTILINE)
    assert named
    assert set(named) <= {name for line in targets for name in line.split()}
    for name in re.findall(r"`([\w./]+\.\w+|deploy/)`", page):
        assert (ROOT / name).exists(), name


def test_every_release_has_the_same_version() -> None:
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.name != "constraints.txt"]
    text = "".join(path.read_text() for path in deployed)
    tags = re.findall(r"(?:sparseoco:|sparseoco  # .*\n +newTag: )(\d+\.\d[\w.]*)", text)
    assert len(tags) > 3
    assert set(tags) == {PROJECT["version"]}
    assert f"## {PROJECT['version']} " in (ROOT / "CHANGELOG.md").read_text()
