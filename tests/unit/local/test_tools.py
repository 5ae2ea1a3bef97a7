"""Kafka's own scripts in a clone."""

import re

from twinlog.local.tools import TOOLS
from unit.deploy.wheels import PROJECT

GONE_WITH_KAFKA_4 = {"kafka-mirror-maker"}


def test_every_script_that_a_text_names_runs_from_a_clone() -> None:
    texts = [
        path.read_text(encoding="utf-8")
        for part in ("src", "services", "docs")
        for path in (PROJECT / part).rglob("*")
        if path.suffix in (".md", ".py", ".txt")
    ]
    named = {name for text in texts for name in re.findall(r"\b((?:kafka|connect)-[a-z-]+)\.sh\b", text)}
    assert "kafka-get-offsets" in named
    assert named - GONE_WITH_KAFKA_4 <= set(TOOLS)
