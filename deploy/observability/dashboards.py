"""The boards of Twinlog for Grafana, from `dashboards.yaml`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from deploy.observability.grafana import Board, Panel, Query

FILE = Path(__file__).with_suffix(".yaml")
_WORD = re.compile(r"<([a-z ]+)>")


def _boards() -> Iterator[Board]:
    document = yaml.safe_load(FILE.read_text())
    for board in document["boards"]:
        panels = tuple(_panel(panel, document["words"]) for panel in board["panels"])
        yield Board(**{**board, "panels": panels})


def _panel(panel: Mapping[str, Any], words: Mapping[str, str]) -> Panel:
    queries = tuple(
        Query(**{name: _told(text, words) for name, text in query.items()}) for query in panel["queries"]
    )
    return Panel(**{**panel, "queries": queries})


def _told(text: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: _told(words[found[1]], words), text)


BOARDS = tuple(_boards())
