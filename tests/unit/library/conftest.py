"""What the real MirrorMaker 2 answered (tests/golden)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Golden = Callable[[str], list[dict[str, Any]]]

_GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Read a file of golden vectors by its name without `.json`."""

    def read(name: str) -> list[dict[str, Any]]:
        vectors: list[dict[str, Any]] = json.loads((_GOLDEN / f"{name}.json").read_text())
        assert vectors, f"no golden vectors in {name}"
        return vectors

    return read
