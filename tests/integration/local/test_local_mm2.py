"""What the real MirrorMaker 2 and its tools say when they fail; that they work: tests/e2e."""

import asyncio
from pathlib import Path

import pytest

from twinlog.local.processes.process import ProcessError
from twinlog.testing.brokers import KafkaPair
from twinlog.testing.java.mm2 import MirrorMaker2
from twinlog.testing.java.tools import run_java_tool

pytestmark = pytest.mark.java


def test_mm2_that_cannot_start_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters=A\nA->A.enabled=true\n")
    with pytest.raises(ProcessError, match=r"MirrorMaker 2 ended; the end of its log"):
        MirrorMaker2(file, log_file=tmp_path / "mm2.log").start()


async def test_tool_that_fails_tells_why(kafka_pair: KafkaPair) -> None:
    servers = kafka_pair.a.bootstrap_servers
    with pytest.raises(ProcessError, match=r"TopicCommand ended with 1: (.|\n)*no-such-topic"):
        await asyncio.to_thread(
            run_java_tool,
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", servers, "--describe", "--topic", "no-such-topic"),
        )
