"""README: secured clusters are configured as for MM2, and secrets stay out of logs and output."""

import asyncio
import subprocess
import sys
from pathlib import Path

from e2e.conftest import FAST_AND_SMALL
from twinlog.batches import Codec, NewRecord
from twinlog.clock import SystemClock
from twinlog.demo.comparison import compare
from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import NewTopic
from twinlog.local.blocking_cluster import BlockingCluster
from twinlog.local.spec import SaslMechanism
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import eventually, retry_admin, unique_name
from twinlog.testing.records import write_batches


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


async def test_a_flow_from_tls_and_scram_to_sasl_plain(
    tls_cluster: BlockingCluster, sasl_cluster: BlockingCluster, tmp_path: Path
) -> None:
    a, b = tls_cluster, sasl_cluster
    passwords = [cluster.spec.security.super_password for cluster in (a, b)]
    clients = {
        "A": a.client_properties(mechanism=SaslMechanism.SCRAM_SHA_512),
        "B": b.client_properties(mechanism=SaslMechanism.PLAIN),
    }
    settings = "".join(
        f"{alias}.{key} = {_escaped(value)}\n"
        for alias, properties in clients.items()
        for key, value in properties.items()
    )
    topic = unique_name("secured")
    async with open_cluster("A", clients["A"]) as source, open_cluster("B", clients["B"]) as target:
        new = NewTopic(name=topic, partition_count=2, replication_factor=1)
        await retry_admin(lambda: source.create_topics([new]))
        records = [NewRecord(b"k%d" % i, b"%d" % i, SystemClock().now_ms()) for i in range(100)]
        await write_batches(a, topic, [(0, Codec.ZSTD, records), (1, Codec.NONE, records)])
        text = f"clusters = A, B\n{settings}A->B.enabled = true\ntopics = {topic}\n{FAST_AND_SMALL}"
        async with TwinlogRun(text, tmp_path) as run:

            async def all_there() -> bool:
                if f"A.{topic}" not in await target.list_topics():
                    return False
                result = await compare(source, topic, target, f"A.{topic}", partition_count=2)
                return result.target_records == 200 and result.identical

            await eventually(all_there)
            command = [sys.executable, "-m", "twinlog", "status", "--config", str(run.file), "-o", "json"]
            status = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=60
            )
        said = run.log.read_text() + status.stdout + status.stderr
    assert status.returncode == 0, status
    for password in passwords:
        assert password not in said
