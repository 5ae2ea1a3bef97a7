"""The examples in docstrings are true."""

import doctest
import importlib
import re
from pathlib import Path

from unit.cases import about

ROOT = Path(__file__).parents[3]
SOURCES = (ROOT / "src", *sorted((ROOT / "services").iterdir()))
EXAMPLE = re.compile(r"^\s*>>> ", re.MULTILINE)


def modules_with_examples() -> list[str]:
    return sorted(
        ".".join(path.relative_to(source).with_suffix("").parts)
        for source in SOURCES
        for path in source.rglob("*.py")
        if EXAMPLE.search(path.read_text())
    )


def test_the_examples_of_a_module_give_what_they_say() -> None:
    for module in modules_with_examples():
        with about(module):
            found = doctest.testmod(importlib.import_module(module))
            assert found.attempted > 0
            assert found.failed == 0
