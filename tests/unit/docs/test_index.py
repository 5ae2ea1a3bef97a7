"""docs/README.md leads to every page, and no page is too long to read."""

from pathlib import Path

from unit.docs.test_links import _LINK

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {page.name: page.read_text() for page in DOCS.glob("*.md")}
LOOKED_UP = {"configuration.md", "metrics.md", "reasons.md", "operations.md"}
"""Nobody reads them from beginning to end: generated tables, and a section for each alert."""
MOST_WORDS = 1_800


def test_every_page_stands_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall(PAGES["README.md"])}
    assert set(PAGES) - linked == {"README.md"}


def test_no_page_is_too_long_to_read() -> None:
    words = {name: len(text.split()) for name, text in PAGES.items() if name not in LOOKED_UP}
    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}
