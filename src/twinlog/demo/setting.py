"""The demo's properties file."""

from twinlog.local.blocking_cluster import BlockingCluster

PROPERTIES = """\
# The demo's mm2.properties: a file of MirrorMaker 2, with keys of Twinlog beside its own.
clusters = A, B
A.bootstrap.servers = {a}
B.bootstrap.servers = {b}

A->B.enabled = true
A->B.topics = orders
B->A.enabled = false

replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1

# Often, so that a minute shows everything.
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
twinlog.epoch.seconds = 10
twinlog.epoch.max.seconds = 10
"""


def demo_properties(a: BlockingCluster, b: BlockingCluster) -> str:
    """The file's text for two clusters."""
    return PROPERTIES.format(a=a.bootstrap_servers, b=b.bootstrap_servers)
