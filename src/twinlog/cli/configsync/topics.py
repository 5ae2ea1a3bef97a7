"""`twinlog topics`: every topic of a flow, and why one is not copied."""

from collections.abc import Mapping

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as pb2
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.common.call import Call, Services, command
from twinlog.cli.common.fields import Field, Fields, table, value_of
from twinlog.cli.common.names import flow_name, parse_flow
from twinlog.cli.common.options import OptionalFlowArgument, flag

# What commands about topics, configuration and access share.


async def chosen_flows(stub: ConfigSyncServiceStub, name: str | None) -> list[types_pb2.Flow]:
    """The flow of this name, or all flows of configsync. Raises ConfigError for a name that is not a flow."""
    if name is not None:
        return [parse_flow(name)]
    answer = await stub.ListFlows(pb2.ListFlowsRequest(), timeout=5.0)
    return [status.flow for status in answer.flows]


TOPIC: Fields[pb2.ReplicatedTopic] = table(
    "flow|flow1 source_topic|topic target_topic|on_target",
    Field("partition_count", column="partitions", text=lambda topic: _partitions(topic), right=True),
    "target_partition_count state|state",
    Field("reason", "reason?", "reason", lambda topic: _why(topic)),
    "message? source_topic_id? target_topic_id? generation source_cleanup_policy? routed_from?",
)
_READY = "READY"
_NAMED = 5
CYCLE_HELP = "twinlog explain reason CYCLE"


@command
def topics_command(
    call: Call,
    flow: OptionalFlowArgument = None,
    waiting: bool = flag("--waiting", "Only topics that are not READY, or not in step."),
) -> None:
    """Show every topic that the rules of a flow select: its copy, its partitions, and why one is not copied.

    Topics that no rule selects are not listed: `twinlog explain topic NAME` says which rule leaves one out.
    """

    wanted = None if flow is None else parse_flow(flow)

    async def topics(at: Services) -> tuple[list[pb2.ReplicatedTopic], list[str], list[str]]:
        statuses = (await at.configsync.ListFlows(pb2.ListFlowsRequest())).flows
        flows = [each.flow for each in statuses] if wanted is None else [wanted]
        told = [await at.configsync.ListTopics(pb2.ListTopicsRequest(flow=each)) for each in flows]
        unknown = [
            flow_name(each)
            for each, known in zip(flows, told, strict=True)
            if each not in known.settled_flows
        ]
        kept_out = [
            f"{flow_name(status.flow)}: {words} (`{CYCLE_HELP}`)"
            for status in statuses
            if status.flow in flows
            for words in cycle_words(status.cycles).values()
        ]
        return [topic for known in told for topic in known.topics], unknown, kept_out

    found, unknown, kept_out = call.ask(topics)
    chosen = [topic for topic in found if not waiting or is_troubled(topic)]
    empty = "no topic waits" if found else "no topic is selected"
    empty += "; `twinlog explain topic NAME` says why one is left out"
    if unknown:
        empty = f"the topics of {', '.join(unknown)} are not known yet: `twinlog status` says why"
    call.tell_rows(TOPIC, chosen, empty=empty, lines=kept_out)


def cycle_words(cycles: Mapping[str, str]) -> dict[str, str]:
    """By cluster: which topics are not copied, because by their names they came through it.

    >>> cycle_words({"B.a": "B", "B.b": "B"})
    {'B': 'not copied, because by their names they came through B: B.a, B.b'}
    """
    found: dict[str, list[str]] = {}
    for topic, cluster in sorted(cycles.items()):
        found.setdefault(cluster, []).append(topic)
    return {
        cluster: f"not copied, because by their names they came through {cluster}:"
        f" {', '.join(names[:_NAMED])}"
        f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''}"
        for cluster, names in found.items()
    }


def is_troubled(topic: pb2.ReplicatedTopic) -> bool:
    """Whether it waits, was deleted on the source, or is copied but not in sync."""
    return value_of(topic, "state") != _READY or bool(topic.reason)


def _why(topic: pb2.ReplicatedTopic) -> str:
    routed = f"records of {topic.routed_from} go there" if topic.routed_from else ""
    return f"{topic.reason} {topic.message}".strip() or routed


def _partitions(topic: pb2.ReplicatedTopic) -> str:
    short = topic.target_partition_count < topic.partition_count
    return (
        f"{topic.target_partition_count} of {topic.partition_count}" if short else str(topic.partition_count)
    )
