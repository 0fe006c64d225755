"""The pages are a site: one command builds it, without a page that nobody reaches, a link that leads nowhere, or anything from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("material")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "-q", "-f", str(ROOT / ".mkdocs.yml"), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_in_it_and_in_its_navigation(site):
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    linked = set(re.findall(r'href="([^"#:]+\.html)"', (site / "index.html").read_text(encoding="utf-8")))
    assert linked >= pages - {"index.html"}


def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]*)"', text), page.name
