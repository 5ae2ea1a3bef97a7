"""For applications that work on replicated clusters. See docs/client.md.

`MirrorClient` is MM2's class of that name, `remote_cluster_utils` its RemoteClusterUtils; `LogicalConsumer`
reads a topic and all its remote copies as one.
"""

from twinlog.client.logical_consumer import LogicalConsumer as LogicalConsumer
from twinlog.client.logical_consumer import LogicalRecord as LogicalRecord
from twinlog.client.mirror_client import MirrorClient as MirrorClient
from twinlog.kafka.ports import CommittedOffset as CommittedOffset
from twinlog.model import TopicPartition as TopicPartition
