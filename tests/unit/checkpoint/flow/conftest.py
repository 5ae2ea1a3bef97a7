"""The files of flows whose rules change."""

from pathlib import Path

import pytest

from twinlog.config import Configuration, load


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    """Its file selects the topic orders only."""
    file = tmp_path / "mm2.properties"
    file.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
        "A->B.topics = orders\nreplication.factor = 1\ncheckpoints.topic.replication.factor = 1\n"
        "offset-syncs.topic.replication.factor = 1\nsync.group.offsets.enabled = true\n"
    )
    return load(file, environ={})


@pytest.fixture
def two_way(configuration: Configuration, tmp_path: Path) -> Configuration:
    """As `configuration`, with the reverse flow, for which the file selects a topic that does not exist."""
    file = tmp_path / "mm2.properties"
    file.write_text(f"{file.read_text()}B->A.enabled = true\nB->A.topics = nothing\n")
    return load(file, environ={})
