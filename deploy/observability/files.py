"""What is generated: file below deploy/ -> its text."""

from deploy.observability import alerts


def files() -> dict[str, str]:
    return {"prometheus/alerts.yaml": alerts.rules()}
