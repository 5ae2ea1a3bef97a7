"""Configurations from text, read from a file system that holds nothing else."""

from collections.abc import Collection
from pathlib import Path

import pytest

from twinlog.config import Configuration, load
from twinlog.errors import ConfigError
from twinlog.model import ClusterAlias, Flow

FILE = "mm2.properties"

TWO_CLUSTERS = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


class OneFile:
    def __init__(self, text: str) -> None:
        self._content = text.encode("latin-1")

    def read_bytes(self, path: str) -> bytes:
        if path != FILE:
            raise FileNotFoundError(2, "No such file or directory")
        return self._content

    def is_file(self, path: str) -> bool:
        return path == FILE


def load_text(
    text: str,
    *,
    environ: dict[str, str] | None = None,
    only_flows: Collection[Flow] | None = None,
    only_targets: Collection[ClusterAlias] | None = None,
    overrides: dict[str, str] | None = None,
    strict: bool = False,
) -> Configuration:
    return load(
        Path(FILE),
        environ=environ or {},
        only_flows=only_flows,
        only_targets=only_targets,
        overrides=overrides,
        strict=strict,
        files=OneFile(text),
    )


def load_more(*lines: str, strict: bool = False) -> Configuration:
    """Two clusters, A->B enabled, and more lines; the first of them is line 5."""
    return load_text(TWO_CLUSTERS + "\n".join(lines), strict=strict)


def problems(text: str) -> list[str]:
    """What is wrong with a file, line by line."""
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    return str(caught.value).split("\n")
