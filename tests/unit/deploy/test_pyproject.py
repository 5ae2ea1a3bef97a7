"""What pyproject.toml says of modules is of modules that are there."""

import re
import tomllib
from collections.abc import Iterator

from unit.deploy.wheels import PROJECT

TOOLS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
CODE = [
    path
    for part in ("src", "services", "tests", "bench", "deploy")
    for path in (PROJECT / part).rglob("*.py")
]


def each_of(pattern: str) -> Iterator[str]:
    """The patterns that one with braces stands for."""
    innermost = re.search(r"\{([^{}]*)\}", pattern)
    if innermost is None:
        yield pattern
        return
    for choice in innermost[1].split(","):
        yield from each_of(pattern[: innermost.start()] + choice + pattern[innermost.end() :])


def test_every_exemption_is_for_a_file_that_ruff_reads() -> None:
    ruff = TOOLS["ruff"]
    for pattern in ruff["lint"]["per-file-ignores"]:
        for path in each_of(pattern):
            assert any(PROJECT.glob(path)), path
            assert not path.startswith(tuple(ruff["extend-exclude"])), path


def test_every_package_without_types_is_imported() -> None:
    (overrides,) = TOOLS["mypy"]["overrides"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in CODE)
    for module in overrides["module"]:
        name = re.escape(module.removesuffix(".*"))
        assert re.search(rf"^\s*(?:from|import) {name}\b", text, re.MULTILINE), module
