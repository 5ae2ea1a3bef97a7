"""docs/README.md leads to every page, and no page is too long to read."""

from pathlib import Path

from unit.docs.test_links import _LINK

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "README.md")


def test_every_page_stands_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall((DOCS / "README.md").read_text())}
    assert [page.name for page in PAGES if page.name not in linked] == []
