"""The documentation builds strictly and offline, its links lead somewhere, and pages load nothing from other hosts."""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import sparseoco

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
