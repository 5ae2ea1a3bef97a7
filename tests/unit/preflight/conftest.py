"""What the tests of preflight share."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from unit.preflight.facts_rig import Configure


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def make(properties: Mapping[str, str]) -> Configuration:
        settings = {
            "clusters": "A, B, C",
            **{f"{alias}.bootstrap.servers": f"{alias.lower()}:9092" for alias in "ABC"},
            "A->B.enabled": "true",
            **properties,
        }
        file = tmp_path / "mm2.properties"
        file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        return load(file, environ={})

    return make
