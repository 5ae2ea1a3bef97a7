"""The real MirrorMaker 2 runs on embedded clusters, and its tools read its topics."""

import asyncio
from pathlib import Path

import pytest

from twinlog.local.java_tools import Formatter, read_formatted, run_java_tool
from twinlog.local.mm2 import MirrorMaker2, quick_mm2_properties
from twinlog.local.process import ProcessError
from twinlog.local.spec import ClusterSpec
from twinlog.model import Flow
from twinlog.testing.brokers import KafkaPair, start_clusters, stop_clusters

pytestmark = pytest.mark.java


def test_mm2_emits_heartbeats_that_its_formatter_prints(tmp_path: Path) -> None:
    a, b = start_clusters(ClusterSpec(name="A"), ClusterSpec(name="B"))
    try:
        clients = {"A": a.client_properties(), "B": b.client_properties()}
        file = tmp_path / "mm2.properties"
        file.write_text(quick_mm2_properties(clients, [Flow("A", "B")]))
        with MirrorMaker2(file, log_file=tmp_path / "mm2.log", quick_start=True) as mm2:
            assert mm2.process.cpu_seconds() > 1
            assert mm2.process.resident_bytes() > 100 * 1024 * 1024
            lines = read_formatted(clients["B"], "heartbeats", Formatter.HEARTBEAT, count=2)
        assert not mm2.process.running
    finally:
        stop_clusters([a, b])
    assert len(lines) == 2
    assert all(
        line.startswith("Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=") for line in lines
    )


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
