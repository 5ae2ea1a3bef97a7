"""Nobody has to read a sentence twice: none of a page that was written by hand is too long."""

import re
from collections.abc import Iterator

from unit.docs.test_links import PAGES, ROOT

MOST_WORDS = 35
GENERATED = {"configuration.md", "metrics.md", "reasons.md"}
READ_BY_USERS = [
    page
    for page in PAGES
    if page == ROOT / "README.md"
    or (page.is_relative_to(ROOT / "docs") and "adr" not in page.parts and page.name not in GENERATED)
]
_BLOCK = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"([-*]|\d+\.) ")
_END = re.compile(r"(?<=[.!?])[*)]*\s+")


def passages(text: str) -> Iterator[str]:
    """Paragraphs, items of lists and cells of tables; a code span is one word."""
    open_lines: list[str] = []
    for line in [*_BLOCK.sub("\n\n", text).splitlines(), ""]:
        words = line.strip()
        begins = not words or words.startswith(("#", "|", "![")) or _ITEM.match(words)
        if begins and open_lines:
            yield " ".join(open_lines)
            open_lines = []
        if words.startswith("|"):
            yield from re.split(r"(?<!\\)\|", words)
        elif words and not words.startswith(("#", "![")):
            open_lines.append(_ITEM.sub("", words, count=1) if begins else words)


def long_sentences(text: str) -> list[str]:
    found = []
    for passage in passages(text):
        plain = re.sub(r"`[^`]*`", "code", _LINK.sub(r"\1", passage))
        found += [each for each in _END.split(plain) if len(re.findall(r"[\w'-]+", each)) > MOST_WORDS]
    return found


def test_no_sentence_is_too_long() -> None:
    found = {str(page.relative_to(ROOT)): long_sentences(page.read_text()) for page in READ_BY_USERS}
    assert {page: sentences for page, sentences in found.items() if sentences} == {}


def test_a_long_sentence_is_found_wherever_it_stands() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    assert long_sentences(f"Short.\n\n- {long}.\n\n| a | {long} |\n") == [f"{long}.", f" {long} "]
    assert long_sentences(f"```\n{long}\n```\n`{long}`. {long[:20]}.\n{long[:20]}.") == []
