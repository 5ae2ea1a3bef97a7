"""Whole runs: `twinlog run` on real clusters, with aliases of their own so that runs share the brokers."""

from dataclasses import dataclass
from pathlib import Path

from twinlog.kafka.cluster import open_cluster
from twinlog.kafka.ports import KafkaCluster
from twinlog.local.twinlog_run import TwinlogRun
from twinlog.testing.brokers import KafkaPair

FAST_AND_SMALL = """
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.topic.configs.interval.seconds = 2
sync.topic.acls.enabled = false
twinlog.epoch.seconds = 5
twinlog.epoch.max.seconds = 0
twinlog.drain.seconds = 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorRig:
    """A running A→B with aliases that nobody else has."""

    run: TwinlogRun
    source_alias: str
    target_alias: str
    pair: KafkaPair

    def source(self) -> KafkaCluster:
        return open_cluster(self.source_alias, self.pair.a.client_properties())

    def target(self) -> KafkaCluster:
        return open_cluster(self.target_alias, self.pair.b.client_properties())

    def remote(self, topic: str) -> str:
        return f"{self.source_alias}.{topic}"


def example_text(name: str, **bootstrap_servers: str) -> str:
    """An example's file with real addresses in place of its `host:9092`s, and intervals for the impatient."""
    text = (Path(__file__).parents[2] / "examples" / name / "mm2.properties").read_text()
    for placeholder, servers in bootstrap_servers.items():
        address = f"{placeholder.replace('_', '-')}:9092"
        assert address in text, f"{name} does not name {address}"
        text = text.replace(address, servers)
    return text + FAST_AND_SMALL
