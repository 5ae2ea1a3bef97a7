"""A partition or a group whose brokers are away, while the others of its cluster answer."""

from dataclasses import replace

from twinlog.errors import KafkaError
from twinlog.kafka.errors import NO_LEADER, UNAVAILABLE, from_code, from_reason
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
    error = _broker_is_away(cluster, f"{lookup} {group_id}")

    def leave_out(call: Call) -> None:
        if group_id in call.result:
            call.result[group_id] = error

    cluster.intercept(lookup, leave_out, after=True)
    return error


def lose_coordinator(cluster: FakeCluster, group_id: str) -> None:
    """No broker lists the group any more, and none answers about it."""
    cluster.intercept("list_groups", lambda call: call.result.pop(group_id, None), after=True)
    for lookup in ("describe_groups", "group_offsets"):
        kill_coordinator(cluster, group_id, lookup=lookup)


def deny_group(cluster: FakeCluster, group_id: str, *, is_listed: bool = False) -> None:
    """The principal has lost its rights on the group, or may only see that it is there."""
    error = from_code(30, f"read offsets of group {group_id}", alias=cluster.alias)

    def leave_out(call: Call) -> None:
        if group_id in call.result:
            call.result[group_id] = error

    if not is_listed:
        cluster.intercept("list_groups", lambda call: call.result.pop(group_id, None), after=True)
    for lookup in ("describe_groups", "group_offsets"):
        cluster.intercept(lookup, leave_out, after=True)


def keep_from_listing(cluster: FakeCluster) -> KafkaError:
    """One broker of the metadata does not list its groups. Returns what it does instead."""
    error = _broker_is_away(cluster, "list groups")

    def refuse(_call: Call) -> None:
        raise error

    cluster.intercept("list_groups", refuse)
    return error


def _broker_is_away(cluster: FakeCluster, doing: str) -> KafkaError:
    reason = replace(UNAVAILABLE, meaning="broker 2 cannot be reached")
    return from_reason(reason, doing, alias=cluster.alias)
