"""A partition whose brokers are away, while the others of its cluster answer."""

from twinlog.kafka.errors import NO_LEADER, from_reason
from twinlog.model import TopicPartition
from twinlog.testing.fakes.cluster import Call, FakeCluster


def kill_leader(cluster: FakeCluster, partition: TopicPartition) -> None:
    """The others answer, and know the topic."""
    error = from_reason(NO_LEADER, f"list offsets, {partition}", alias=cluster.alias)

    def leave_out(call: Call) -> None:
        if partition in call.result:
            call.result[partition] = error

    def refuse(call: Call) -> None:
        if call.arguments["partition"] == partition:
            raise error

    for lookup in ("list_offsets", "log_ends", "offsets_for_times"):
        cluster.intercept(lookup, leave_out, after=True)
    cluster.intercept("fetch", refuse)
