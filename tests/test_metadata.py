"""What an index page shows of the package: its addresses are the site's own, and README's links lead somewhere from anywhere."""

import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.operators

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SITE, SOURCE = PROJECT["urls"]["Documentation"], PROJECT["urls"]["Source"]


def links(text):
    return re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.M)


def test_readme_links_are_absolute_and_lead_to_what_exists():
    found = links((ROOT / "README.md").read_text())
    assert len(found) > 15
    for link in found:
        assert link.startswith("https://"), link
        if link.startswith(SITE):
            page = link.removeprefix(SITE).split("#")[0].strip("/") or "index"
            assert (ROOT / "docs" / f"{page}.md").exists(), link
        elif link.startswith(SOURCE):
            assert (ROOT / link.removeprefix(f"{SOURCE}/blob/main/")).exists(), link


def test_addresses_are_the_same_everywhere():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert f"site_url: {SITE}\n" in settings and f"link: {SOURCE}\n" in settings
    assert all(url.startswith((SITE, SOURCE)) for url in PROJECT["urls"].values())
    for page in (ROOT / "docs").rglob("*.md"):
        for link in links(page.read_text()):
            if "torchgrad-jax" in link and link.startswith("https:"):
                assert link.startswith((SITE, SOURCE)), (page, link)


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages == named


def test_the_changelog_has_this_version():
    assert f"## {PROJECT['version']}" in (ROOT / "docs" / "changelog.md").read_text()
