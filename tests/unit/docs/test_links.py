"""Each link of a page leads to a file, and to a heading, that exists."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from unit.cases import about

ROOT = Path(__file__).parents[3]
PAGES = sorted(
    page
    for folder in ("", "docs", "deploy", "examples", "services", "distributions", "bench", "proto")
    for page in (ROOT / folder).glob("*.md" if not folder else "**/*.md")
)
_CODE = re.compile(r"```.*?```", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE = ("http://", "https://", "mailto:")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of its headings, as GitHub makes them, and those that stand in HTML."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.*)$", _CODE.sub("", text), re.MULTILINE)
    return frozenset(map(_anchor, headings)) | frozenset(re.findall(r'(?:id|name)="([^"]+)"', text))


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def broken_links(page: Path) -> Iterator[str]:
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        if link.startswith(_ELSEWHERE):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield link


def test_every_link_leads_somewhere() -> None:
    for page in PAGES:
        with about(page):
            assert list(broken_links(page)) == []


def test_a_link_without_its_heading_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One `two`: three\n[here](#one-two-three) [not](#four) [gone](b.md)\n")
    assert list(broken_links(tmp_path / "a.md")) == ["#four", "b.md"]
