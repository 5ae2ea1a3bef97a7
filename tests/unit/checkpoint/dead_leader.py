"""A partition or a group whose brokers are away, while the others of its cluster answer."""

from dataclasses import replace

from twinlog.errors import KafkaError
from twinlog.kafka.errors import NO_LEADER, UNAVAILABLE, from_reason
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


def kill_coordinator(cluster: FakeCluster, group_id: str, *, lookup: str = "describe_groups") -> KafkaError:
    """The other groups answer. Returns what this one's broker does instead."""
    reason = replace(UNAVAILABLE, meaning="broker 2 cannot be reached")
    error = from_reason(reason, f"{lookup} {group_id}", alias=cluster.alias)

    def leave_out(call: Call) -> None:
        if group_id in call.result:
            call.result[group_id] = error

    cluster.intercept(lookup, leave_out, after=True)
    return error
