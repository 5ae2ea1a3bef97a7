"""docs/README.md leads to every page, no page is too long to read, and all of them together are not."""

import re
from pathlib import Path

from unit.docs.test_links import _LINK

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {page.name: page.read_text() for page in DOCS.glob("*.md")}
GENERATED = {"configuration.md", "metrics.md", "reasons.md"}
"""Tables from the code: nobody reads them from beginning to end."""
MOST_WORDS, MOST_WORDS_IN_ALL = 1_800, 30_000
_SAMPLE = re.compile(r"^```(?:console)?\n\$ twinlog .*?^```$", re.MULTILINE | re.DOTALL)


def count_words(text: str) -> int:
    """Of what was written by hand: without samples, which tests make, and lines of tables and drawings."""
    return sum(1 for each in _SAMPLE.sub("", text).split() if re.search(r"\w", each))


def test_every_page_stands_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall(PAGES["README.md"])}
    assert set(PAGES) - linked == {"README.md"}


def test_no_page_is_too_long_to_read() -> None:
    words = {str(page.relative_to(DOCS)): count_words(page.read_text()) for page in DOCS.rglob("*.md")}
    assert {name for name, count in words.items() if count > MOST_WORDS} - GENERATED == set()


def test_all_pages_together_are_short_enough_to_know() -> None:
    guides = [page.read_text() for page in (DOCS / "migration").glob("*.md")]
    by_hand = [text for name, text in PAGES.items() if name not in GENERATED]
    assert sum(map(count_words, by_hand + guides)) <= MOST_WORDS_IN_ALL


def test_a_sample_and_lines_of_a_table_are_no_words() -> None:
    assert (
        count_words("one | `two` |\n|---|\n```\n$ twinlog status\nRUNNING\n```\n```\nthree ───▶ four\n```\n")
        == 4
    )
