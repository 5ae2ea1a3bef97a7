"""What is generated: file below deploy/ -> its text."""

from deploy.observability import alerts, boards
from deploy.observability.grafana import render


def files() -> dict[str, str]:
    return {
        "prometheus/alerts.yaml": alerts.rules(),
        **{f"grafana/boards/{board.uid}.json": render(board) for board in boards.BOARDS},
    }
