"""What configsync adds to `twinlog status`: topics, those that wait, rules that are not the file's."""

import asyncio

import grpc

from twinlog.api.common.v1 import types_pb2
from twinlog.api.configsync.v1 import configsync_service_pb2 as configsync
from twinlog.api.configsync.v1.configsync_service_pb2_grpc import ConfigSyncServiceStub
from twinlog.cli.configsync.client import every_topic
from twinlog.cli.configsync.rules import is_of_operator
from twinlog.cli.status.rows import MANUAL, NAMED_TOPICS, RULE, WAITING, Status, asked, shown_stamp

SYNC_MODE = "twinlog.sync.mode"


async def ask_configsync(channel: grpc.aio.Channel, status: Status, timeout_seconds: float) -> None:
    stub = ConfigSyncServiceStub(channel)
    answer = await stub.ListFlows(configsync.ListFlowsRequest(), timeout=timeout_seconds)
    for flow in answer.flows:
        row = status.flow(flow.flow)
        row.topics = dict(flow.topics_by_state)
        row.add_note("configsync", flow.reason, flow.message)
        status.add_clusters("configsync", flow.clusters)
    async with asyncio.TaskGroup() as group:
        for flow in answer.flows:
            group.create_task(_rules(stub, flow.flow, status, timeout_seconds), name="rules")
            if flow.topics_by_state[WAITING]:
                group.create_task(_waiting(stub, flow.flow, status, timeout_seconds), name="waiting topics")


async def _rules(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, status: Status, timeout_seconds: float
) -> None:
    """Rules that are not the file's, and whether changes wait for somebody to apply them."""
    row = status.flow(flow)
    answer = await asked(
        stub.GetRules(configsync.GetRulesRequest(flow=flow), timeout=timeout_seconds),
        [row],
        "configsync",
        "rules are not known",
    )
    if answer is None:
        return
    rules = answer.rules
    updated = shown_stamp(rules.updated) if rules.HasField("updated") else None
    for rule in rules.rules:
        if is_of_operator(rule):
            file_value = rule.file_value or "nothing"
            told = f"{rule.key} = {rule.value}; the file says {file_value}"
            if not rule.changed:
                told = (
                    f"{rule.key} = {rule.put_aside} is put aside: the file has changed, and says {file_value}"
                )
            since = shown_stamp(rule.changed_at) if rule.HasField("changed_at") else updated
            row.hold(RULE, told, "twinlog rules diff {flow}", by=rule.changed_by or None, since=since)
        if rule.key == SYNC_MODE and rule.value == "manual":
            told = "topics, configs and ACLs change by `twinlog apply` only"
            row.hold(MANUAL, told, "twinlog plan {flow}")


async def _waiting(
    stub: ConfigSyncServiceStub, flow: types_pb2.Flow, status: Status, timeout_seconds: float
) -> None:
    """Topics that are selected and not copied, by reason."""
    row = status.flow(flow)
    answer = await asked(
        every_topic(stub, flow, timeout_seconds=timeout_seconds),
        [row],
        "configsync",
        "topics are not known",
    )
    if answer is None:
        return
    by_reason: dict[str, list[configsync.ReplicatedTopic]] = {}
    for topic in answer:
        if topic.state == configsync.TOPIC_STATE_WAITING:
            by_reason.setdefault(topic.reason, []).append(topic)
    for reason, topics in sorted(by_reason.items()):
        names = [topic.source_topic for topic in topics]
        more = f" and {len(names) - NAMED_TOPICS} more" if len(names) > NAMED_TOPICS else ""
        told = (
            f"selected but not copied: {', '.join(names[:NAMED_TOPICS])}{more}: {reason} {topics[0].message}"
        )
        row.hold(WAITING, told.rstrip(), "twinlog topics {flow} --waiting")
