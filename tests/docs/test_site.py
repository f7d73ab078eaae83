"""The files of the documentation: links, the site, docstrings, the page on exactness."""

import ast
import doctest
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparseoco
from sparseoco.offline.cluster.passes import OPTIMUM
from sparseoco.offline.regret.bounds import REGRET, SLOPES
from sparseoco.pipeline.nightly.records import HELD, QUARANTINE, ROLLBACKS, TABLES
from sparseoco.report.results import ChoiceRecord, EvaluationRecord, RunRecord, write_leaderboard
from sparseoco.scoring.distribution import DISTRIBUTION_SCHEMA as DISTRIBUTION
from sparseoco.scoring.kept import KeptDescription
from sparseoco.scoring.parts import PartTable, ScoredSourceTable, ScoreManifest
from sparseoco.store.entries import ShardTable, SourceTable
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import NAMES, write_quarantine
from sparseoco.training.models import CURVE, VOCABULARY_SCHEMA, ModelDescription
from sparseoco.training.options import COMPUTED
from sparseoco.training.search_tables import SEARCH_TABLES, WEIGHTS
from tests.support.stores import make_store

# ----------------------------------------------------------------------------------------------------------------------
# The documentation builds strictly and offline, its links lead somewhere, and pages load nothing from other hosts.


ROOT = Path(__file__).parents[2]
OFFLINE_BUILD = """
import runpy, socket
socket.getaddrinfo = socket.socket.connect = None  # whoever asks for another host fails
runpy.run_module("mkdocs", run_name="__main__")
"""


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag != "meta":
            self.loads += [values[name] for name in ("href", "src", "srcset", "data", "poster") if values.get(name)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-c", OFFLINE_BUILD, "build", "--quiet", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def internal(pages: dict[Path, Page], urls: str) -> Iterator[tuple[Path, Path, str]]:
    """A page, the file that a URL on it names, and the anchor."""
    for path, page in pages.items():
        for url in getattr(page, urls):
            parts = urlsplit(url)
            if not parts.scheme and not parts.netloc:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                yield path, target, unquote(parts.fragment)


def test_every_page_of_the_folder_is_built(site: Path) -> None:
    docs = ROOT / "docs"
    assert len(list(docs.rglob("*.md"))) > 40
    for page in docs.rglob("*.md"):
        assert (site / page.relative_to(docs)).with_suffix(".html").exists(), page


def test_links_lead_to_pages_and_anchors_that_are_there(pages: dict[Path, Page]) -> None:
    links = [link for link in internal(pages, "links") if link[0].name != "404.html"]  # its links begin with /
    assert len(links) > 1000
    for page, target, anchor in links:
        assert target.exists(), f"{page.name}: {target}"
        if anchor and anchor != "__skip":
            assert anchor in pages[target].anchors, f"{page.name}: {target.name}#{anchor}"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "deploy/README.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(name: str, site: Path, pages: dict[Path, Page]) -> None:
    file = ROOT / name
    for link in re.findall(r"\]\(([^)\s]+)\)", file.read_text()):
        parts = urlsplit(link)
        if not parts.scheme:
            target = (file.parent / parts.path).resolve()
            assert target.exists(), link
            if parts.fragment:
                page = (site / target.relative_to(ROOT / "docs")).with_suffix(".html")
                assert parts.fragment in pages[page].anchors, link


def test_pages_load_nothing_from_other_hosts(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        outside = [url for url in page.loads if urlsplit(url).netloc or urlsplit(url).scheme not in ("", "data")]
        assert not outside, f"{path.name}: {outside}"
    for page, target, _ in internal(pages, "loads"):
        assert target.exists() or page.name == "404.html", f"{page.name}: {target}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", sheet.read_text()), sheet.name


def test_search_works_from_a_file(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()  # a script: browsers do not fetch JSON from file://
    for page in ("index.html", "reference/run-file.html", "operations/on-call.html", "reference/api/models.html"):
        assert f'"location":"{page}' in index


def test_every_public_name_is_on_a_page(site: Path, pages: dict[Path, Page]) -> None:
    found = set().union(*(pages[path].anchors for path in pages if path.parent == site / "reference" / "api"))
    assert {f"sparseoco.{name}" for name in sparseoco.__all__ if name != "__version__"} <= found


# ----------------------------------------------------------------------------------------------------------------------
# docs/reference/files.md has every column of every table, with its type, and every key of the JSON files.


PAGE = (ROOT / "docs" / "reference" / "files.md").read_text()
SECTIONS = {
    title: body
    for part in re.split(r"^##+ ", PAGE, flags=re.MULTILINE)[1:]
    for title, _, body in [part.partition("\n")]
}
SCHEMAS = {
    **{f"`search/{name}.parquet`": schema for name, schema in SEARCH_TABLES.items()},
    **{f"`{name}.parquet`": schema for name, schema in TABLES.items()},
    "`history-rollbacks.parquet`": ROLLBACKS,
    "`history-quarantine.parquet`": QUARANTINE,
    "`history-held.parquet`": HELD,
    "`vocabulary-DIGEST.parquet`, `names-DIGEST.parquet`": NAMES,
    "`shards-DIGEST.parquet`": ShardTable.schema,
    "`sources-DIGEST.parquet`": SourceTable.schema,
    "`model/weights.parquet`": WEIGHTS,
    "`model/vocabulary.parquet`": VOCABULARY_SCHEMA,
    "`model/curve.parquet`": CURVE,
    "`regret/regret.parquet`": REGRET,
    "`regret/slopes.parquet`": SLOPES,
    "`distribution.parquet`": DISTRIBUTION,
    "`parts-DIGEST.parquet`": PartTable.schema,
    "Input files of scores: `sources-DIGEST.parquet`": ScoredSourceTable.schema,
    "`optimum.parquet`": OPTIMUM,
}
RECORDS: dict[str, Any] = {
    "`run.json`": RunRecord.model_fields,
    "`manifest-VERSION.json`": Manifest.model_fields,
    "`search/best.json`": ChoiceRecord.model_fields,
    "`model/model.json`": ModelDescription.__annotations__,
    "`evaluation.json`": [*EvaluationRecord.model_fields, *COMPUTED],
    "`manifest.json`": ScoreManifest.model_fields,
    "`kept.json`": KeptDescription.model_fields,
}


def listed(title: str) -> dict[str, str]:
    """Columns and types of the table of a section."""
    return dict(re.findall(r"^\| `([^`]+)` \| (.+?) \| .+ \|$", SECTIONS[title], flags=re.MULTILINE))


def columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: f"`{field.type}`" for field in schema}


@pytest.mark.parametrize("title", SCHEMAS)
def test_columns_are_those_of_the_code(title: str) -> None:
    assert list(listed(title).items()) == list(columns(SCHEMAS[title]).items())


@pytest.mark.parametrize("title", RECORDS)
def test_keys_are_those_of_the_code(title: str) -> None:
    rows = re.findall(r"^\| (`.+?) \|", SECTIONS[title], flags=re.MULTILINE)
    assert set(RECORDS[title]) <= set(re.findall(r"`([^`]+)`", " ".join(rows)))


def test_columns_of_the_leaderboard(tmp_path: Path) -> None:
    write_leaderboard(tmp_path / "leaderboard.parquet", [])
    assert listed("`report/leaderboard.parquet`") == columns(pq.read_schema(tmp_path / "leaderboard.parquet"))


def test_columns_of_shards_and_quarantined_rows(tmp_path: Path) -> None:
    (shard, *_) = make_store(tmp_path, rows=20).glob("shard-*.parquet")
    page = listed("`shard-DIGEST.parquet`")
    for field in pq.read_schema(shard):
        kind = re.sub(r"element: (\w+) not null", r"\1", str(field.type))
        assert f"`{kind}`" in page[field.name], field
    file = write_quarantine(tmp_path, [("reviews.jsonl", 3, 120, "no label")]).file
    assert listed("`quarantine-DIGEST.parquet`") == columns(pq.read_schema(tmp_path / file))


def test_every_table_of_the_page_is_checked() -> None:
    made_of_data = ("`shard-", "`quarantine-", "`report/", "`search/held_out", "`test.parquet`", "`parts/")
    tables = {title for title in SECTIONS if ".parquet`" in title}
    assert {title for title in tables if not title.startswith(made_of_data)} == set(SCHEMAS)


# ----------------------------------------------------------------------------------------------------------------------
# The examples in docstrings run, and print what they show.


PACKAGE = ROOT / "sparseoco"
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if ">>> " in path.read_text()
)


