"""docs/reasons.md is what the table says."""

from pathlib import Path

from twinlog.kafka.reasons_page import render_reasons

PAGE = Path(__file__).parents[3] / "docs" / "reasons.md"


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_reasons()