def test_there_are_examples_of_the_estimators() -> None:
    assert {"sparseoco.estimators.estimators"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    result = doctest.testmod(import_module(name))
    assert result.attempted
    assert not result.failed


# ----------------------------------------------------------------------------------------------------------------------
# Pages name tests that are there, and docs/exactness.md names some for every promise.


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text()
    if page.name == "exactness.md":
        (table,) = re.findall(r"\| promise \| tests \|\n\|---\|---\|\n((?:\|.*\|\n)+)", text)
        assert [row for row in table.splitlines() if "`tests/" not in row] == []
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert name in named(path), f"{path}::{name}"


PAPERS = sorted(page for page in (ROOT / "docs" / "papers").glob("*.md") if page.stem != "index")
COLUMNS = ["in the paper", "here", "test", "verdict"]


def rows(page: Path) -> Iterator[list[str]]:
    """The cells of the tables of a page."""
    for line in page.read_text().splitlines():
        if line.startswith("|") and not set(line) <= set("|-: "):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if cells != COLUMNS:
                yield cells


def test_every_paper_has_a_table() -> None:
    """Of every algorithm, theorem and claim: where it is here, its test and its verdict."""
    assert [page.stem for page in PAPERS] == ["caos-ftrl", "cl-fobos", "onseg", "sgft", "stda"]


@pytest.mark.parametrize("page", PAPERS, ids=lambda page: page.stem)
def test_no_cell_is_empty_and_what_is_named_exists(page: Path) -> None:
    listed = list(rows(page))
    assert len(listed) > 10
    for row in listed:
        assert len(row) == len(COLUMNS), row
        assert all(len(cell) > 1 for cell in row), row
        _, here, test, _ = row
        assert "`" in here or here.startswith("not here"), row
        assert "`tests/" in test or test.startswith("none"), row
        for name in re.findall(r"`([^`]+/[^`]*)`", here):
            assert (ROOT / name.partition("::")[0]).exists(), name


@cache
def named(path: str) -> set[str]:
    """The functions and classes of a module, and no name."""
    return {"", *(getattr(node, "name", "") for node in ast.parse((ROOT / path).read_text()).body)}
